"""The jobs of a compile worker, in a separate module because a worker imports it by name."""

import os
import signal
import subprocess
import time


def spin():
    while True:
        pass


def sleep():
    time.sleep(1000)


def stop():
    os.kill(os.getpid(), signal.SIGSTOP)


def child():
    subprocess.run(["sleep", "1000"])
