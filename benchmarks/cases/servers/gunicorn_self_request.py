"""A WSGI application that asks itself over HTTP, with one worker.

https://github.com/benoitc/gunicorn/issues/1923 ("application is sending http requests to itself
synchronously")

Truth: the only worker handles /invoice and waits for the answer of /price on its own port. That
request waits in the backlog of the socket until the worker is free.

Words: its own|itself|same process
Run: {python} -m gunicorn --workers 1 --timeout 0 --bind 127.0.0.1:{port} gunicorn_self_request:app
Ask: /price /invoice&
Attach: port
Needs: gunicorn
"""

import urllib.request
from collections.abc import Callable, Iterable


def price() -> bytes:
    return b"12"


def invoice(host: str) -> bytes:
    with urllib.request.urlopen(f"http://{host}/price") as answer:  # HANG
        amount = int(answer.read())
    return f"total {amount * 3}".encode()


def app(environ: dict[str, str], start_response: Callable[..., object]) -> Iterable[bytes]:
    is_invoice = environ["PATH_INFO"] == "/invoice"
    body = invoice(environ["HTTP_HOST"]) if is_invoice else price()  # HANG
    start_response("200 OK", [("Content-Length", str(len(body)))])
    return [body]
