"""Makes the base model that comes with the package.

python -m base corpus DATA --out build/base       compose the corpus of its training
python -m base speak OUT --left-out MANIFEST      speak the sentences that it is judged by
python -m base score OUT --out scores.json        score them, after base/judges.py has judged them
python -m base record OUT --name NAME --run RUN   keep the scores of a fine-tuned voice in benchmarks/results
python -m base pack RUN --scores scores.json      put the best weights of a run into src/myxtts/base_model
python -m base graphs                             make the graphs again that speak it without TensorFlow
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import get_args

from base.corpus import Part, compose_corpus
from base.graphs import add_graphs
from base.pack import DEFAULT_VOICES, pack
from base.results import record
from base.score import score
from base.speak import LANGUAGE, speak
from myxtts.models.base_model import BASE_FOLDER


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m base", description="Make the base model of the package.")
    commands = parser.add_subparsers(required=True)
    corpus = commands.add_parser("corpus", help="compose the corpus")
    corpus.add_argument("data", type=Path, help="folder of the recordings")
    corpus.add_argument("--out", type=Path, required=True, help="folder for PART.jsonl and the recordings")
    corpus.add_argument(
        "--part", choices=get_args(Part), default="first", help="which corpus, or the speakers that are left out"
    )
    corpus.set_defaults(run=compose_corpus)
    speaking = commands.add_parser("speak", help="speak the sentences that the model is judged by")
    speaking.add_argument("out", type=Path, help="folder for the WAV files")
    speaking.add_argument("--model", type=Path, help="run or bundle; the packaged model if left out")
    speaking.add_argument("--voices", nargs="+", default=[DEFAULT_VOICES[LANGUAGE]], help="voices of the model")
    speaking.add_argument("--left-out", type=Path, help="manifest of speakers that training never heard, to be cloned")
    speaking.add_argument("--recordings", type=Path, nargs="+", default=[], help="recordings of the first voice")
    speaking.add_argument("--num-sentences", type=int, default=152)
    speaking.set_defaults(run=speak)
    scoring = commands.add_parser("score", help="score what base/judges.py heard")
    scoring.add_argument("folder", type=Path, help="folder of the WAV files")
    scoring.add_argument("--out", type=Path, required=True, help="JSON file to write")
    scoring.set_defaults(run=score)
    recording = commands.add_parser("record", help="keep the scores of a fine-tuned voice in benchmarks/results")
    recording.add_argument("folder", type=Path, help="folder of the WAV files, after base/judges.py has judged them")
    recording.add_argument("--name", required=True, help="name of the entry; an earlier one of this name is replaced")
    recording.add_argument("--run", dest="run_folder", type=Path, help="run that trained the voice, if one did")
    recording.add_argument("--voice", help="set of sentences that is meant, if there are several")
    recording.set_defaults(run=record)
    packing = commands.add_parser("pack", help="pack the best weights of a run")
    packing.add_argument("run_folder", metavar="RUN", type=Path, help="folder of the run, or of a packed model")
    packing.add_argument("--vocoder", type=Path, help="run of the vocoder that is packed with it")
    packing.add_argument("--scores", type=Path, help="JSON object of measured numbers; its field judge names the judge")
    packing.add_argument(
        "--earlier", type=Path, action="append", default=[], help="run that it started from, whose minutes count too"
    )
    packing.add_argument("--out", type=Path, default=BASE_FOLDER, help="folder to write")
    packing.set_defaults(run=pack)
    graphs = commands.add_parser("graphs", help="make the graphs of a packed model again")
    graphs.add_argument("folder", type=Path, nargs="?", default=BASE_FOLDER, help="folder of the packed model")
    graphs.set_defaults(run=add_graphs)
    options = vars(parser.parse_args())
    options.pop("run")(**options)


if __name__ == "__main__":
    main()
