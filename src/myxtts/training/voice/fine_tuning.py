"""Fine-tuning from a bundle (`--init-from`): copies weights that fit, and embedding rows by what they stand for.

The new corpus may have other symbols, languages and speakers in another order. Rows of the embedding tables are
therefore matched by name; rows of new names keep their random initialisation. Log-mels are normalised as for the
bundle, because its weights were trained on that scale. Settings that the user did not choose are those of the bundle.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from myxtts.config.catalogue import list_settings
from myxtts.config.choices import list_presets
from myxtts.config.schema import ModelConfig, XTTSConfig
from myxtts.config.section import DEFAULT_ORIGIN
from myxtts.config.values import show_value
from myxtts.errors import ConfigError
from myxtts.models.bundle import Bundle
from myxtts.models.spec import ModelSpec
from myxtts.models.vocoder_bundle import VocoderBundle
from myxtts.storage.json_file import parse_json_object
from myxtts.storage.tensor_file import Array
from myxtts.store.reader import FeatureStore
from myxtts.text.frontend import FrontEnd
from myxtts.text.inventory import unpack_factors
from myxtts.text.tokenizer import CharacterTokenizer, PhonemeTokenizer, Tokenizer, load_tokenizer
from myxtts.training.voice.data import TrainingData, describe_sound

_SYMBOLS = "text_encoder.embeddings.0"
_MODIFIERS = "text_encoder.embeddings.1"
_LANGUAGES = "text_encoder.languages"
_SPEAKERS = "speaker_classifier.centres"
_ROWS = {_SYMBOLS: "Symbols", _LANGUAGES: "Languages", _SPEAKERS: "Speakers"}
"""Weights whose rows are matched by name, and what their rows stand for; modifiers are parts of symbols."""
_END_OF_BLOCK = re.compile(r"(?:text_encoder|decoder)\.blocks\.\d+\.(?:feed_forward|attention)\.back\.(?:kernel|bias)")
"""Last weights of a residual block. Zeros make a new block the identity: a deeper model begins as the bundle's."""
_FREE = {
    *("model.text_layers", "model.decoder_layers", "model.reference_layers"),
    *("model.dropout", "model.guidance_dropout", "model.phone_classifier"),
}
"""Settings of the model in which a bundle may differ from its size: the weights that both have are of one shape."""
LEAST_SHARE = 0.2
"""Share of the parameters that must come from the bundle: with less, training starts over in all but name."""
_MAX_NAMES = 8
_MAX_READ = 20_000
"""Utterances whose tokens are read to see which symbols they have: a second of reading."""


def choose_scale(config: XTTSConfig, origin: Bundle) -> dict[str, Any]:
    """Mel normalisation of the bundle. Raises ConfigError if it was trained on other spectrograms."""
    mel, _ = describe_sound(config)
    different = [
        f"{name} {origin.mel.get(name)} against {value}" for name, value in mel.items() if origin.mel.get(name) != value
    ]
    if different:
        raise ConfigError(
            f"The model of --init-from was trained with other audio settings: {', '.join(different)}.",
            next_step="Use the values of that model, or train without --init-from.",
        )
    spec = ModelSpec.from_json(origin.model_spec)
    return {"mel_mean": spec.mel_mean, "mel_deviation": spec.mel_deviation}


def follow_bundle(config: XTTSConfig, origin: Bundle | VocoderBundle) -> tuple[XTTSConfig, list[str]]:
    """Settings with the values of the bundle where the user named none, and sentences about it.

    These are the spectrograms, and for a voice its front end and the shape of the model. A model size does not change
    that shape. Raises ConfigError if it is another size: hardly a weight of the bundle would fit.
    """
    named = {key for key, source in config.origins.items() if not source.startswith((DEFAULT_ORIGIN, "preset "))}
    wanted = {f"data.{name}": value for name, value in origin.mel.items()}
    lines = []
    if isinstance(origin, Bundle):
        wanted |= {f"data.{name}": value for name, value in origin.audio.items()}
        wanted["data.text_frontend"] = _load_tokenizer(origin).kind
        size, shape = _find_size(origin.model_config), _name_shape(origin.model_config)
        wanted |= shape
        if "model_size" in named:
            lines = _keep_shape(config, size, {key: value for key, value in shape.items() if key not in named})
        else:
            config = config.model_copy(update={"model_size": size}) if size else config
            lines = [f"Model size: as in --init-from{f' (model size {size})' if size else ''}."]
    present = {setting.key: setting.value for setting in list_settings(config)}
    different = {key: value for key, value in wanted.items() if present.get(key, value) != value}
    asked = [
        f"{key} {show_value(present[key])} instead of {show_value(different[key])}"
        for key in sorted(different.keys() & named)
    ]
    if asked:
        lines.append(f"Different from --init-from, as asked: {', '.join(asked)}.")
    return config.model_copy(update={key: value for key, value in different.items() if key not in named}), lines


def _keep_shape(config: XTTSConfig, size: str | None, shape: dict[str, Any]) -> list[str]:
    """Sentences on the settings in which the bundle differs from the model size that the user named.

    Raises ConfigError if the size is not that of the bundle. A bundle may be deeper than its size says.
    """
    preset = _name_shape(config.model)
    different = [key for key, value in shape.items() if preset[key] != value]
    unfit = [key for key in different if key not in _FREE]
    if unfit:
        advice = f"use --model-size {size}" if size else "leave out the model size"
        raise ConfigError(
            f"The model of --init-from does not have model_size {config.model_size} "
            f"({config.origins['model_size']}), so its weights do not fit: "
            f"{', '.join(f'{key} is {show_value(shape[key])}, not {show_value(preset[key])}' for key in unfit)}.",
            next_step=f"To fine-tune that model, {advice}. To train a new model of this size, leave out --init-from.",
        )
    if not different:
        return [f"Model size: as in --init-from (model size {size})."]
    kept = ", ".join(
        f"{key} {show_value(shape[key])} (model_size {config.model_size} has {show_value(preset[key])})"
        for key in different
    )
    return [f"Kept as in --init-from: {kept}. To change it, set it by name: --set {different[0]}=VALUE."]


def _find_size(model: ModelConfig) -> str | None:
    """Model size whose weights have these shapes, with any number of layers; None where there is none."""
    shape = _name_shape(model)
    for size in list_presets("model_size"):
        preset = _name_shape(XTTSConfig(model_size=size).model)
        if all(preset[key] == value for key, value in shape.items() if key not in _FREE):
            return size
    return None


def _name_shape(model: ModelConfig) -> dict[str, Any]:
    return {f"model.{name}": value for name, value in model.model_dump().items()}


def take_weights(model: Any, shape: ModelConfig, origin: Bundle, frontend: FrontEnd) -> list[str]:
    """Copies weights that fit into a fresh model of this shape; returns sentences about it.

    Raises ConfigError if less than LEAST_SHARE of the parameters can be taken over.
    """
    tables = _name_rows(model.spec, ModelSpec.from_json(origin.model_spec), origin, frontend)
    named, fresh, num_taken = model.named_weights(), list[str](), 0.0
    for name, weight in named.items():
        array = origin.weights.get(name)
        if array is not None and name in tables:
            values, num_known = _join_rows(weight.numpy(), array, *tables[name])
            weight.assign(values)
            num_taken += values.size * num_known / len(values)
            fresh += [] if num_known else [name]
        elif array is not None and array.shape == tuple(weight.shape):
            weight.assign(array)
            num_taken += array.size
        else:
            fresh.append(name)
            if array is None and _END_OF_BLOCK.fullmatch(name):
                weight.assign(np.zeros(weight.shape, np.float32))
    share = num_taken / sum(math.prod(weight.shape) for weight in named.values())
    if share < LEAST_SHARE:
        raise ConfigError(
            f"Only {share:.1%} of the parameters can be initialised from --init-from, less than "
            f"{LEAST_SHARE:.0%}: {_describe_shapes(shape, origin.model_config) or 'it has other weights'}.",
            next_step="Leave out the model settings to use those of --init-from, or train without --init-from.",
        )
    counts = f"{share:.1%} of the parameters, {len(named) - len(fresh)} of {len(named)} weights"
    lines = [f"Initialised from --init-from: {counts}."]
    lines += [_describe_rows(_ROWS[name], *tables[name]) for name in _ROWS if name in tables]
    if fresh:
        more = f" and {len(fresh) - 5} more" if len(fresh) > 5 else ""
        lines.append(f"Trained from scratch, because they are new or have another shape: {', '.join(fresh[:5])}{more}.")
    dropped = [name for name in origin.weights if name not in named and name not in tables]
    if dropped:
        lines.append(f"Dropped from --init-from, because this model has no such part: {_list_names(dropped)}.")
    return lines


def list_new_names(origin: Bundle, data: TrainingData) -> list[str]:
    """Languages and symbols of the data that the bundle does not know, as `the language fr` or `the symbols ñ, œ`."""
    old, frontend, before = ModelSpec.from_json(origin.model_spec), data.frontend, _load_tokenizer(origin)
    languages = set(data.utterances.languages) - set(old.languages)
    lines = [f"the {'language' if len(languages) == 1 else 'languages'} {_list_names(languages)}"] if languages else []
    if before.kind != frontend.kind:
        return [*lines, f"{frontend.kind}, being trained on {before.kind}"]
    tables = _list_symbols(frontend.tokenizer)
    pairs = zip(_list_used(data, tables), _list_symbols(before), strict=True)
    symbols = {symbol for used, known in pairs for symbol in used - set(known)}
    return [*lines, f"the symbols {_list_names(symbols)}"] if symbols else lines


def _list_used(data: TrainingData, tables: Sequence[Sequence[str]]) -> list[set[str]]:
    """Symbols, and modifiers, that the texts really have: an inventory of phonemes has more, in newer versions too.

    Of texts that are not stored, or of very many, all that the tokenizer has.
    """
    rows = data.order.rows
    if not isinstance(data.utterances, FeatureStore) or len(rows) > _MAX_READ:
        return [set(table) for table in tables]
    tokens = np.concatenate([data.utterances.read_part(int(row), "tokens") for row in rows])
    factors = unpack_factors(np.unique(tokens), data.frontend.factor_sizes)
    return [{table[number] for number in np.unique(factors[:, place])} for place, table in enumerate(tables)]


def _describe_shapes(shape: ModelConfig, old: ModelConfig) -> str:
    pairs = zip(shape.model_dump().items(), old.model_dump().values(), strict=True)
    return ", ".join(f"model.{name} is {value}, there {before}" for (name, value), before in pairs if value != before)


def _describe_rows(what: str, names: Sequence[str], old_names: Sequence[str]) -> str:
    """Sentence on the symbols, languages or speakers that are known, new and dropped."""
    known, new, dropped = set(names) & set(old_names), set(names) - set(old_names), set(old_names) - set(names)
    parts = [f"{len(known):,} known"]
    parts += [
        f"{len(some):,} {word} ({_list_names(some)})" for word, some in (("new", new), ("dropped", dropped)) if some
    ]
    return f"{what}: {', '.join(parts)}."


def _list_names(names: Iterable[str]) -> str:
    shown = sorted(names)
    return ", ".join(shown[:_MAX_NAMES]) + (" …" if len(shown) > _MAX_NAMES else "")


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
    before = _load_tokenizer(origin)
    if before.kind == frontend.kind:
        pairs = zip(_list_symbols(frontend.tokenizer), _list_symbols(before), strict=True)
        names |= dict(zip((_SYMBOLS, _MODIFIERS), pairs, strict=False))
    return names


def _load_tokenizer(origin: Bundle) -> Tokenizer:
    return load_tokenizer(parse_json_object(origin.frontend).get("tokenizer"))


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
