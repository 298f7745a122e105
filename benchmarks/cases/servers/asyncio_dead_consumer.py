"""A crawler that waits until its queue is empty, after the task that empties it has failed.

https://github.com/openai/openai-agents-python/issues/4198 (queue.join waits for a consumer task
that an exception has ended)

Truth: the task store has ended with a KeyError that nobody retrieved. main waits in pages.join for
task_done calls that never come.

Words: join
Run: {python} asyncio_dead_consumer.py
Attach: root
Options: --tasks --yes
"""

import asyncio

pages: asyncio.Queue[dict[str, str]] = asyncio.Queue()
stored: list[str] = []


async def store() -> None:
    while True:
        page = await pages.get()
        stored.append(page["title"].strip())
        pages.task_done()


async def fetch(number: int) -> None:
    await asyncio.sleep(0.05 * number)
    await pages.put({"title": f"page {number}"} if number != 3 else {"error": "404"})


async def heartbeat() -> None:
    while True:
        await asyncio.sleep(3600)


async def main() -> None:
    consumer = asyncio.create_task(store(), name="store")
    beat = asyncio.create_task(heartbeat(), name="heartbeat")
    await asyncio.gather(*(fetch(number) for number in range(6)))
    print("ready", flush=True)
    await pages.join()  # HANG
    consumer.cancel(), beat.cancel()
    print(stored)


if __name__ == "__main__":
    asyncio.run(main())
