"""The same as `myxtts diagnose`, under a name that people know."""

import sys

from myxtts.cli.main import run

if __name__ == "__main__":
    run(["diagnose", *sys.argv[1:]])
