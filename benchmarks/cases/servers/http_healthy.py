"""A healthy ThreadingHTTPServer with a worker thread that answers through queues.

Truth: it is idle, or it serves requests that take some seconds.

Run: {python} http_healthy.py {port}
Busy: /slow /fast
Attach: port
"""

import queue
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

jobs: queue.Queue[tuple[str, queue.Queue[bytes]]] = queue.Queue()


def work() -> None:
    while True:
        path, answers = jobs.get()
        time.sleep(3 if path == "/slow" else 0.01)
        answers.put(b"done")


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        answers: queue.Queue[bytes] = queue.Queue()
        jobs.put((self.path, answers))
        body = answers.get()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


if __name__ == "__main__":
    threading.Thread(target=work, daemon=True).start()
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
