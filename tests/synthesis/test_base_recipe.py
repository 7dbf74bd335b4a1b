"""The recipe of the base model: texts and speech of the synthesiser, and the scores of what judges heard."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from base import results, synthetic
from base.score import score

from myxtts.corpus.prompts import read_prompts
from myxtts.errors import MyXTTSError, UsageError

PROMPT = read_prompts("en")[0]
DEFINITIONS = f"""
  harbour n 1: a sheltered port [syn: {{haven}}]; "the ship lay in the harbour all night"; "a safe
      place to rest"
    2: too short; "in the port"; "the xylograph lay in the harbour"; "{PROMPT.rstrip(".")}";
"""
FAKE_FESTIVAL = f"""#!{sys.executable}
import re, sys
commands = sys.stdin.read()
assert commands.startswith("(voice_cmu_us_slt_arctic_hts)")
for text, path in re.findall(r'Text "(.+?)"\\)\\) "(.+?)"', commands):
    open(path, "w").write(text)
"""


@pytest.fixture
def debian(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A dictionary, a list of words and a program as Debian's packages have them."""
    with gzip.open(tmp_path / "wn.dict.dz", "wt", encoding="utf-8") as stream:
        stream.write(DEFINITIONS)
    words = {"ship", "lay", "harbour", "all", "night", "safe", "place", "rest", "port", "the", "in", "to", "a"}
    prompt_words = {word.strip(".,!?") for word in PROMPT.split()}
    (tmp_path / "words").write_text("\n".join(words | prompt_words), encoding="utf-8")
    program = tmp_path / "festival"
    program.write_text(FAKE_FESTIVAL, encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setattr(synthetic, "_DICTIONARY", tmp_path / "wn.dict.dz")
    monkeypatch.setattr(synthetic, "_KNOWN_WORDS", tmp_path / "words")
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


@pytest.mark.usefixtures("debian")
def test_the_synthesiser_says_example_sentences_of_known_words_and_no_prompt() -> None:
    assert sorted(synthetic.read_examples()) == ["A safe place to rest.", "The ship lay in the harbour all night."]


def test_sentences_that_are_there_already_are_not_spoken_again(debian: Path) -> None:
    first = next(iter(synthetic.speak_synthetic(debian)))
    path = debian / first["audio"]
    assert path.read_text(encoding="utf-8") == first["text"]
    path.write_text("kept", encoding="utf-8")
    rows = list(synthetic.speak_synthetic(debian))
    assert path.read_text(encoding="utf-8") == "kept"
    assert {row["speaker"] for row in rows} == {"slt"}
    assert all((debian / row["audio"]).is_file() for row in rows)


@pytest.mark.parametrize("name", ["wn.dict.dz", "words", "festival"])
def test_what_is_not_installed_is_named_with_its_package(debian: Path, name: str) -> None:
    (debian / name).unlink()
    with pytest.raises(MyXTTSError, match=name) as caught:
        synthetic.read_examples()
    assert "apt-get install festival festvox-us-slt-hts dict-wn" in caught.value.next_step


def test_scores_of_each_set_name_the_recogniser(tmp_path: Path) -> None:
    def say(kind: str, speaker: str) -> dict[str, str]:
        return {"set": kind, "file": "x.wav", "text": "We sing a song.", "speaker": speaker}

    def hear(moonshine: str, **similarities: float) -> dict[str, Any]:
        return {
            "heard": {"moonshine": moonshine, "whisper": "We sing a song."},
            "mos": 3.5,
            "similarities": similarities,
        }

    spoken = [say("lj", "lj"), say("cloned_voices", "1"), say("cloned_voices", "2")]
    heard = [hear("We sing a son", a=0.1), hear("We sing", **{"1": 0.8, "2": 0.5}), hear("", **{"1": 0.6, "2": 0.4})]
    (tmp_path / "list.json").write_text(json.dumps({"spoken": spoken}), encoding="utf-8")
    (tmp_path / "heard.json").write_text(json.dumps(heard), encoding="utf-8")
    score(tmp_path, tmp_path / "scores.json")
    scores = json.loads((tmp_path / "scores.json").read_text(encoding="utf-8"))
    assert "two English recognisers" in scores["judge"]
    assert scores["word_error_rate_by_moonshine_of_lj"] == 0.25
    assert scores["word_error_rate_by_moonshine_of_cloned_voices"] == 0.75
    assert scores["word_error_rate_by_whisper_of_cloned_voices"] == 0
    # No recordings of lj were given to compare her voice with.
    assert "similarity_of_lj" not in scores
    assert scores["similarity_of_cloned_voices"] == 0.6
    assert scores["share_of_comparisons_closer_to_the_own_speaker_of_cloned_voices"] == 0.5


@pytest.fixture
def run_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run whose bundle says what it was trained on."""
    run = tmp_path / "run"
    run.mkdir()
    command = ["myxtts", "train", "--train-data", "/data/anna", "--init-from", "base"]
    (run / "environment.json").write_text(json.dumps({"sessions": [{"command": command, "num_cpus": 2}]}))
    lines = [{"step": step, "loss": 1.0, "elapsed_s": 1.5 * step} for step in (10, 120)]
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    notes = {"trained_on": {"hours": 0.25, "num_utterances": 200}}
    monkeypatch.setattr(results, "read_bundle", lambda folder: SimpleNamespace(notes=notes))
    monkeypatch.setattr(results, "find_bundle", lambda folder: folder / "bundle")
    return run


def write_judged(folder: Path, *sets: str) -> None:
    spoken = [{"set": name, "file": "x.wav", "text": "We sing a song.", "speaker": name} for name in sets]
    heard = [{"heard": {"moonshine": "We sing a"}, "mos": 3.5, "similarities": {}} for _ in sets]
    (folder / "list.json").write_text(json.dumps({"spoken": spoken}), encoding="utf-8")
    (folder / "heard.json").write_text(json.dumps(heard), encoding="utf-8")


def test_scores_of_a_voice_are_kept_with_how_it_was_trained(tmp_path: Path, run_folder: Path) -> None:
    out = tmp_path / "adaptation.json"
    write_judged(tmp_path, "anna")
    for name in ("one", "two", "one"):
        results.record(tmp_path, name, run_folder, None, out)
    first, second = json.loads(out.read_text(encoding="utf-8"))["entries"]
    assert (first["name"], second["name"]) == ("one", "two")
    assert first["scores"]["word_error_rate_by_moonshine"] == 0.25
    assert first["training"] == {
        "command": "myxtts train --train-data anna --init-from base",
        "minutes_of_speech": 15.0,
        "num_clips": 200,
        "steps": 120,
        "minutes": 3.0,
        "num_cpus": 2,
    }


def test_the_set_is_named_where_there_are_several(tmp_path: Path) -> None:
    write_judged(tmp_path, "anna", "cloned_voices")
    with pytest.raises(UsageError, match="It has anna, cloned_voices") as caught:
        results.record(tmp_path, "one", None, None, tmp_path / "adaptation.json")
    assert "--voice" in caught.value.next_step
    results.record(tmp_path, "one", None, "anna", tmp_path / "adaptation.json")
    (entry,) = json.loads((tmp_path / "adaptation.json").read_text(encoding="utf-8"))["entries"]
    assert entry["training"] is None
