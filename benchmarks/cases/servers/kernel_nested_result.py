"""A cell that waits for a coroutine on the event loop of its own kernel.

https://github.com/jupyter/notebook/issues/5261 by way of
https://github.com/bentoml/OpenLLM/pull/478 (ensure_exec_coro in a notebook)

Truth: the main thread of the kernel runs the cell, and waits in result for a coroutine that only
the event loop of this thread can run.

Words: event loop
Run: {python} kernel_session.py kernel_nested_result.py
Attach: child ipykernel
Needs: ipykernel jupyter_client
"""

import asyncio


async def embed(text):
    await asyncio.sleep(0.1)
    return [float(len(word)) for word in text.split()]


def ensure_result(coroutine):
    loop = asyncio.get_event_loop()
    if loop.is_running():
        return asyncio.run_coroutine_threadsafe(coroutine, loop).result()  # HANG
    return asyncio.run(coroutine)


vectors = ensure_result(embed("the quick brown fox"))  # HANG
print(vectors)
