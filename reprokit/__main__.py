"""Run the command line with ``python -m reprokit``."""

from reprokit.cli.main import main

if __name__ == "__main__":
    main()
