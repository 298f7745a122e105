"""A healthy service: coroutines, threads and a background task that works every few seconds.

Truth: it is idle, or it serves requests that take some seconds.

Run: {python} -m uvicorn uvicorn_healthy:app --port {port}
Busy: /slow /thread /health
Attach: port
Needs: fastapi uvicorn
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

lock = asyncio.Lock()


async def refresh_rates() -> None:
    while True:
        await asyncio.sleep(5)
        async with lock:
            await asyncio.sleep(0.5)


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    task = asyncio.create_task(refresh_rates())
    yield
    task.cancel()


app = FastAPI(lifespan=lifespan)


@app.get("/health")
async def health() -> dict[str, str]:
    return {"status": "ok"}


@app.get("/slow")
async def slow() -> dict[str, str]:
    async with lock:
        await asyncio.sleep(3)
    return {"status": "done"}


@app.get("/thread")
def thread() -> dict[str, str]:
    time.sleep(4)
    return {"status": "done"}
