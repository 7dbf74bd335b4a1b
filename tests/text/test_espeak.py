"""The binding to espeak-ng: voices, IPA, sound, and what happens when it misbehaves."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

from myxtts.errors import ConfigError, DataError, MissingExtraError
from myxtts.text import espeak, espeak_worker
from myxtts.text.espeak import (
    clean_ipa,
    is_espeak_available,
    list_voices,
    read_espeak_version,
    restore_tones,
    synthesize,
    text_to_ipa,
)
from myxtts.text.espeak_worker import EspeakWorker
from myxtts.text.phonemes import find_voice

pytestmark = pytest.mark.skipif(not is_espeak_available(), reason="needs the extra espeak")

CRASHES_ESPEAK = "s'" * 220


def digest(text: str, voice: str, variant: str) -> str:
    return hashlib.sha256(synthesize(text, voice, variant=variant).samples.tobytes()).hexdigest()


def test_text_becomes_ipa_clause_by_clause() -> None:
    assert text_to_ipa("Hello world, how are you?", "en-us") == ["həlˈoʊ wˈɜːld", "hˈaʊ ɑːɹ juː"]


def test_text_with_nul_and_lone_surrogates_does_not_end_early() -> None:
    assert "wˈɜːld" in " ".join(text_to_ipa("hello\0world \ud800", "en-us"))


@pytest.mark.parametrize(
    ("language", "voice"),
    [
        ("en", "en-us"),
        ("EN", "en-us"),
        ("en-au", "en-us"),
        ("en_GB", "en"),
        ("fa", "fa"),
        ("fa-IR", "fa"),
        ("zh-cn", "cmn"),
        ("zh_TW", "cmn"),
        ("zh-hk", "yue"),
        ("pt-br", "pt-br"),
        ("pt-AO", "pt"),
        ("fr-CA", "fr"),
        ("no", "nb"),
        ("persian", "fa"),
        ("klingon", "piqd"),
        ("eng", "en-us"),
        ("English (UK)", "en"),
    ],
)
def test_language_code_finds_its_voice(language: str, voice: str) -> None:
    assert find_voice(language) == voice


def test_every_voice_name_can_be_selected() -> None:
    names = {
        find_voice(code)
        for voice in list_voices()
        for code, _ in voice.languages
        if voice.name not in ("fo", "xex", "kaa")
    }
    assert len(names) > 120
    assert all(text_to_ipa("a", name) for name in names)


@pytest.mark.parametrize(("language", "near"), [("persain", "fa"), ("germn", "de"), ("Englsh", "en"), ("engl", "en")])
def test_unknown_language_names_near_ones(language: str, near: str) -> None:
    with pytest.raises(DataError, match=repr(language)) as caught:
        find_voice(language)
    assert near in caught.value.next_step.replace("?", "").split()


def test_voice_without_dictionary_is_not_offered() -> None:
    with pytest.raises(DataError):
        find_voice("fo")


def test_unknown_voice_is_refused_and_leaves_the_others_usable() -> None:
    with pytest.raises(ConfigError, match="no-such-voice"):
        text_to_ipa("hello", "no-such-voice")
    assert text_to_ipa("hello", "en-us") == ["həlˈoʊ"]


def test_same_clip_is_the_same_whatever_was_spoken_before() -> None:
    alone = digest("The quick brown fox.", "en-us", "f2")
    digest("سلام، حال شما چطور است؟", "fa", "m3")
    text_to_ipa("something else entirely", "fr")
    digest("Another one.", "en-us", "m1")
    assert digest("The quick brown fox.", "en-us", "f2") == alone


def test_clip_is_the_same_in_another_process() -> None:
    program = (
        "import hashlib; from myxtts.text.espeak import synthesize;"
        "synthesize('Something first.', 'en-us', variant='m3');"
        "print(hashlib.sha256(synthesize('Good day.', 'en-us', variant='f4').samples.tobytes()).hexdigest())"
    )
    other = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert other.stdout.strip() == digest("Good day.", "en-us", "f4")


def test_sound_follows_its_parameters() -> None:
    plain = synthesize("This is a sentence of some length.", "en-us")
    slow = synthesize("This is a sentence of some length.", "en-us", rate_wpm=100)
    assert plain.rate == 22050
    assert 1.0 < plain.duration_s < 4.0
    assert slow.duration_s > 1.4 * plain.duration_s


def test_phonemes_are_the_same_after_speaking() -> None:
    before = text_to_ipa("It was a bright cold day", "en-us")
    synthesize("سلام", "fa")
    assert text_to_ipa("It was a bright cold day", "en-us") == before


def test_threads_share_the_library_safely() -> None:
    texts = [(f"Number {number} is here", "en-us") for number in range(40)] + [("سلام دنیا", "fa")] * 40
    expected = [text_to_ipa(*pair) for pair in texts]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda pair: text_to_ipa(*pair), texts)) == expected


def _ipa_and_digest_in_child(queue: multiprocessing.Queue[tuple[list[str], str]]) -> None:
    queue.put((text_to_ipa("Hello there", "en-us"), digest("Hello there", "en-us", "f2")))


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning")
def test_forked_process_reloads_the_library() -> None:
    expected = text_to_ipa("Hello there", "en-us"), digest("Hello there", "en-us", "f2")
    context = multiprocessing.get_context("fork")
    queue: multiprocessing.Queue[tuple[list[str], str]] = context.Queue()
    with espeak._lock:  # as if another thread were inside the library at the moment of the fork
        child = context.Process(target=_ipa_and_digest_in_child, args=(queue,))
        child.start()
    assert queue.get(timeout=120) == expected
    child.join()


def test_missing_extra_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(espeak, "_library", None)
    monkeypatch.setattr(espeak, "is_espeak_available", lambda: False)
    with pytest.raises(MissingExtraError) as caught:
        read_espeak_version()
    assert "pip install 'myxtts[espeak]'" in caught.value.next_step
    assert "text_frontend: characters" in caught.value.next_step


def test_availability_is_told_without_loading_anything() -> None:
    program = (
        "import sys; from myxtts.text.espeak import is_espeak_available; assert is_espeak_available();"
        "assert 'espeakng_loader' not in sys.modules; assert 'libespeak' not in open('/proc/self/maps').read()"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_the_four_tones_of_mandarin_stay_apart() -> None:
    assert text_to_ipa("妈麻马骂", "cmn") == ["mˈɑ⁵⁵ mˈɑ³⁵ mˈɑ²¹⁴ mˈɑ⁵¹"]


def test_tones_are_kept_where_mnemonics_are_not_aligned() -> None:
    assert restore_tones("m|ˈɑ5|n", "m|'A51", "cmn") == "mˈɑ⁵n"
    assert restore_tones("t|ˈaɜ", "", "vi") == "tˈa³"


@pytest.mark.parametrize(
    ("printed", "voice", "ipa"),
    [
        ("jˈek (en)həlˈəʊ kəmpjˈuːtə(fa) xˈuːb", "fa", "jˈek həlˈəʊ kəmpjˈuːtə xˈuːb"),
        ("q1ˈalb", "fa", "qˈalb"),
        ("ts.hˈi.⁵⁵", "cmn", "tʂʰˈɨ⁵⁵"),
        ("(en)hˈuː(cmn) thˈa⁵⁵", "cmn", "hˈuː tʰˈa⁵⁵"),
        ('tʃʲˈu"dʌ', "ru", "tʃʲˈʉdʌ"),
        ("p-ˈo", "ko", "p͈ˈo"),
        ("ʒə- nə- sˈɛ", "fr", "ʒə nə sˈɛ"),
        ("lˈʌr.kˌaː", "hi", "lˈʌɽkˌaː"),
        ("k`ˈat^a^", "am", "kʼˈatʲa"),
        ("ʲˈelaː bˈ", "ta", "jˈelaː b"),
    ],
)
def test_leftovers_of_espeaks_own_spelling_become_ipa(printed: str, voice: str, ipa: str) -> None:
    assert clean_ipa(printed, voice) == ipa


class TestWorker:
    def test_says_what_the_library_says(self) -> None:
        worker = EspeakWorker()
        texts = ["Hello world, how are you?", "", "Good morning"]
        assert worker.texts_to_ipa(texts, "en-us") == [text_to_ipa(text, "en-us") for text in texts]
        worker.close()

    def test_crash_costs_only_the_text_that_caused_it(self) -> None:
        worker = EspeakWorker()
        answers = worker.texts_to_ipa(["before", CRASHES_ESPEAK, "after"], "en-us")
        assert answers == [text_to_ipa("before", "en-us"), None, text_to_ipa("after", "en-us")]
        assert worker.num_crashes == 2
        worker.close()

    def test_worker_that_was_killed_from_outside_loses_nothing(self) -> None:
        worker = EspeakWorker()
        worker.texts_to_ipa(["start"], "en-us")
        assert worker._process is not None
        os.kill(worker._process.pid, signal.SIGKILL)
        assert worker.texts_to_ipa(["hello"], "en-us") == [["həlˈoʊ"]]
        worker.close()

    def test_worker_that_hangs_is_given_up(self, monkeypatch: pytest.MonkeyPatch) -> None:
        worker = EspeakWorker()
        monkeypatch.setattr(espeak_worker, "_REQUEST_TIME_LIMIT_S", 0.3)
        worker.texts_to_ipa(["start"], "en-us")
        assert worker._process is not None
        os.kill(worker._process.pid, signal.SIGSTOP)
        assert worker.texts_to_ipa(["hello"], "en-us") == [["həlˈoʊ"]]
        worker.close()

    def test_worker_ends_with_its_parent(self) -> None:
        program = (
            "import os, signal; from myxtts.text.espeak_worker import SHARED_WORKER as worker;"
            "worker.texts_to_ipa(['a'], 'en-us'); print(worker._process.pid, flush=True);"
            "os.kill(os.getpid(), signal.SIGKILL)"
        )
        parent = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
        assert parent.returncode == -signal.SIGKILL
        worker_id = int(parent.stdout)
        for _ in range(1000):
            if not psutil.pid_exists(worker_id) or psutil.Process(worker_id).status() == psutil.STATUS_ZOMBIE:
                return
            time.sleep(0.05)
        pytest.fail("the worker outlived its parent")
