"""Trains from Python with a callback of one's own: python examples/train_from_code.py CORPUS STORE [STEPS]

CORPUS may be raw recordings: features that are missing are made first. Prints the loss every ten steps.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from myxtts import Trainer, XTTSConfig


class LossPrinter:
    """Called after every step; `record` is there whenever numbers were logged."""

    def on_step(self, loop: Any, record: Mapping[str, Any] | None) -> None:
        if record is not None:
            print(f"step {loop.step}: loss {record['loss']:.3f}, AU {record['au']:.0%}")

    def on_checkpoint(self, loop: Any) -> None:
        print(f"saving step {loop.step}")

    def on_end(self, loop: Any, result: Any) -> None:
        print(f"the model is in {result.bundle_path}")


def main(corpus: str, store: str, steps: str = "200", *settings: str) -> None:
    config = XTTSConfig.load(
        flags=dict(setting.split("=", 1) for setting in settings),
        train_data=corpus,
        cache_dir=store,
        model_size="tiny",
        steps=int(steps),
        log_steps=10,
        run_name="from-code",
    )
    Trainer(config, resume=True, make_observers=lambda: [LossPrinter()]).fit()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Train from Python with a callback of one's own.")
    parser.add_argument("corpus", help="raw recordings or a prepared corpus")
    parser.add_argument("store", help="folder of the features, made if it is missing")
    parser.add_argument("steps", nargs="?", default="200", help="steps to train")
    parser.add_argument("settings", nargs="*", metavar="KEY=VALUE", help="other settings")
    given = parser.parse_args()
    main(given.corpus, given.store, given.steps, *given.settings)
