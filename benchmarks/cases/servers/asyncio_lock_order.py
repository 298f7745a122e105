"""A bank with asyncio locks, in which two transfers in opposite directions wait for each other.

https://github.com/lkhq/laniakea/pull/63 (two jobs take the same two locks in opposite order) and
https://github.com/python/cpython/issues/121419 (asyncio.Lock does not tell of a deadlock)

Truth: the task a-to-b holds the lock of account a and waits for that of b. The task b-to-a holds
the lock of b and waits for that of a. main waits for both.

Words: lock, a-to-b, b-to-a
Run: {python} asyncio_lock_order.py
Attach: root
Options: --tasks --yes
"""

import asyncio


class Account:
    def __init__(self, name: str, amount: int) -> None:
        self.name, self.amount, self.lock = name, amount, asyncio.Lock()


async def transfer(source: Account, target: Account, amount: int) -> None:
    async with source.lock:
        await asyncio.sleep(0.5)  # check the limits
        async with target.lock:  # HANG
            source.amount -= amount
            target.amount += amount


async def main() -> None:
    a, b = Account("a", 100), Account("b", 100)
    print("ready", flush=True)
    there = asyncio.create_task(transfer(a, b, 10), name="a-to-b")
    back = asyncio.create_task(transfer(b, a, 20), name="b-to-a")
    await asyncio.gather(there, back)  # HANG
    print(a.amount, b.amount)


if __name__ == "__main__":
    asyncio.run(main())
