"""`make bench`: runs the suites, writes benchmarks/results and fails where a stated limit is missed."""

from __future__ import annotations

import sys
from collections.abc import Callable

from benchmarks.card.suite import measure_card
from benchmarks.corpus import measure_corpus
from benchmarks.doors import measure_doors
from benchmarks.features import measure_features
from benchmarks.feed import measure_feed
from benchmarks.harness import Measurement, write_results
from benchmarks.loading import measure_loading
from benchmarks.monitor import measure_monitor
from benchmarks.store import measure_store
from benchmarks.text import measure_text
from benchmarks.voice import measure_voice

SUITES: dict[str, Callable[[], list[Measurement]]] = {
    "corpus": measure_corpus,
    "text": measure_text,
    "features": measure_features,
    "store": measure_store,
    "feed": measure_feed,
    "loading": measure_loading,
    "voice": measure_voice,
    "monitor": measure_monitor,
    "card": measure_card,
    "doors": measure_doors,
}


def main(names: list[str]) -> int:
    unknown = sorted(set(names) - set(SUITES))
    if unknown:
        sys.stderr.write(f"There is no suite {', '.join(unknown)}; there are {', '.join(SUITES)}.\n")
        return 2
    num_missed = 0
    for name in names or SUITES:
        measurements = SUITES[name]()
        for measurement in measurements:
            sys.stdout.write(f"{measurement.describe()}\n")
            num_missed += not measurement.holds
        sys.stdout.write(f"       written to {write_results(name, measurements)}\n")
    return 1 if num_missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
