"""A healthy Gradio app, whose events take some seconds and stream.

Truth: it is idle, or it serves events that take some seconds.

Run: {python} gradio_healthy.py {port}
Busy: gradio:slow:x gradio:stream:abc
Attach: port
Needs: gradio
"""

import sys
import time
from collections.abc import Iterator

import gradio as gr


def slow(text: str) -> str:
    time.sleep(4)
    return text


def stream(text: str) -> Iterator[str]:
    for end in range(len(text)):
        time.sleep(2)
        yield text[: end + 1]


with gr.Blocks() as demo:
    box, out = gr.Textbox(), gr.Textbox()
    for function in (slow, stream):
        gr.Button(function.__name__).click(function, box, out, api_name=function.__name__)

if __name__ == "__main__":
    demo.queue().launch(server_port=int(sys.argv[1]), quiet=True)
