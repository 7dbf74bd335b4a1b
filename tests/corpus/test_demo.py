"""The demo corpus: the same bytes for the same settings, clips that can be trained on, and a folder that is safe."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import wave
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from myxtts.corpus.demo import DemoSummary, make_demo_corpus
from myxtts.corpus.demo.sentences import DEMO_LANGUAGES, Grammar, compose_sentence, load_grammar
from myxtts.corpus.demo.speak import (
    MAX_DURATION_S,
    MIN_DURATION_S,
    choose_speakers,
    compose_sentences,
    render_clip,
)
from myxtts.errors import BusyError, DataError, UsageError
from myxtts.storage.atomic import lock_directory
from myxtts.text.espeak import is_espeak_available
from myxtts.text.frontend import FrontEnd

pytestmark = pytest.mark.skipif(not is_espeak_available(), reason="needs the extra espeak")

ENGLISH_SOUNDS = "p b t d k ɡ f v θ ð s z ʃ ʒ h m n ŋ l ɹ j w tʃ dʒ iː ɪ eɪ ɛ æ ɑː ɔː oʊ ʊ uː ʌ ɜː ə ɚ aɪ aʊ ɔɪ".split()
PERSIAN_SOUNDS = "p b t d k ɡ q ʔ f v s z ʃ ʒ x h m n l r j tʃ dʒ a ɑ e o i uː".split()


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> DemoSummary:
    return make_demo_corpus(tmp_path_factory.mktemp("demo") / "corpus", minutes=4, num_speakers=4)


def read_rows(folder: Path) -> list[list[str]]:
    lines = (folder / "metadata.csv").read_text(encoding="utf-8").splitlines()
    assert lines[0] == "id|audio|text|speaker|language"
    return [line.split("|") for line in lines[1:]]


def digest_folder(folder: Path) -> str:
    content = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        content.update(f"{path.relative_to(folder)}\0".encode())
        content.update(path.read_bytes())
    return content.hexdigest()


class TestDeterminism:
    def test_number_of_processes_does_not_matter(self, tmp_path: Path) -> None:
        for num_processes in (1, 2):
            make_demo_corpus(tmp_path / str(num_processes), minutes=0.5, num_speakers=4, num_processes=num_processes)
        assert digest_folder(tmp_path / "1") == digest_folder(tmp_path / "2")

    def test_fresh_processes_make_the_same_clips_in_any_order(self) -> None:
        program = (
            "import hashlib, json, sys; from itertools import islice\n"
            "from myxtts.corpus.demo.speak import compose_sentences, render_clip\n"
            "from myxtts.corpus.demo.speak import choose_speakers\n"
            "jobs = [(speaker, number, text) for speaker in choose_speakers(('en', 'fa'), 4, 7)\n"
            "        for number, text in enumerate(islice(compose_sentences(speaker, 7), 3))]\n"
            "digests = {}\n"
            "for speaker, number, text in (jobs if sys.argv[1] == 'forward' else jobs[::-1]):\n"
            "    samples = render_clip(speaker, number, text, 7).samples\n"
            "    digests[f'{speaker.id} {number}'] = hashlib.sha256(samples.tobytes()).hexdigest()\n"
            "print(json.dumps(digests, sort_keys=True))"
        )
        answers = [
            subprocess.run([sys.executable, "-c", program, order], capture_output=True, text=True, check=True).stdout
            for order in ("forward", "backward")
        ]
        assert answers[0] == answers[1]
        assert len(set(json.loads(answers[0]).values())) == 12

    def test_seed_changes_sentences_and_sound(self) -> None:
        first, second = (choose_speakers(("en",), 1, seed)[0] for seed in (0, 1))
        texts = next(compose_sentences(first, 0)), next(compose_sentences(second, 1))
        assert texts[0] != texts[1]
        assert not np.array_equal(
            render_clip(first, 0, texts[0], 0).samples[:2000], render_clip(first, 0, texts[0], 1).samples[:2000]
        )

    def test_more_speakers_leave_the_first_ones_as_they_were(self) -> None:
        assert choose_speakers(("en", "fa"), 8, 3)[:4] == choose_speakers(("en", "fa"), 4, 3)

    def test_speakers_are_all_different(self) -> None:
        speakers = choose_speakers(("en", "fa"), 60, 0)
        assert len({speaker.id for speaker in speakers}) == 60
        assert len({(speaker.language, speaker.variant, speaker.pitch // 8) for speaker in speakers}) > 50


class TestClips:
    def test_every_row_has_its_clip_and_every_clip_its_row(self, demo: DemoSummary) -> None:
        rows = read_rows(demo.folder)
        assert len(rows) == demo.num_clips
        assert {row[1] for row in rows} == {f"wavs/{path.name}" for path in (demo.folder / "wavs").iterdir()}
        assert {row[1] for row in rows} == {f"wavs/{row[0]}.wav" for row in rows}
        assert sorted({(row[3], row[4]) for row in rows}) == [
            ("en01", "en"),
            ("en02", "en"),
            ("fa01", "fa"),
            ("fa02", "fa"),
        ]

    def test_clips_are_speech_of_useful_length_and_level(self, demo: DemoSummary) -> None:
        durations_s = []
        for row in read_rows(demo.folder):
            with wave.open(str(demo.folder / row[1])) as wav:
                assert (wav.getframerate(), wav.getnchannels(), wav.getsampwidth()) == (22050, 1, 2)
                samples = np.frombuffer(wav.readframes(wav.getnframes()), "<i2") / 32768.0
            durations_s.append(len(samples) / 22050)
            level = float(np.sqrt(np.mean(samples**2)))
            noise = float(np.sqrt(np.mean(samples[:1500] ** 2)))
            assert 0.03 < level < 0.15
            assert 0.00005 < noise < level / 10
            assert np.max(np.abs(samples)) < 0.96
        assert min(durations_s) >= MIN_DURATION_S
        assert max(durations_s) <= MAX_DURATION_S
        assert np.std(durations_s) > 1.0
        assert sum(durations_s) == pytest.approx(demo.duration_s, abs=0.1)
        assert demo.duration_s == pytest.approx(240, rel=0.1)

    def test_no_speaker_says_a_sentence_twice(self, demo: DemoSummary) -> None:
        texts = defaultdict(list)
        for row in read_rows(demo.folder):
            texts[row[3]].append(row[2])
        assert all(len(set(said)) == len(said) for said in texts.values())

    @pytest.mark.parametrize(("language", "sounds"), [("en", ENGLISH_SOUNDS), ("fa", PERSIAN_SOUNDS)])
    def test_every_word_can_be_read_and_every_sound_occurs(self, language: str, sounds: list[str]) -> None:
        grammar = load_grammar(language)
        generator = np.random.default_rng(0)
        texts = [compose_sentence(Grammar([template], grammar.words), generator) for template in grammar.templates]
        texts += [compose_sentence(grammar, generator) for _ in range(1500)]
        frontend = FrontEnd.create("phonemes")
        encodings = frontend.encode_batch(texts, [language] * len(texts))
        assert [encoding.unknown for encoding in encodings if encoding.unknown] == []
        spoken = " ".join(frontend.tokenizer.decode(encoding.ids) for encoding in encodings)
        assert [sound for sound in sounds if sound not in spoken.replace("ˈ", "").replace("ˌ", "")] == []

    @pytest.mark.parametrize(
        ("language", "digest"),
        [
            ("en", "3d706f110a27900793a885c5e255a2064a177f2e78dc4b5adefba3494f8b9584"),
            ("fa", "fae9266e513cb28072cc048d46918fd68937986783790aec60439b9d80004088"),
        ],
    )
    def test_the_same_seed_gives_the_same_sentences_in_every_version(self, language: str, digest: str) -> None:
        generator = np.random.default_rng(7)
        texts = "\n".join(compose_sentence(load_grammar(language), generator) for _ in range(2000))
        assert hashlib.sha256(texts.encode()).hexdigest() == digest
        assert language in DEMO_LANGUAGES

    @pytest.mark.parametrize("language", ["en", "fa"])
    def test_sentences_are_many_and_well_formed(self, language: str) -> None:
        generator = np.random.default_rng(1)
        texts = [compose_sentence(load_grammar(language), generator) for _ in range(3000)]
        assert len(set(texts)) > 2500
        assert not any(sign in text for text in texts for sign in "{}|\n")
        assert {text[-1] for text in texts} >= {".", "?" if language == "en" else "؟"}
        assert any(character.isdigit() for text in texts for character in text)
        assert not any("  " in text or text != text.strip() for text in texts)

    def test_persian_is_written_with_persian_letters_and_half_spaces(self) -> None:
        grammar = load_grammar("fa")
        written = "".join([*grammar.templates, *(word for words in grammar.words.values() for word in words)])
        assert not set(written) & set("يكى٠١٢٣٤٥٦?;,\u0640")
        assert "\u200c" in written
        assert " می " not in written
        assert " ها" not in written


class TestFolder:
    def test_same_settings_are_kept(self, demo: DemoSummary) -> None:
        before = digest_folder(demo.folder)
        again = make_demo_corpus(demo.folder, minutes=4, num_speakers=4)
        assert again.was_kept
        assert (again.num_clips, again.duration_s) == (demo.num_clips, demo.duration_s)
        assert digest_folder(demo.folder) == before
        assert not demo.was_kept

    def test_other_settings_replace_a_demo(self, tmp_path: Path) -> None:
        make_demo_corpus(tmp_path / "demo", minutes=0.2, num_speakers=2)
        other = make_demo_corpus(tmp_path / "demo", minutes=0.2, num_speakers=2, seed=1)
        assert not other.was_kept
        make_demo_corpus(tmp_path / "fresh", minutes=0.2, num_speakers=2, seed=1)
        assert digest_folder(tmp_path / "demo") == digest_folder(tmp_path / "fresh")
        assert sorted(path.name for path in tmp_path.iterdir()) == ["demo", "fresh"]

    def test_demo_with_a_missing_clip_is_made_again(self, tmp_path: Path) -> None:
        made = make_demo_corpus(tmp_path / "demo", minutes=0.2, num_speakers=2)
        next((tmp_path / "demo" / "wavs").iterdir()).unlink()
        again = make_demo_corpus(tmp_path / "demo", minutes=0.2, num_speakers=2)
        assert not again.was_kept
        assert len(list((tmp_path / "demo" / "wavs").iterdir())) == made.num_clips

    @pytest.mark.parametrize("name", ["notes.txt", "metadata.csv"])
    def test_folder_of_somebody_else_is_not_touched(self, tmp_path: Path, name: str) -> None:
        (tmp_path / name).write_text("mine")
        with pytest.raises(DataError, match="nothing in it is touched"):
            make_demo_corpus(tmp_path, minutes=0.2, num_speakers=2)
        assert (tmp_path / name).read_text() == "mine"
        assert [path.name for path in tmp_path.iterdir()] == [name]

    def test_own_files_beside_a_demo_are_not_deleted(self, tmp_path: Path) -> None:
        make_demo_corpus(tmp_path / "demo", minutes=0.2, num_speakers=2)
        (tmp_path / "demo" / "notes.txt").write_text("mine")
        with pytest.raises(DataError, match=r"notes\.txt"):
            make_demo_corpus(tmp_path / "demo", minutes=0.2, num_speakers=2, seed=5)

    def test_empty_folder_is_used(self, tmp_path: Path) -> None:
        (tmp_path / "demo").mkdir()
        assert make_demo_corpus(tmp_path / "demo", minutes=0.2, num_speakers=2).num_clips >= 2

    def test_killed_call_leaves_nothing_and_the_next_one_sweeps(self, tmp_path: Path) -> None:
        program = (
            "import os, signal, sys; from pathlib import Path; from myxtts.corpus.demo import make_demo_corpus\n"
            "def kill(done, total):\n"
            "    if done == 3: os.kill(os.getpid(), signal.SIGKILL)\n"
            "make_demo_corpus(Path(sys.argv[1]), minutes=0.5, num_speakers=2, progress=kill)"
        )
        killed = subprocess.run([sys.executable, "-c", program, str(tmp_path / "demo")])
        assert killed.returncode == -9
        (leftover,) = tmp_path.iterdir()
        assert leftover.name.startswith(".demo")
        assert len(list((leftover / "wavs").iterdir())) == 3
        make_demo_corpus(tmp_path / "demo", minutes=0.5, num_speakers=2)
        make_demo_corpus(tmp_path / "fresh", minutes=0.5, num_speakers=2)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["demo", "fresh"]
        assert digest_folder(tmp_path / "demo") == digest_folder(tmp_path / "fresh")

    def test_two_calls_at_once_do_not_mix(self, tmp_path: Path) -> None:
        def try_again(_done: int, _total: int) -> None:
            with pytest.raises(BusyError):
                make_demo_corpus(tmp_path / "demo", minutes=0.2, num_speakers=2)

        make_demo_corpus(tmp_path / "demo", minutes=0.2, num_speakers=2, progress=try_again)

    def test_leftovers_are_swept_even_if_the_corpus_is_kept(self, tmp_path: Path) -> None:
        make_demo_corpus(tmp_path / "demo", minutes=0.2, num_speakers=2)
        with lock_directory(tmp_path / ".demo.demo.myxtts-tmp", "as a killed call leaves it"):
            pass
        assert make_demo_corpus(tmp_path / "demo", minutes=0.2, num_speakers=2).was_kept
        assert [path.name for path in tmp_path.iterdir()] == ["demo"]

    def test_progress_counts_every_clip(self, tmp_path: Path) -> None:
        seen: list[tuple[int, int]] = []
        made = make_demo_corpus(
            tmp_path / "demo", minutes=0.5, num_speakers=2, num_processes=2, progress=lambda *step: seen.append(step)
        )
        assert [done for done, _ in seen] == list(range(1, made.num_clips + 1))
        assert all(done <= total for done, total in seen)


class TestSettings:
    @pytest.mark.parametrize(
        "settings",
        [
            {"minutes": 0},
            {"minutes": -1},
            {"minutes": float("nan")},
            {"minutes": 1e9},
            {"languages": ("en", "xx")},
            {"languages": ()},
            {"languages": ("en", "en")},
            {"num_speakers": 1},
            {"num_speakers": 100_000},
            {"seed": -1},
        ],
    )
    def test_what_cannot_be_made_is_refused_before_anything_is_written(
        self, tmp_path: Path, settings: dict[str, object]
    ) -> None:
        with pytest.raises(UsageError):
            make_demo_corpus(tmp_path / "demo", **settings)  # type: ignore[arg-type]
        assert list(tmp_path.iterdir()) == []

    def test_one_language_is_enough(self, tmp_path: Path) -> None:
        make_demo_corpus(tmp_path / "demo", minutes=0.2, num_speakers=2, languages=("fa",))
        assert {row[4] for row in read_rows(tmp_path / "demo")} == {"fa"}
