"""A server with one thread for the model. ``/lost`` gets no answer: the model never sees it."""

from __future__ import annotations

import http.server
import queue
import threading

from jobs import Jobs, announce

QUEUE: queue.Queue[tuple[str, queue.Queue[bytes]]] = queue.Queue()


class Handler(http.server.BaseHTTPRequestHandler):
    """Puts a request into the queue and waits for its answer."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        name, answer = self.path.strip("/"), queue.Queue()
        if name != "health":
            if name != "lost":
                QUEUE.put((name, answer))
            answer.get()
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *words: object) -> None:
        pass


def run_model(jobs: Jobs) -> None:
    while True:
        name, answer = QUEUE.get()
        jobs.run(name)
        answer.put(b"")


def serve(run: object, *words: object) -> None:
    """Serve requests, and run ``run`` in a thread."""
    threading.Thread(target=run, args=words, daemon=True).start()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    announce(server.socket)
    server.serve_forever()


if __name__ == "__main__":
    serve(run_model, Jobs())
