"""What a compile worker is given to do; in a module of its own, because a worker imports it by
name.
"""

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
