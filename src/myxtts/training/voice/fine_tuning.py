"""Fine-tuning from a bundle (`--init-from`): copies weights that fit, and embedding rows by what they stand for.

The new corpus may have other symbols, languages and speakers in another order. Rows of the embedding tables are
therefore matched by name; rows of new names keep their random initialisation. Log-mels are normalised as for the
bundle, because its weights were trained on that scale.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from myxtts.config.schema import XTTSConfig
from myxtts.errors import ConfigError
from myxtts.models.bundle import Bundle
from myxtts.models.spec import ModelSpec
from myxtts.storage.json_file import parse_json_object
from myxtts.storage.tensor_file import Array
from myxtts.text.frontend import FrontEnd
from myxtts.text.tokenizer import CharacterTokenizer, PhonemeTokenizer, Tokenizer, load_tokenizer
from myxtts.training.voice.data import describe_sound

_SYMBOLS = "text_encoder.embeddings.0"
_MODIFIERS = "text_encoder.embeddings.1"
_LANGUAGES = "text_encoder.languages"
_SPEAKERS = "speaker_classifier.centres"
"""Weights whose rows are matched by name; each row is one symbol, modifier, language or speaker."""


def choose_scale(config: XTTSConfig, origin: Bundle) -> dict[str, Any]:
    """Mel normalisation of the bundle. Raises ConfigError if it was trained on other spectrograms."""
    mel, _ = describe_sound(config)
    different = [
        f"{name} {origin.mel.get(name)} against {value}" for name, value in mel.items() if origin.mel.get(name) != value
    ]
    if different:
        raise ConfigError(
            f"The bundle was trained on other spectrograms than these: {', '.join(different)}.",
            next_step="Give these settings the values of the bundle, or train without --init-from.",
        )
    spec = ModelSpec.from_json(origin.model_spec)
    return {"mel_mean": spec.mel_mean, "mel_deviation": spec.mel_deviation}


def take_weights(model: Any, origin: Bundle, frontend: FrontEnd) -> list[str]:
    """Copies weights that fit into a fresh model; returns sentences about it. Raises ConfigError if none fits."""
    tables = _name_rows(model.spec, ModelSpec.from_json(origin.model_spec), origin, frontend)
    taken, grown, fresh = 0, list[str](), list[str]()
    for name, weight in model.named_weights().items():
        array = origin.weights.get(name)
        if array is not None and name in tables:
            values, num_known = _join_rows(weight.numpy(), array, *tables[name])
            weight.assign(values)
            taken += num_known > 0
            if num_known < len(values):
                grown.append(f"{name} ({num_known} of {len(values)} rows)")
        elif array is not None and array.shape == tuple(weight.shape):
            weight.assign(array)
            taken += 1
        else:
            fresh.append(name)
    if taken == 0:
        raise ConfigError(
            "No weight of the bundle fits this model.",
            next_step="Choose the --model-size that the bundle was trained with, or train without --init-from.",
        )
    return _describe(taken, grown, fresh)


def _name_rows(
    spec: ModelSpec, old: ModelSpec, origin: Bundle, frontend: FrontEnd
) -> dict[str, tuple[Sequence[str], Sequence[str]]]:
    """Names of the rows, now and in the bundle, of each weight that is matched by name.

    Symbols are matched only between tokenizers of one kind (phonemes or characters).
    """
    names: dict[str, tuple[Sequence[str], Sequence[str]]] = {
        _LANGUAGES: (spec.languages, old.languages),
        _SPEAKERS: (spec.speakers, old.speakers),
    }
    before = load_tokenizer(parse_json_object(origin.frontend).get("tokenizer"))
    if before.kind == frontend.kind:
        pairs = zip(_list_symbols(frontend.tokenizer), _list_symbols(before), strict=True)
        names |= dict(zip((_SYMBOLS, _MODIFIERS), pairs, strict=False))
    return names


def _list_symbols(tokenizer: Tokenizer) -> list[tuple[str, ...]]:
    """Row names of the symbol embedding, and for phonemes of the modifier embedding; both may grow."""
    if isinstance(tokenizer, PhonemeTokenizer):
        return [tokenizer.inventory.symbols, tokenizer.inventory.modifiers]
    assert isinstance(tokenizer, CharacterTokenizer), tokenizer
    num_specials = tokenizer.factor_sizes[0] - len(tokenizer.characters)
    return [(*(f"<{number}>" for number in range(num_specials)), *tokenizer.characters)]


def _join_rows(present: Array, old: Array, names: Sequence[str], old_names: Sequence[str]) -> tuple[Array, int]:
    """Rows of the bundle where the name is known, else the initial ones; and the number of known names."""
    if old.shape[1:] != present.shape[1:] or len(old_names) != len(old) or len(names) != len(present):
        return present, 0
    old_rows = {name: row for row, name in enumerate(old_names)}
    joined = np.array(present)
    known = [row for row, name in enumerate(names) if name in old_rows]
    for row in known:
        joined[row] = old[old_rows[names[row]]]
    return joined, len(known)


def _describe(num_taken: int, grown: Sequence[str], fresh: Sequence[str]) -> list[str]:
    lines = [f"Taken from the bundle: {num_taken} weights."]
    if grown:
        lines.append(f"Taken for the names that are known: {', '.join(grown)}.")
    if fresh:
        more = f" and {len(fresh) - 5} more" if len(fresh) > 5 else ""
        lines.append(f"Not in the bundle or of another shape, so trained from scratch: {', '.join(fresh[:5])}{more}.")
    return lines
