"""A chat with Gradio that reads a stream whose thread has failed, while it holds the model's lock.

https://github.com/openvinotoolkit/openvino_notebooks/pull/3368 (generate raises, and the loop of
the Gradio demo waits in q.get forever)

Truth: the thread of the event chat holds model_lock and waits in words.get for the thread generate,
which has ended with a ValueError. The thread of the event summary waits for model_lock.

Words: model_lock, queue
Run: {python} gradio_dead_streamer.py {port}
Ask: gradio:summary:x gradio:chat:hello_brown_fox& sleep:3 gradio:summary:x&
Settle: 8
Attach: port
Needs: gradio
"""

import queue
import sys
import threading
from collections.abc import Iterator

import gradio as gr

model_lock = threading.Lock()


def generate(prompt: str, words: "queue.Queue[str | None]") -> None:
    for word in prompt.split("_"):
        if word == "brown":
            raise ValueError("token 30522 is out of range")
        words.put(word)
    words.put(None)


def chat(prompt: str) -> Iterator[str]:
    with model_lock:
        words: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=generate, args=(prompt, words), name="generate").start()
        text = ""
        while (word := words.get()) is not None:  # HANG
            text += word
            yield text


def summary(text: str) -> str:
    with model_lock:  # HANG
        return text[:10]


with gr.Blocks() as demo:
    box, out = gr.Textbox(), gr.Textbox()
    gr.Button("chat").click(chat, box, out, api_name="chat")
    gr.Button("summary").click(summary, box, out, api_name="summary")

if __name__ == "__main__":
    demo.queue().launch(server_port=int(sys.argv[1]), quiet=True)
