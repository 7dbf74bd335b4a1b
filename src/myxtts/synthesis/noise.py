"""Normal noise from a seed, the same numbers as `tf.random.stateless_normal` gives, without TensorFlow.

The generator is Philox 4x32 with ten rounds (Salmon et al., 2011), its key and counter derived from the seed as
TensorFlow does it; Box-Muller turns pairs of its numbers into normal ones. The same seed therefore gives the same
speech with TensorFlow and without.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from myxtts.types import Floats

_Words = NDArray[np.uint64]
"""Words of 32 bits, in 64 so that products do not overflow."""
_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
_NUM_ROUNDS = 10
_SEED_KEY = (0x3EC8F720, 0x02461E29)
"""Key of the one block that scrambles a seed, a constant of TensorFlow."""
_LOW = np.uint64(0xFFFFFFFF)
_MANTISSA = np.uint64(0x7FFFFF)
_LEAST_UNIFORM = np.float32(1e-7)


def draw_normal(seed: tuple[int, int], shape: tuple[int, ...]) -> Floats:
    """Returns float32 numbers of this shape; both parts of the seed are from 0 to 2**63 - 1."""
    num_values = math.prod(shape)
    num_blocks = -(-num_values // 4)
    key, (high_2, high_3) = _scramble(seed)
    numbers = np.arange(num_blocks, dtype=np.uint64)
    counters = np.stack(
        [numbers & _LOW, numbers >> np.uint64(32), np.full_like(numbers, high_2), np.full_like(numbers, high_3)]
    )
    words_4C = _run_rounds(counters, key)
    uniform_4C = (words_4C & _MANTISSA).astype(np.float32) * np.float32(2**-23)
    normal_4C = np.concatenate([_transform(*uniform_4C[:2]), _transform(*uniform_4C[2:])])
    return np.ascontiguousarray(normal_4C.T).reshape(-1)[:num_values].reshape(shape)


def _scramble(seed: tuple[int, int]) -> tuple[tuple[int, int], tuple[int, int]]:
    """Returns the key, and the upper half of the counter."""
    words = [part >> shift & 0xFFFFFFFF for part in seed for shift in (0, 32)]
    mixed = _run_rounds(np.array(words, np.uint64)[:, None], _SEED_KEY)[:, 0].tolist()
    return (mixed[0], mixed[1]), (mixed[2], mixed[3])


def _run_rounds(counters_4C: _Words, key: tuple[int, int]) -> _Words:
    """Encrypts each counter of four words."""
    a, b, c, d = counters_4C
    for number in range(_NUM_ROUNDS):
        first, second = (
            np.uint64((part + number * step) & 0xFFFFFFFF) for part, step in zip(key, _KEY_STEPS, strict=True)
        )
        product_a, product_c = a * _MULTIPLIERS[0], c * _MULTIPLIERS[1]
        shift = np.uint64(32)
        a, b, c, d = product_c >> shift ^ b ^ first, product_c & _LOW, product_a >> shift ^ d ^ second, product_a & _LOW
    return np.stack([a, b, c, d])


def _transform(first: Floats, second: Floats) -> Floats:
    """Box-Muller: two normal numbers [2, C] from two uniform ones."""
    radius = np.sqrt(np.float32(-2) * np.log(np.maximum(first, _LEAST_UNIFORM)))
    angle = np.float32(2 * np.pi) * second
    return np.stack([np.sin(angle) * radius, np.cos(angle) * radius])
