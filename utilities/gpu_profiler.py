"""The same as `myxtts profile`, under the name that people know."""

import sys

from myxtts.cli.main import run

if __name__ == "__main__":
    run(["profile", *sys.argv[1:]])
