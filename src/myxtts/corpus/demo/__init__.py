"""A corpus made of nothing but this package: many voices, English and Persian, the same bytes for the same seed."""

from __future__ import annotations

from myxtts.corpus.demo.corpus import DemoSummary, make_demo_corpus

__all__ = ["DemoSummary", "make_demo_corpus"]
