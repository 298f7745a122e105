"""An RQ job that waits for a lock in Redis, whose owner was killed and set no time limit.

https://github.com/ionelmc/python-redis-lock/issues/73 and
https://github.com/taskiq-python/taskiq-redis/pull/107

Truth: the work horse runs nightly and waits for the Redis lock nightly-report. Its owner is gone and
the lock has no time to live. redis-py asks for the lock ten times a second.

Words: lock|redis
Run: {python} -m rq.cli worker --url {redis} reports
Redis: yes
Ask: python:rq_lost_lock:enqueue:7
Settle: 10
Attach: root
Needs: rq redis
"""

import os

import redis
import rq

client = redis.Redis.from_url(os.environ.get("REDIS_URL", "redis://127.0.0.1:6379/0"))


def nightly(number: int) -> int:
    with client.lock("nightly-report"):  # HANG
        return number * 6


def enqueue(number: int) -> None:
    """Take the lock as a process that is killed within it does, and add the job."""
    client.lock("nightly-report").acquire()
    rq.Queue("reports", connection=client).enqueue(nightly, number)
