"""A Celery task that waits for a task of the same worker, which has one process.

https://github.com/celery/celery/issues/3498 and https://github.com/coleifer/huey/issues/618

Truth: the only process of the pool runs report and waits in get for the result of total. total is
reserved by the same worker and starts only after report.

Words: result
Run: {python} -m celery -A celery_nested_get worker --concurrency 1 --loglevel warning
Redis: yes
Ask: python:celery_nested_get:report:7
Settle: 12
Attach: root
Needs: celery redis
"""

import os

from celery import Celery
from celery.result import allow_join_result

url = os.environ.get("REDIS_URL", "redis://127.0.0.1:6379/0")
app = Celery("reports", broker=url, backend=url)


@app.task
def total(number: int) -> int:
    return number * 6


@app.task
def report(number: int) -> str:
    part = total.delay(number)
    with allow_join_result():
        return f"total {part.get()}"  # HANG


if __name__ == "__main__":
    app.worker_main()
