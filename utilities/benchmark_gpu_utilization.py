"""The same as `myxtts bench`, under the name that people know."""

import sys

from myxtts.cli.main import run

if __name__ == "__main__":
    run(["bench", *sys.argv[1:]])
