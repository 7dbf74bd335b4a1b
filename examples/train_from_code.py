"""Trains from Python with an observer of one's own: python examples/train_from_code.py CORPUS STORE [STEPS]

Needs a prepared corpus and its features (myxtts prepare, myxtts precompute). Prints the loss every ten steps.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from myxtts import Trainer, XTTSConfig


class LossPrinter:
    """Training tells an observer of every step, and gives `record` whenever numbers were written down."""

    def on_step(self, view: Any, record: Mapping[str, Any] | None) -> None:
        if record is not None:
            print(f"step {view.step}: loss {record['loss']:.3f}, AU {record['au']:.0%}")

    def on_checkpoint(self, view: Any) -> None:
        print(f"saving step {view.step}")

    def on_end(self, view: Any, result: Any) -> None:
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
    main(*sys.argv[1:])
