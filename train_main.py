"""The same as `myxtts train`, under a name that people know."""

import sys

from myxtts.cli.main import run

if __name__ == "__main__":
    run(["train", *sys.argv[1:]])
