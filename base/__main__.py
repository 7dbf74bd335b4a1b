"""Makes the base model that comes with the package.

python -m base corpus DATA --out build/base       compose the corpus of its training
python -m base pack RUN --scores scores.json      put the best weights of a run into src/myxtts/base_model
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import get_args

from base.corpus import Part, compose_corpus
from base.pack import pack
from myxtts.models.base_model import BASE_FOLDER


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m base", description="Make the base model of the package.")
    commands = parser.add_subparsers(dest="command", required=True)
    corpus = commands.add_parser("corpus", help="compose the corpus")
    corpus.add_argument("data", type=Path, help="folder of the recordings")
    corpus.add_argument("--out", type=Path, required=True, help="folder for PART.jsonl and the recordings")
    corpus.add_argument("--part", choices=get_args(Part), default="first", help="part of the training")
    packing = commands.add_parser("pack", help="pack the best weights of a run")
    packing.add_argument("run", type=Path, help="folder of the run")
    packing.add_argument("--scores", type=Path, help="JSON object of measured numbers; its field judge names the judge")
    packing.add_argument("--vocoder", type=Path, help="run of the vocoder that is packed with it")
    packing.add_argument(
        "--earlier", type=Path, action="append", default=[], help="run that it started from, whose minutes count too"
    )
    packing.add_argument("--out", type=Path, default=BASE_FOLDER, help="folder to write")
    options = parser.parse_args()
    if options.command == "corpus":
        compose_corpus(options.data, options.out, options.part)
    else:
        pack(options.run, options.out, vocoder=options.vocoder, scores=options.scores, earlier=options.earlier)


if __name__ == "__main__":
    main()
