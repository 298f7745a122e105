"""A Gradio event that calls a different event of the same app, with one shared concurrency slot.

https://github.com/gradio-app/gradio/issues/11819 (an event waits while a different one has reached
the concurrency limit)

Truth: report has the only slot of the group gpu, and waits with gradio_client for the event embed
of the same server. embed is in the queue of that group, and gets no slot before report returns.

Words: its own|itself|same process
Run: {python} gradio_calls_itself.py {port}
Ask: gradio:embed:a gradio:report:hello&
Settle: 8
Attach: port
Needs: gradio
"""

import sys

import gradio as gr
from gradio_client import Client

port = int(sys.argv[1])


def embed(text: str) -> str:
    return str(len(text))


def report(text: str) -> str:
    client = Client(f"http://127.0.0.1:{port}", verbose=False)
    return "size " + client.predict(text, api_name="/embed")  # HANG


with gr.Blocks() as demo:
    box, out = gr.Textbox(), gr.Textbox()
    for function in (embed, report):
        gr.Button(function.__name__).click(
            function,
            box,
            out,
            api_name=function.__name__,
            concurrency_limit=1,
            concurrency_id="gpu",
        )

if __name__ == "__main__":
    demo.queue().launch(server_port=port, quiet=True)
