"""`python -m myxtts` is the same as `myxtts`."""

from myxtts.cli.main import run

if __name__ == "__main__":
    run()
