"""An order service whose audit log waits, in the thread of the event loop, for its own coroutine.

https://github.com/crewAIInc/crewAI/issues/6742 (also https://github.com/empicano/aiomqtt/issues/174)

Truth: the thread of the event loop runs create_order, which calls record_sync, which waits for
the result of a coroutine on the same loop. The loop cannot run it while its thread waits.

Words: event loop
Run: {python} -m uvicorn uvicorn_nested_result:app --port {port}
Ask: /health /orders/7&
Attach: port
Needs: fastapi uvicorn
"""

import asyncio

from fastapi import FastAPI

app = FastAPI()


class AuditLog:
    def __init__(self) -> None:
        self.rows: list[str] = []

    async def record(self, row: str) -> int:
        await asyncio.sleep(0.01)
        self.rows.append(row)
        return len(self.rows)

    def record_sync(self, row: str) -> int:
        """For callers that are not coroutines."""
        loop = asyncio.get_event_loop()
        if loop.is_running():
            return asyncio.run_coroutine_threadsafe(self.record(row), loop).result()  # HANG
        return loop.run_until_complete(self.record(row))


audit = AuditLog()


@app.get("/health")
async def health() -> dict[str, str]:
    return {"status": "ok"}


@app.get("/orders/{number}")
async def create_order(number: int) -> dict[str, int]:
    place = audit.record_sync(f"order {number}")  # HANG
    return {"place": place}
