"""The same as `myxtts monitor`, under a name that people know."""

import sys

from myxtts.cli.main import run

if __name__ == "__main__":
    run(["monitor", *sys.argv[1:]])
