"""A ThreadingHTTPServer whose two handlers take the same two locks in opposite order.

https://github.com/python-hyper/hyper/issues/275 (connect takes _lock and then _write_lock, and
request takes them in the other order)

Truth: the thread of /move holds stock_lock and waits for ledger_lock. The thread of /audit holds
ledger_lock and waits for stock_lock.

Words: deadlock, stock_lock, ledger_lock
Run: {python} http_lock_order.py {port}
Ask: /health /move& /audit&
Attach: port
"""

import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

stock_lock = threading.Lock()
ledger_lock = threading.Lock()
stock = {"bolts": 10}
ledger: list[int] = []


def move() -> None:
    with stock_lock:
        stock["bolts"] -= 1
        time.sleep(1)
        with ledger_lock:  # HANG
            ledger.append(-1)


def audit() -> None:
    with ledger_lock:
        total = sum(ledger)
        time.sleep(1)
        with stock_lock:  # HANG
            assert stock["bolts"] == 10 + total


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == "/move":
            move()
        elif self.path == "/audit":
            audit()
        self.send_response(200)
        self.end_headers()


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
