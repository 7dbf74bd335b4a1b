"""Demo corpus: English and Persian sentences synthesised by espeak-ng voices; the same seed gives the same bytes."""

from __future__ import annotations

from myxtts.corpus.demo.corpus import DemoSummary, make_demo_corpus

__all__ = ["DemoSummary", "make_demo_corpus"]
