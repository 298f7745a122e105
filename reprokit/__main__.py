"""Run the command line with ``python -m reprokit``."""

import os
import sys

if __name__ == "__main__":
    if sys.path[0] == os.getcwd():
        del sys.path[0]  # -m put it there, and a file json.py in it is not the standard library's
    from reprokit.cli.main import main

    main()
