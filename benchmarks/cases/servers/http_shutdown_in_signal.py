"""A ThreadingHTTPServer that is shut down from the signal handler of its own thread.

https://github.com/mrexodia/ida-pro-mcp/pull/488 (774 processes that SIGTERM did not end)

Truth: SIGTERM runs stop in the main thread, inside serve_forever. shutdown waits until
serve_forever returns, and serve_forever cannot go on before the signal handler returns.

Words: signal handler|SIGTERM|same thread|itself
Run: {python} http_shutdown_in_signal.py {port}
Ask: /health signal:TERM
Attach: root
"""

import signal
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")


def main() -> None:
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)

    def stop(number: int, frame: object) -> None:
        print("stopping", flush=True)
        server.shutdown()  # HANG

    signal.signal(signal.SIGTERM, stop)
    server.serve_forever()  # HANG
    server.server_close()


if __name__ == "__main__":
    main()
