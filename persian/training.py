"""Trains the tagger: an averaged structured perceptron, in integers, so that the result is the same on any machine.

A sentence need not be tagged fully: of the paths that agree with what is known (tag, ezafe or nothing of each word) the
one that the present weights like best is taken as right.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from myxtts.text.persian.tagger import HAS_EZAFE, HASH_BITS, TAGS, Tagger, list_features, restrict_scores, search_path
from persian.treebank import TaggedWord

_IMPOSSIBLE = -(2**40)
_MARGIN = 10
"""By which a path must win for each word whose ezafe the other path has wrong."""
_LARGEST_WEIGHT = 127
_NUM_ORDERS = 3
"""Trainings in other orders that are averaged: one alone depends by a percent on its order."""
_SCALE = 8
_BIAS = 12
"""Added to the score of ezafe, in eighths: sources that were left out of training lose more ezafes than they gain."""


@dataclass(frozen=True, slots=True)
class Example:
    """Features [words, features], the tags that are right [words, tags], and whether ezafe of a word is known."""

    features: NDArray[np.int64]
    right: NDArray[np.bool_]
    is_known: NDArray[np.bool_]


def make_example(words: Sequence[TaggedWord]) -> Example:
    """Prepares a sentence; quotation marks must be left out, as the front end does."""
    right = np.array([[_fits(word, tag) for tag in TAGS] for word in words])
    for index, word in enumerate(words):
        if not right[index].any():
            # A part of speech that has no ezafe, such as an adverb, where the sentence has one.
            right[index] = [tag[0] in "NA" and tag.endswith("+") == bool(word.ezafe) for tag in TAGS]
    texts = [word.word for word in words]
    scores = np.where(right, 0, -1)
    restrict_scores(texts, scores)
    is_possible = scores >= -1
    has_allowed = (right & is_possible).any(axis=1, keepdims=True)
    right &= is_possible | ~has_allowed
    is_known = ~((right & HAS_EZAFE).any(axis=1) & (right & ~HAS_EZAFE).any(axis=1))
    return Example(list_features(texts), right, is_known)


def _fits(word: TaggedWord, tag: str) -> bool:
    if not word.word[0].isalnum():
        return tag == "U"
    return (not word.tag or tag[0] == word.tag) and (word.ezafe is None or tag.endswith("+") == word.ezafe)


class Perceptron:
    """Weights and their sums over all steps, from which the average follows."""

    def __init__(self) -> None:
        self.weights = np.zeros((2**HASH_BITS, len(TAGS)), np.int64)
        self.transitions = np.zeros((len(TAGS) + 1, len(TAGS)), np.int64)
        self._weight_sums = np.zeros_like(self.weights)
        self._transition_sums = np.zeros_like(self.transitions)
        self._step = 1

    def learn(self, example: Example) -> int:
        """Moves the weights towards the right path; returns the number of wrong tags."""
        scores = self.weights[example.features].sum(axis=1)
        right = search_path(np.where(example.right, scores, _IMPOSSIBLE), self.transitions)
        is_wrong = (HAS_EZAFE[right][:, None] != HAS_EZAFE) & example.is_known[:, None]
        found = search_path(scores + _MARGIN * is_wrong, self.transitions)
        start = len(TAGS)
        for index, (tag, other) in enumerate(zip(right, found, strict=True)):
            before, before_other = (right[index - 1], found[index - 1]) if index else (start, start)
            if tag != other:
                self._add(example.features[index], tag, 1)
                self._add(example.features[index], other, -1)
            if (tag, before) != (other, before_other):
                self._add_transition(before, tag, 1)
                self._add_transition(before_other, other, -1)
        self._step += 1
        return sum(tag != other for tag, other in zip(right, found, strict=True))

    def _add(self, features: NDArray[np.int64], tag: int, amount: int) -> None:
        np.add.at(self.weights[:, tag], features, amount)
        np.add.at(self._weight_sums[:, tag], features, amount * self._step)

    def _add_transition(self, before: int, tag: int, amount: int) -> None:
        self.transitions[before, tag] += amount
        self._transition_sums[before, tag] += amount * self._step

    def average(self, scale: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Returns the averages of weights and transitions over all steps, times `scale` and rounded down."""
        weights = (scale * (self.weights * self._step - self._weight_sums)) // self._step
        return weights, (scale * (self.transitions * self._step - self._transition_sums)) // self._step


def train(examples: Sequence[Example], num_epochs: int, report: Callable[[str], None]) -> Tagger:
    """Trains in several orders, which depend on nothing but the number of examples, and averages the results."""
    models = [_train_once(examples, num_epochs, seed, report) for seed in range(_NUM_ORDERS)]
    averages = [model.average(_SCALE) for model in models]
    weights = sum((pair[0] for pair in averages), np.int64(0)) // _NUM_ORDERS
    transitions = sum((pair[1] for pair in averages), np.int64(0)) // _NUM_ORDERS
    transitions = transitions + _BIAS * HAS_EZAFE
    return Tagger(np.clip(weights, -_LARGEST_WEIGHT, _LARGEST_WEIGHT).astype(np.int8), transitions)


def _train_once(examples: Sequence[Example], num_epochs: int, seed: int, report: Callable[[str], None]) -> Perceptron:
    model = Perceptron()
    order = list(range(len(examples)))
    generator = random.Random(seed)  # noqa: S311 - an order that can be repeated
    for epoch in range(num_epochs):
        generator.shuffle(order)
        num_wrong = sum(model.learn(examples[index]) for index in order)
        report(f"order {seed + 1}, epoch {epoch + 1} of {num_epochs}: {num_wrong:,} wrong tags")
    return model
