"""`python -m documentation`: writes generated pages and pictures, then the site; `--check` only says what is stale."""

from __future__ import annotations

import sys
from pathlib import Path

from documentation.generated import find_stale, write_generated
from documentation.site import ROOT, BrokenLinkError, Site

SITE_FOLDER = ROOT / "build" / "site"


def main(arguments: list[str]) -> int:
    if arguments == ["--check"]:
        stale = find_stale(ROOT)
        sys.stdout.writelines(f"{path} is stale: run make docs\n" for path in stale)
        return 1 if stale else 0
    if len(arguments) > 1:
        sys.stderr.write("usage: python -m documentation [--check | FOLDER]\n")
        return 2
    sys.stdout.writelines(f"Written anew: {path}\n" for path in write_generated(ROOT))
    folder = Path(arguments[0]) if arguments else SITE_FOLDER
    try:
        pages = Site.find(ROOT).write(folder)
    except BrokenLinkError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(f"{len(pages)} pages. Open {folder / 'index.html'}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
