"""A cell that reads the lines of a background thread, which has ended with an exception.

https://github.com/openvinotoolkit/openvino_notebooks/pull/3368 (generation raises, and the main
loop waits in q.get forever)

Truth: the cell waits in words.get for the end mark of the thread generate. That thread has ended
with a ValueError, so nobody fills the queue.

Words: queue
Run: {python} kernel_session.py kernel_dead_thread.py
Attach: child ipykernel
Needs: ipykernel jupyter_client
"""

import queue
import threading

words = queue.Queue()


def generate(prompt):
    for word in prompt.split():
        if word == "brown":
            raise ValueError("token 30522 is out of range")
        words.put(word)
    words.put(None)


threading.Thread(target=generate, args=("the quick brown fox",), name="generate").start()
while (word := words.get()) is not None:  # HANG
    print(word)
