"""A WSGI application that starts a refresher thread before gunicorn forks its workers.

https://github.com/benoitc/gunicorn/issues/3529 (preload, a thread in the master, a lock that
the worker inherits locked) and https://github.com/benoitc/gunicorn/issues/1666

Truth: the refresher thread of the master holds rates_lock while gunicorn forks. The worker has a
copy of the locked lock and no refresher thread, so the handler waits for it and nobody in the
worker can release it.

Words: fork
Run: {python} -m gunicorn --preload --workers 1 --timeout 0 --bind 127.0.0.1:{port} gunicorn_fork_lock:app
Ask: /rates&
Attach: port
Needs: gunicorn
"""

import threading
import time
from collections.abc import Callable, Iterable

rates: dict[str, float] = {}
rates_lock = threading.Lock()


def fetch_rates() -> dict[str, float]:
    time.sleep(8)  # a slow service
    return {"EUR": 1.0, "USD": 1.1}


def refresh() -> None:
    while True:
        with rates_lock:
            rates.update(fetch_rates())
        time.sleep(60)


threading.Thread(target=refresh, name="refresher", daemon=True).start()


def app(environ: dict[str, str], start_response: Callable[..., object]) -> Iterable[bytes]:
    with rates_lock:  # HANG
        body = repr(rates).encode()
    start_response("200 OK", [("Content-Length", str(len(body)))])
    return [body]
