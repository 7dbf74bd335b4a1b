"""Cuts the IPA of a clause into its words, by aligning it with the IPA of each word alone.

espeak-ng phonemises clauses and may join words: "of the" becomes one.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

_JOINT_COST = 0.5
"""Of a space that only one side has; another letter costs 1. Words are joined more often than their letters change."""
_STRESS = str.maketrans("", "", "ˈˌ")


def cut_at_words(ipa: str, alone: Sequence[str]) -> list[str]:
    """Cuts the IPA of a clause into one part for each word, given the IPA of the words alone.

    The cuts are where an alignment of least edit distance of both strings places the spaces between the words; stress
    does not count, because it depends on the clause.
    """
    wanted = " ".join(word.translate(_STRESS).replace(" ", "") or "_" for word in alone)
    ends = [index for index, sign in enumerate(wanted) if sign == " "]
    places = _align(wanted, ipa)
    cuts = [0, *(places[end] for end in ends), len(ipa)]
    return [ipa[start:stop].strip() for start, stop in pairwise(cuts)]


def _align(wanted: str, found: str) -> list[int]:
    """Returns for each sign of `wanted` the index in `found` that it is aligned with, never decreasing."""
    costs = [[0.0] * (len(found) + 1) for _ in range(len(wanted) + 1)]
    for row in range(len(wanted) + 1):
        for column in range(len(found) + 1):
            if row or column:
                costs[row][column] = min(cost for cost, _, _ in _list_moves(costs, wanted, found, row, column))
    places = [0] * len(wanted)
    row, column = len(wanted), len(found)
    while row:
        _, previous_row, previous_column = min(_list_moves(costs, wanted, found, row, column), key=lambda move: move[0])
        if previous_row < row:
            places[previous_row] = previous_column
        row, column = previous_row, previous_column
    return places


def _list_moves(
    costs: list[list[float]], wanted: str, found: str, row: int, column: int
) -> list[tuple[float, int, int]]:
    """The ways to a cell of the table of edit distances: its cost by each, and the cell before."""
    moves = []
    if row and column:
        is_same = wanted[row - 1] == found[column - 1]
        has_space = " " in (wanted[row - 1], found[column - 1])
        change = 0.0 if is_same else 2.0 if has_space else 1.0
        moves.append((costs[row - 1][column - 1] + change, row - 1, column - 1))
    if row:
        moves.append((costs[row - 1][column] + (_JOINT_COST if wanted[row - 1] == " " else 1.0), row - 1, column))
    if column:
        sign = found[column - 1]
        cost = 0.0 if sign in "ˈˌ" else _JOINT_COST if sign == " " else 1.0
        moves.append((costs[row][column - 1] + cost, row, column - 1))
    return moves
