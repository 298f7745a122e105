"""Run a module as ``python -m`` does, but import nothing from the working directory.

``python start_module.py MODULE WORDS``. With ``-m`` and ``-c`` the working directory is first on
the path, so that a file json.py there is imported in place of the standard library's. The option
``-P`` is newer than Python 3.10.
"""

import sys

if __name__ == "__main__":
    if not getattr(sys.flags, "safe_path", False):
        del sys.path[0]  # the folder of this file
    import runpy

    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
