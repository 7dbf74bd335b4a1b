"""A model that has learnt nothing says texts of any length, the same for the same seed, sentence by sentence."""

from __future__ import annotations

import dataclasses
import json
import shutil
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.conftest import synthesize_clip
from tests.synthesis.small_models import DATA, write_small_bundle

from myxtts.errors import ConfigError, DataError, MyXTTSError, UsageError
from myxtts.features.definition import MelDefinition
from myxtts.features.griffin_lim import GriffinLim
from myxtts.models.bundle import read_bundle, write_bundle
from myxtts.models.layers import iterate_weights
from myxtts.models.vocoder import Vocoder, VocoderConfig
from myxtts.synthesis import engine
from myxtts.synthesis.loaded_bundle import choose_vocoder, load_bundle
from myxtts.synthesis.options import SpeechOptions
from myxtts.synthesis.synthesizer import Synthesizer
from myxtts.synthesis.voices import SpeakerEmbedding, average_embeddings

TEXT = "The quick brown fox. Jumps over the dog, the lazy one! And then again."
MEL = MelDefinition.from_config(DATA)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with a bundle, and recordings of three voices."""
    folder = tmp_path_factory.mktemp("synthesis")
    write_small_bundle(folder / "run" / "bundle")
    (folder / "run" / "config.yaml").touch()
    for number, seconds in enumerate((4.0, 5.0, 12.0)):
        soundfile.write(folder / f"{number}.wav", synthesize_clip(seconds, number), 22_050)
    return folder


@pytest.fixture(scope="module")
def speaker(place: Path) -> Synthesizer:
    return Synthesizer.load(place / "run")


@pytest.fixture(scope="module")
def voice(place: Path, speaker: Synthesizer) -> SpeakerEmbedding:
    return speaker.encode_voice(place / "0.wav")


def test_sound_is_whole_and_the_same_for_the_same_seed(speaker: Synthesizer, place: Path) -> None:
    wave = speaker.say(TEXT, voice=str(place / "0.wav"), language="en", seed=3)
    assert wave.rate == speaker.rate == DATA.sample_rate
    assert wave.samples.dtype == np.float32
    assert wave.duration_s > 1.0
    assert np.abs(wave.samples).max() <= 1.0
    again = speaker.say(TEXT, voice=str(place / "0.wav"), language="en", seed=3)
    np.testing.assert_array_equal(wave.samples, again.samples)
    other = speaker.say(TEXT, voice=str(place / "0.wav"), language="en", seed=4)
    assert len(other.samples) == len(wave.samples)
    assert np.abs(other.samples - wave.samples).max() > 0.01


def test_a_stream_gives_the_same_samples_as_the_whole(speaker: Synthesizer, voice: SpeakerEmbedding) -> None:
    parts = list(speaker.stream(TEXT, voice))
    assert len(parts) == 3
    np.testing.assert_array_equal(np.concatenate([part.samples for part in parts]), speaker.say(TEXT, voice).samples)


def test_a_sentence_is_out_before_the_next_is_computed(
    speaker: Synthesizer, voice: SpeakerEmbedding, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    decode = speaker.engine.decode

    def note_and_decode(*arguments: Any) -> Any:
        events.append("computed")
        return decode(*arguments)

    monkeypatch.setattr(speaker.engine, "decode", note_and_decode)
    for _ in speaker.stream(TEXT, voice):
        events.append("heard")
    assert events == ["computed", "heard"] * 3


def test_threads_that_share_a_synthesizer_take_turns_and_change_nothing(
    speaker: Synthesizer, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def say(seed: int) -> Any:
        return speaker.say(TEXT, place / "0.wav", seed=seed, num_steps=2).samples

    alone = [say(seed) for seed in range(3)]
    num_inside, most_inside = 0, 0
    for name in ("decode", "encode_reference"):
        original = getattr(speaker.engine, name)

        def enter(*arguments: Any, call: Callable[..., Any] = original) -> Any:
            nonlocal num_inside, most_inside
            num_inside += 1
            most_inside = max(most_inside, num_inside)
            time.sleep(0.01)
            found = call(*arguments)
            num_inside -= 1
            return found

        monkeypatch.setattr(speaker.engine, name, enter)
    # A stream that is left half consumed must not hold the others up.
    unfinished = speaker.stream(TEXT, place / "0.wav", num_steps=2)
    next(unfinished)
    with ThreadPoolExecutor(3) as pool:
        together = list(pool.map(say, range(3)))
    assert most_inside == 1
    for expected, found in zip(alone, together, strict=True):
        np.testing.assert_array_equal(found, expected)


def test_faster_is_shorter_and_slower_is_longer(speaker: Synthesizer, voice: SpeakerEmbedding) -> None:
    lengths = [speaker.say("The quick brown fox.", voice, speed=speed).duration_s for speed in (0.7, 1.0, 1.5)]
    assert lengths[0] > 1.2 * lengths[1] > 1.2 * 1.2 * lengths[2]


def test_pieces_begin_and_end_in_silence_with_pauses_between(speaker: Synthesizer, voice: SpeakerEmbedding) -> None:
    first, second, _ = speaker.stream(TEXT, voice)
    assert abs(first.samples[0]) < 1e-6
    assert abs(first.samples[-1]) < 1e-6
    assert not second.samples[: int(0.3 * speaker.rate)].any()
    assert second.samples[int(0.3 * speaker.rate) :].any()


def test_language_voice_steps_and_guidance_change_what_is_heard(
    speaker: Synthesizer, voice: SpeakerEmbedding, place: Path
) -> None:
    ids = next(speaker.loaded.plan("the quick brown fox", "en")).ids
    base = speaker.engine.make_mel(ids, "en", voice, SpeechOptions())
    other = speaker.encode_voice(place / "1.wav")
    changed = [
        speaker.engine.make_mel(ids, "fa", voice, SpeechOptions()),
        speaker.engine.make_mel(ids, "en", other, SpeechOptions()),
        speaker.engine.make_mel(ids, "en", voice, SpeechOptions(num_steps=2)),
        speaker.engine.make_mel(ids, "en", voice, SpeechOptions(guidance=2.0)),
        speaker.engine.make_mel(ids, "en", voice, SpeechOptions(noise_scale=1.0)),
    ]
    for mel in changed:
        assert mel.shape != base.shape or np.abs(mel - base).max() > 1e-3


def test_shapes_do_not_change_what_is_said(
    place: Path, speaker: Synthesizer, voice: SpeakerEmbedding, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Padding does not leak: whatever shapes the graphs have, the samples are the same."""
    text = "the quick brown fox"
    expected = speaker.say(text, voice, num_steps=2).samples
    monkeypatch.setattr(engine, "TOKEN_SHAPES", (67, 256))
    monkeypatch.setattr(engine, "FRAME_SHAPES", (1000,))
    found = Synthesizer(speaker.loaded).say(text, voice, num_steps=2).samples
    assert len(found) == len(expected)
    # Griffin-Lim makes much of little: compare what the model gave closely, and the sound as it is heard.
    np.testing.assert_allclose(found, expected, atol=1e-3)


def test_few_graphs_serve_many_lengths(speaker: Synthesizer, voice: SpeakerEmbedding) -> None:
    model = Synthesizer(speaker.loaded).engine
    for count in range(1, 25):
        ids = next(speaker.loaded.plan("quick fox " * count, "en")).ids
        model.make_mel(ids, "en", voice, SpeechOptions(seed=count, speed=1 + count / 10, noise_scale=count / 50))
    assert model.num_graphs <= 5


def test_a_cloned_voice_has_the_average_spectrum_of_its_recording(speaker: Synthesizer, place: Path) -> None:
    voice = speaker.encode_voice(place / "0.wav")
    assert voice.equalizer is not None
    assert np.abs(voice.equalizer).max() > 0.01
    ids = next(speaker.loaded.plan("the quick brown fox", "en")).ids
    plain = speaker.engine.make_mel(ids, "en", replace(voice, equalizer=None), SpeechOptions())
    drawn = speaker.engine.make_mel(ids, "en", voice, SpeechOptions())
    np.testing.assert_allclose(drawn - plain, np.broadcast_to(voice.equalizer, plain.shape), atol=1e-4)


def test_f0_is_moved_as_the_voice_says(speaker: Synthesizer, voice: SpeakerEmbedding) -> None:
    ids = next(speaker.loaded.plan("the quick brown fox", "en")).ids
    plain, moved = (
        speaker.engine.time_text(ids, "en", replace(voice, f0_change=change))
        for change in (None, np.array([1.5, 0.4], np.float32))
    )
    before, after = np.asarray(plain.states[-1]), np.asarray(moved.states[-1])
    np.testing.assert_allclose(after[..., 0], 1.5 * before[..., 0] + 0.4, rtol=1e-5)
    np.testing.assert_array_equal(after[..., 1], before[..., 1])
    assert moved.num_frames == plain.num_frames


def test_a_cloned_voice_is_corrected_only_towards_its_recording(
    speaker: Synthesizer, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = speaker.loaded.find_voice(place / "0.wav")
    encoded = average_embeddings([speaker.engine.encode_reference(mel_RM) for mel_RM in source.references])
    monkeypatch.setattr("myxtts.synthesis.synthesizer.correct_embedding", lambda voice, _heard: voice_away(voice))
    away = speaker.encode_voice(place / "0.wav")
    np.testing.assert_array_equal(away.vector, encoded.vector)


def voice_away(voice: SpeakerEmbedding) -> SpeakerEmbedding:
    """The opposite voice: the model's speech with it cannot be nearer to the recording."""
    return replace(voice, vector=-voice.vector)


def test_several_recordings_are_averaged(speaker: Synthesizer, place: Path) -> None:
    paths = [place / "0.wav", place / "1.wav"]
    single = average_embeddings([speaker.encode_voice(path) for path in paths])
    both = speaker.encode_voice(paths)
    np.testing.assert_allclose(both.vector, single.vector, atol=1e-6)
    np.testing.assert_allclose(both.latents, single.latents, atol=1e-6)


def test_a_long_recording_is_heard_in_crops(speaker: Synthesizer, place: Path) -> None:
    (mel_RM,) = speaker.loaded.find_voice(place / "2.wav").references
    crops = np.array_split(mel_RM, 2)
    expected = average_embeddings([speaker.engine.encode_reference(crop_RM) for crop_RM in crops])
    np.testing.assert_allclose(speaker.encode_voice(place / "2.wav").vector, expected.vector, atol=1e-6)


def test_a_saved_voice_speaks_by_name_and_outlives_the_bundle_of_a_run(
    speaker: Synthesizer, place: Path, voice: SpeakerEmbedding
) -> None:
    path = speaker.save_voice("مریم", place / "0.wav")
    assert path.parent == place / "run" / "voices"
    assert speaker.voices() == ["مریم"]
    expected = speaker.say("hello", voice).samples
    write_small_bundle(place / "run" / "bundle")
    again = Synthesizer.load(place / "run" / "bundle")
    np.testing.assert_array_equal(again.encode_voice("مریم").vector, voice.vector)
    np.testing.assert_array_equal(again.say("hello", "مریم").samples, expected)
    path.unlink()
    (place / "run" / "bundle" / "voices" / path.name).unlink()


def change_encoder(folder: Path) -> None:
    """Writes the bundle again as a later checkpoint would: with another reference encoder."""
    bundle = read_bundle(folder)
    weights = {
        name: array * np.float32(1.5) if name.startswith("reference_encoder.") else array
        for name, array in bundle.weights.items()
    }
    write_bundle(folder, dataclasses.replace(bundle, weights=weights))


def test_a_saved_voice_is_made_again_when_training_has_gone_on(speaker: Synthesizer, place: Path) -> None:
    path = speaker.save_voice("lena", [place / "0.wav", place / "1.wav"])
    before, earlier = read_bundle(place / "run" / "bundle"), speaker.encode_voice("lena")
    change_encoder(place / "run" / "bundle")
    told: list[str] = []
    later = Synthesizer.load(place / "run", warn=told.append)
    expected = later.encode_voice([place / "0.wav", place / "1.wav"])
    made = later.encode_voice("lena")
    assert [line for line in told if "'lena' was saved with an earlier checkpoint: it is computed again" in line]
    np.testing.assert_allclose(made.vector, expected.vector, atol=1e-6)
    assert np.abs(made.vector - earlier.vector).max() > 1e-4
    told.clear()
    np.testing.assert_array_equal(later.encode_voice("lena").vector, made.vector)
    assert told == []
    write_bundle(place / "run" / "bundle", before)
    path.unlink()


def test_a_copied_bundle_takes_saved_voices_along(speaker: Synthesizer, place: Path, tmp_path: Path) -> None:
    path = speaker.save_voice("lena", place / "0.wav")
    write_small_bundle(place / "run" / "bundle")
    shutil.copytree(place / "run" / "bundle", tmp_path / "copy")
    path.unlink()
    copied = load_bundle(tmp_path / "copy")
    assert copied.list_voices() == ["lena"]
    write_bundle(tmp_path / "copy", copied.bundle)
    found = load_bundle(tmp_path / "copy").find_voice("lena").embedding
    assert found is not None
    np.testing.assert_array_equal(found.vector, speaker.encode_voice(place / "0.wav").vector)
    (place / "run" / "bundle" / "voices" / "lena.safetensors").unlink()


def test_a_voice_cannot_take_the_name_of_a_speaker(speaker: Synthesizer, place: Path) -> None:
    with pytest.raises(UsageError, match="already has a speaker named 'anna'"):
        speaker.save_voice("anna", place / "0.wav")


def test_a_bundle_on_its_own_keeps_voices_inside(tmp_path: Path) -> None:
    write_small_bundle(tmp_path / "bundle")
    loaded = load_bundle(tmp_path / "bundle")
    assert loaded.voices.path == tmp_path / "bundle" / "voices"


def test_a_model_of_one_speaker_needs_no_voice(tmp_path: Path, voice: SpeakerEmbedding) -> None:
    noted = {"anna": {"vector": voice.vector.tolist(), "latents": voice.latents.tolist()}}
    write_small_bundle(tmp_path / "noted", speakers=("anna",), notes={"voices": noted})
    found = load_bundle(tmp_path / "noted").find_voice(None).embedding
    assert found is not None
    np.testing.assert_array_equal(found.vector, voice.vector)
    write_small_bundle(tmp_path / "bare", speakers=("anna",))
    told: list[str] = []
    unknown = load_bundle(tmp_path / "bare").find_voice(None, told.append).embedding
    assert unknown is not None
    assert not unknown.latents.any()
    assert len(told) == 1


def test_mistakes_are_raised_at_once_and_say_what_there_is(speaker: Synthesizer, voice: SpeakerEmbedding) -> None:
    with pytest.raises(UsageError, match="en, fa"):
        speaker.stream("Hallo.", voice, "de")
    with pytest.raises(UsageError, match="No voice is given"):
        speaker.stream("Hello.")
    with pytest.raises(DataError, match="nobody"):
        speaker.stream("Hello.", "nobody")
    with pytest.raises(DataError, match="nothing to say"):
        speaker.stream(" ", voice)
    with pytest.raises(DataError, match=r"20,001 characters"):
        speaker.stream("a" * 20_001, voice)
    for wrong in ({"speed": 0.0}, {"speed": float("nan")}, {"num_steps": 0}, {"seed": -1}, {"guidance": 99.0}):
        with pytest.raises(ConfigError, match=next(iter(wrong))):
            speaker.stream("Hello.", voice, **wrong)
    with pytest.raises(DataError, match="no trained model"):
        Synthesizer.load("nowhere")
    with pytest.raises(ConfigError, match="no neural vocoder"):
        Synthesizer(speaker.loaded, vocoder="neural")


def test_a_variant_of_a_language_is_found(speaker: Synthesizer) -> None:
    assert [speaker.loaded.find_language(code) for code in ("EN", "en-GB", "fa_IR", None)] == ["en", "en", "fa", "en"]


def test_a_language_is_understood_in_every_spelling(speaker: Synthesizer) -> None:
    spellings = ("English", "eng", "en_US.UTF-8", "Farsi", "persian", "فارسی")
    assert [speaker.loaded.find_language(name) for name in spellings] == ["en", "en", "en", "fa", "fa", "fa"]
    old = replace(speaker.loaded, spec=replace(speaker.loaded.spec, languages=("EN", "fa_IR")))
    assert [old.find_language(name) for name in ("en", "EN", "fa", "persian", None)] == [
        "EN",
        "EN",
        *["fa_IR"] * 2,
        "EN",
    ]
    with pytest.raises(UsageError, match="does not speak the language 'german'"):
        speaker.loaded.find_language("german")


def test_a_text_in_the_script_of_another_language_is_refused(speaker: Synthesizer) -> None:
    with pytest.raises(DataError, match=r"'en': the text is in Arabic script .* Latin script") as caught:
        speaker.loaded.plan("سلام دنیا، حال شما چطور است؟", "en")
    assert "--language fa" in caught.value.next_step
    with pytest.raises(DataError, match="Latin script") as caught:
        speaker.loaded.plan("Good morning, my friend.", "farsi")
    assert "--language en" in caught.value.next_step
    assert list(speaker.loaded.plan("Say سلام to him.", "en"))


def test_symbols_that_cannot_be_said_are_named_once(speaker: Synthesizer, voice: SpeakerEmbedding) -> None:
    with pytest.warns(UserWarning, match="漢") as caught:
        speaker.say("A 漢 b. A 字 b.", voice)
    assert len(caught) == 1


@settings(max_examples=25)
@given(st.text(min_size=1, max_size=60), st.sampled_from(["en", "fa"]))
def test_any_text_is_said_or_refused_in_words(
    speaker: Synthesizer, voice: SpeakerEmbedding, text: str, language: str
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        try:
            wave = speaker.say(text, voice, language)
        except MyXTTSError as error:
            assert error.next_step  # noqa: PT017
            return
    assert np.isfinite(wave.samples).all()
    assert np.abs(wave.samples).max() <= 1.0


def write_vocoder_bundle(folder: Path, **mel_changes: int) -> Path:
    sizes = {name: getattr(MEL, name) for name in ("n_mels", "n_fft", "hop_length", "win_length")}
    config = VocoderConfig(**sizes | mel_changes, width=8, num_blocks=1)
    weights = {name: np.asarray(weight.numpy()) for name, weight in iterate_weights(Vocoder(config, MEL.filterbank))}
    description = {"kind": "neural", "mel": MEL.to_json(), "config": config.to_json()}
    return write_small_bundle(folder, vocoder=description, vocoder_weights=weights)


def test_the_neural_vocoder_of_a_bundle_is_used_unless_another_is_asked_for(tmp_path: Path) -> None:
    loaded = load_bundle(write_vocoder_bundle(tmp_path / "bundle"))
    assert [choose_vocoder(loaded, kind)[1] for kind in ("auto", "neural", "griffin_lim")] == [
        "neural",
        "neural",
        "griffin_lim",
    ]
    mel_TM = np.random.default_rng(0).normal(-5, 1, (90, MEL.n_mels)).astype(np.float32)
    model = Synthesizer(loaded).engine
    neural, plain = model.make_sound(mel_TM, 0), GriffinLim(MEL)(mel_TM)
    assert neural.shape == plain.shape
    assert np.abs(neural - plain).max() > 1e-3
    np.testing.assert_allclose(model.make_sound(mel_TM[:30], 0)[: 10 * 128], neural[: 10 * 128], atol=1e-5)


def test_a_vocoder_for_other_spectrograms_is_refused(tmp_path: Path) -> None:
    loaded = load_bundle(write_vocoder_bundle(tmp_path / "bundle", n_mels=30))
    with pytest.raises(ConfigError, match="n_mels"):
        Synthesizer(loaded)


DAMAGE: list[tuple[str, str, object]] = [
    ("mel", "n_fft", 10**9),
    ("mel", "n_mels", 30),
    ("mel", "hop_length", -1),
    ("mel", "log_floor", "x"),
    ("mel", "surprise", 1),
    ("audio", "sample_rate", 8000),
    ("audio", "loudness", "deafening"),
    ("model_spec", "languages", []),
    ("model_spec", "factor_sizes", [3]),
    ("notes", "voices", {"anna": 3}),
]


@pytest.mark.parametrize(("part", "name", "value"), DAMAGE)
def test_a_bundle_whose_parts_do_not_fit_is_refused(
    place: Path, tmp_path: Path, part: str, name: str, value: object
) -> None:
    shutil.copytree(place / "run" / "bundle", tmp_path, dirs_exist_ok=True)
    fields = json.loads((tmp_path / "bundle.json").read_bytes())
    fields[part][name] = value
    if part == "mel":
        fields["vocoder"]["mel"][name] = value
    (tmp_path / "bundle.json").write_text(json.dumps(fields), encoding="utf-8")
    with pytest.raises(MyXTTSError):
        load_bundle(tmp_path)


def test_a_model_that_would_speak_for_ever_is_stopped(tmp_path: Path, voice: SpeakerEmbedding) -> None:
    loaded = load_bundle(write_small_bundle(tmp_path / "bundle"))
    loaded.bundle.weights["length_factor"][...] = 1e5
    with pytest.raises(DataError, match="would take"):
        Synthesizer(loaded).say("hello", voice)
