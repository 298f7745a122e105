"""A worker that takes jobs from a broker: ``queue_worker.py PORT``."""

from __future__ import annotations

import socket
import sys

from jobs import Jobs

if __name__ == "__main__":
    jobs = Jobs()
    with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as broker:
        lines = broker.makefile("rw")
        lines.write("ready\n")
        lines.flush()
        for line in lines:
            jobs.run(line.strip())
            lines.write("done\n")
            lines.flush()
