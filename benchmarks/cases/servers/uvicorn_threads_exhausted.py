"""A report service whose dependency takes a database connection in a thread of the pool.

https://github.com/fastapi/fastapi/issues/3205 and https://github.com/fastapi/fastapi/pull/12066

Truth: the first request has the only connection, and its answer needs a thread to be validated.
The threads of the pool all wait in get_db for that connection, so no thread is free: requests
with threads wait for the connection, and the request with the connection waits for a thread.

Words: connection|pool
Run: {python} -m uvicorn uvicorn_threads_exhausted:app --port {port}
Ask: /health /report/1& sleep:0.5 /report/2& /report/3& /report/4& /report/5& /report/6&
Attach: port
Needs: fastapi uvicorn sqlalchemy
"""

import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import anyio.to_thread
from fastapi import Depends, FastAPI
from pydantic import BaseModel
from sqlalchemy import Connection, create_engine, text
from sqlalchemy.pool import QueuePool

engine = create_engine(
    "sqlite://",
    poolclass=QueuePool,
    pool_size=1,
    max_overflow=0,
    pool_timeout=3600,
    connect_args={"check_same_thread": False},
)


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    anyio.to_thread.current_default_thread_limiter().total_tokens = 4
    yield


app = FastAPI(lifespan=lifespan)


class Report(BaseModel):
    number: int
    total: int


def get_db() -> Iterator[Connection]:
    with engine.connect() as connection:  # HANG
        yield connection


@app.get("/health")
async def health() -> dict[str, str]:
    return {"status": "ok"}


@app.get("/report/{number}", response_model=Report)
def report(number: int, db: Connection = Depends(get_db)) -> dict[str, int]:  # noqa: B008
    time.sleep(2)
    return {"number": number, "total": db.execute(text("select 40 + 2")).scalar_one()}
