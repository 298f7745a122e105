"""A healthy asyncio program: a producer that sleeps some seconds between items, and consumers.

Truth: it advances; each item takes a few seconds.

Run: {python} asyncio_healthy.py
Attach: root
Modes: busy
"""

import asyncio

items: asyncio.Queue[int] = asyncio.Queue(maxsize=2)
lock = asyncio.Lock()


async def produce() -> None:
    for number in range(10_000):
        await asyncio.sleep(4)
        await items.put(number)


async def consume() -> None:
    while True:
        number = await items.get()
        async with lock:
            await asyncio.sleep(2)
            print("item", number, flush=True)
        items.task_done()


async def main() -> None:
    print("ready", flush=True)
    consumers = [asyncio.create_task(consume()) for _ in range(3)]
    await asyncio.gather(produce(), *consumers)


if __name__ == "__main__":
    asyncio.run(main())
