"""A healthy Celery worker with one process, whose tasks take some seconds.

Truth: it is idle, or it runs tasks that take some seconds.

Run: {python} -m celery -A celery_healthy worker --concurrency 1 --loglevel warning
Redis: yes
Busy: python:celery_healthy:fill:7
Settle: 12
Attach: root
Needs: celery redis
"""

import os
import time

from celery import Celery

url = os.environ.get("REDIS_URL", "redis://127.0.0.1:6379/0")
app = Celery("reports", broker=url, backend=url)


@app.task
def convert(number: int) -> int:
    time.sleep(4)
    return number


def fill(number: int) -> None:
    """Add tasks."""
    for one in range(number):
        convert.delay(one)
    time.sleep(20)
