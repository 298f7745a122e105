"""A healthy WSGI application: two workers with threads, a lock, and slow requests.

Truth: it is idle, or it serves requests that take some seconds.

Run: {python} -m gunicorn --workers 2 --threads 2 --bind 127.0.0.1:{port} gunicorn_healthy:app
Busy: /slow /fast
Attach: port
Needs: gunicorn
"""

import threading
import time
from collections.abc import Callable, Iterable

lock = threading.Lock()


def app(environ: dict[str, str], start_response: Callable[..., object]) -> Iterable[bytes]:
    if environ["PATH_INFO"] == "/slow":
        with lock:
            time.sleep(3)
    start_response("200 OK", [("Content-Length", "2")])
    return [b"ok"]
