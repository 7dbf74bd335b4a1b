"""Persian is read as people say it: ezafe, homographs, vowels and stress; written marks and the user's lexicon win."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from myxtts.config.schema import XTTSConfig
from myxtts.corpus import prepare
from myxtts.errors import DataError
from myxtts.text.frontend import FrontEnd
from myxtts.text.lexicon import find_ipa_problem
from myxtts.text.persian.homographs import Context, load_homographs, parse_homographs, read_homographs
from myxtts.text.persian.pronounce import load_pronunciations
from myxtts.text.persian.reading import PersianReading
from myxtts.text.persian.tagger import TAGS, WEIGHTS_FILE, load_tagger
from myxtts.text.persian.words import fold_word

pytest.importorskip("espeakng_loader")
PACKAGE = Path(sys.modules[load_tagger.__module__].__file__ or "").parent
OLD_FRONTEND = Path(__file__).parent / "frontend-before-persian.json"
NO_STRESS = str.maketrans("", "", "ˈˌ")


@pytest.fixture(scope="module")
def frontend() -> FrontEnd:
    return FrontEnd.create("phonemes")


@pytest.fixture(scope="module")
def old() -> FrontEnd:
    return FrontEnd.load(OLD_FRONTEND)


def say(frontend: FrontEnd, text: str) -> str:
    """The words of a text with "+" behind those that have ezafe."""
    return " ".join(f"{word.word}{'+' if word.ezafe else ''}" for word in frontend.explain(text, "fa").words)


def pronounce(frontend: FrontEnd, text: str) -> list[str]:
    return [word.ipa.translate(NO_STRESS) for word in frontend.explain(text, "fa").words]


@pytest.mark.parametrize(
    "marked",
    [
        "حال+ شما چطور است؟",
        "کتاب+ من روی+ میز است.",
        "پدر و مادر+ او در شهر+ شیراز زندگی می‌کنند.",
        "دانشگاه+ تهران در خیابان+ انقلاب است.",
        "من دیروز با دوست+ خوبم به بازار رفتم.",
        "صدای+ باران و بوی+ خاک را دوست دارم.",
        "کشورهای+ جهان، قیمت+ نفت و بازار+ کار",
        "این کتاب را برای برادرم خریدم.",
        "ساعت+ هفت بیدار شدم و صبحانه خوردم.",
        "در زندگی+ روستایی آرامش هست.",
    ],
)
def test_ezafe_is_found_where_it_is_not_written(frontend: FrontEnd, marked: str) -> None:
    words = marked.replace("،", "").replace("؟", "").replace(".", "")
    assert say(frontend, marked.replace("+", "")) == words


@pytest.mark.parametrize(
    ("text", "ipa"),
    [
        ("دوست من", "duːste"),
        ("خدای من", "xodɑje"),
        ("عموی من", "amuːje"),
        ("خانه من", "xɑneje"),
        ("زندگی من", "zendeɡije"),
        ("حق من", "haqqe"),
        ("پای من", "pɑje"),
        ("رادیوِ من", "rɑdijoje"),
    ],
)
def test_ezafe_sounds_as_the_end_of_the_word_asks(frontend: FrontEnd, text: str, ipa: str) -> None:
    assert pronounce(frontend, f"{text}.")[0] == ipa


@pytest.mark.parametrize("written", ["کتابِ", "خانهٔ", "خانۀ", "خانه‌ی", "زندگیِ"])
def test_written_ezafe_always_wins(frontend: FrontEnd, written: str) -> None:
    for behind in ("است.", "را دیدم", "و", "", "خوب"):
        word = frontend.explain(f"{written} {behind}", "fa").words[0]
        assert word.ezafe, behind
        assert word.ipa.endswith("e"), behind
        assert word.source == "written"


def test_written_vowels_win_over_lexicon_and_homographs(frontend: FrontEnd) -> None:
    assert pronounce(frontend, "کِرْم")[0] == "kerm"
    assert pronounce(frontend, "این کَرَم است")[1] == "karam"
    assert pronounce(frontend, "مُرد و مَرد")[::2] == ["mord", "mard"]


@pytest.mark.parametrize(
    ("text", "place", "ipa"),
    [
        ("آن مرد آمد", 1, "mard"),
        ("پدرش دیروز مرد.", 2, "mord"),
        ("دشمن او را کشت.", 3, "koʃt"),
        ("کشت گندم خوب بود", 0, "keʃte"),
        ("گل سرخ", 0, "ɡole"),
        ("کفش پر از گل شد", 3, "ɡel"),
        ("خدا را شکر", 2, "ʃokr"),
        ("چای و شکر", 2, "ʃekar"),
        ("کشتی در دریا غرق شد", 0, "keʃti"),
        ("تیم کشتی قهرمان شد", 1, "koʃti"),
        ("نه نفر آمدند", 0, "noh"),
        ("نه، نمی‌آیم", 0, "na"),
        ("گل‌های باغ", 0, "ɡolhɑje"),
        ("کرم‌ها در خاک زندگی می‌کنند", 0, "kermhɑ"),
    ],
)
def test_homographs_are_read_by_their_context(frontend: FrontEnd, text: str, place: int, ipa: str) -> None:
    word = frontend.explain(text, "fa").words[place]
    assert word.ipa.translate(NO_STRESS) == ipa
    assert word.source == "rule"


def test_the_lexicon_of_the_user_always_wins(tmp_path: Path) -> None:
    path = tmp_path / "words.tsv"
    path.write_text("مرد\tmˈuːz\nسازمان\tsˈɑb\nبادامچی\tbˈɑd\n", encoding="utf-8")
    mine = FrontEnd.create("phonemes", str(path))
    words = mine.explain("پدرش دیروز مرد. سازمان بادامچی", "fa").words
    assert [(word.ipa, word.source) for word in words[2:]] == [
        ("mˈuːz", "lexicon"),
        ("sˈɑbe", "lexicon"),
        ("bˈɑd", "lexicon"),
    ]


def test_stress_is_where_persian_has_it(frontend: FrontEnd) -> None:
    said = {word.word: word.ipa for word in frontend.explain("من نرفتم. کتاب‌ها می‌روم. رفتند. از بزرگ‌تر", "fa").words}
    assert said["کتاب‌ها"] == "ketɑbhˈɑ"
    assert said["می‌روم"] == "mˈiravam"
    assert said["نرفتم"] == "nˈaraftam"
    assert said["رفتند"] == "rˈaftand"
    assert said["از"] == "az"
    assert said["بزرگ‌تر"] == "bozorɡtˈar"


def test_english_inside_persian_sounds_as_before(frontend: FrontEnd, old: FrontEnd) -> None:
    for text in ("من iPhone 15 Pro را خریدم", "Windows را نصب کن", "سلام world of Warcraft خوب است", "Hello world"):
        before = {word.word: word.ipa for word in old.explain(text, "fa").words if word.word.isascii()}
        now = {word.word: word.ipa for word in frontend.explain(text, "fa").words if word.word.isascii()}
        assert now == before


@settings(max_examples=30, deadline=None)
@given(st.text(alphabet="abcdeiou TSz'.,!?3", min_size=1, max_size=40), st.sampled_from(["en", "de"]))
def test_other_languages_are_not_touched(frontend: FrontEnd, old: FrontEnd, text: str, language: str) -> None:
    assert frontend.encode(text, language).ids.tolist() == old.encode(text, language).ids.tolist()


def test_a_front_end_from_before_reads_as_before(old: FrontEnd, frontend: FrontEnd) -> None:
    assert old.persian is None
    assert not any(word.ezafe for word in old.explain("حال شما چطور است؟ کتابِ من", "fa").words)
    assert pronounce(old, "حال شما")[0] == "hɑl"
    assert "persian" not in json.loads(OLD_FRONTEND.read_text(encoding="utf-8"))
    assert old.fingerprint() != frontend.fingerprint()


def test_the_settings_are_kept_with_the_front_end(tmp_path: Path) -> None:
    plain = FrontEnd.create("phonemes", persian=PersianReading(ezafe=False, register="colloquial"))
    plain.save(tmp_path / "frontend.json")
    again = FrontEnd.load(tmp_path / "frontend.json")
    assert again.persian == plain.persian
    assert say(again, "حال شما چطور است؟ کتابِ من، کشورهای جهان") == "حال شما چطور است کتابِ+ من کشورهای+ جهان"
    assert pronounce(again, "اگر آن را می‌خواهد") == ["aɡe", "uːn", "ro", "mixɑd"]
    assert again.with_entries({"آن": "an"}).persian == plain.persian


def test_a_corpus_is_prepared_with_the_settings(tmp_path: Path) -> None:
    table = tmp_path / "readings.tsv"
    table.write_text("کرم\tkorom\n", encoding="utf-8")
    settings = {"persian_ezafe": False, "persian_register": "colloquial", "persian_homographs": str(table)}
    data = XTTSConfig(text_frontend="phonemes", **settings).data
    assert prepare._choose_frontend([], data).persian == PersianReading(
        ezafe=False, register="colloquial", homographs="کرم\tkorom\n"
    )


WORDS = "کتاب خوب من از به را خانه مرد کرم شهر بزرگ می‌روم است و که بازی‌های ایران the iPhone ، . ؟ علی دیدم".split()


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(WORDS), min_size=1, max_size=15))
def test_the_words_together_are_what_is_encoded(frontend: FrontEnd, words: list[str]) -> None:
    text = " ".join(words)
    explained = frontend.explain(text, "fa")
    encoding = frontend.encode(text, "fa")
    assert encoding.ids.tolist() == FrontEnd.create("phonemes").encode(text, "fa").ids.tolist()
    spoken = frontend.tokenizer.decode(encoding.ids)
    joined = frontend.tokenizer.decode(frontend.tokenizer.encode(" ".join(word.ipa for word in explained.words)).ids)
    kept = "".join(sign for sign in spoken if sign.isalnum() or sign in "ˈˌː")
    assert kept == "".join(sign for sign in joined if sign.isalnum() or sign in "ˈˌː")


@settings(max_examples=40, deadline=None)
@given(st.text(alphabet="ابپتکگمنیوهآ \u200c\u064e\u064f\u0650\u0651\u0654.،؟«»()a7", max_size=30))
def test_any_text_is_read(frontend: FrontEnd, text: str) -> None:
    explained = frontend.explain(text, "fa")
    assert explained.num_tokens == len(frontend.encode(text, "fa").ids)


def test_ezafe_stands_before_no_mark_preposition_or_conjunction() -> None:
    tagger = load_tagger()
    for behind in (".", "،", "و", "را", "که", "از", "به", "است"):
        assert not tagger.tag(["کتاب", behind])[0].endswith("+")


def test_tables_and_weights_fit_together() -> None:
    tagger = load_tagger()
    assert tagger is load_tagger()
    assert tagger.weights.dtype == np.int8
    assert tagger.weights.shape[1] == len(TAGS)
    assert (PACKAGE / WEIGHTS_FILE).stat().st_size < 5_000_000
    card = json.loads((PACKAGE / "card.json").read_text(encoding="utf-8"))
    assert card["num_bytes"] == (PACKAGE / WEIGHTS_FILE).stat().st_size
    assert {source["licence"] for source in card["sources"]} == {"CC BY-SA 4.0", "MIT", "Apache-2.0"}
    assert len(load_homographs()) > 100
    lines = (PACKAGE / "lexicon.tsv").read_text(encoding="utf-8").splitlines()[1:]
    assert len(load_pronunciations()) > 1000
    assert not [line for line in lines if find_ipa_problem(line.partition("\t")[2])]


def test_inflected_forms_follow_their_word() -> None:
    known = load_pronunciations()
    assert known.find("جاده‌ها") == "dʒɑddehˈɑ"
    assert known.find("محله‌ام") == "mahallˈeʔam"
    assert known.find("مهربان‌ترین") == "mehrabɑntarˈin"
    assert known.find("صندوقم") == "sandˈuːqam"
    assert known.find("قلنبوسم") is None


def test_a_table_of_homographs_says_where_it_is_wrong() -> None:
    table = parse_homographs("سر\tser\tnext:شد,شده\nسر\tsar\n", "mine.tsv")
    numb = Context(["دستم", "سر", "شد"], ["N", "A", "V"], 1, "formal")
    assert table.choose("سر", numb) == "ser"
    assert table.choose("سر", Context(["سر", "من"], ["N+", "R"], 0, "formal")) == "sar"
    for line, problem in (
        ("سر\tsar\tafter:من", "condition"),
        ("سر\t☃", "IPA"),
        ("سر", "empty"),
        ("سر\tsar\tnext:", "next"),
    ):
        with pytest.raises(DataError, match=f"mine.tsv:1.*{problem}"):
            parse_homographs(line, "mine.tsv")


def test_a_table_of_the_user_comes_first_and_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "mine.tsv"
    path.write_text("کرم\tkorom\tnear:رنگ\nشلمان\tʃalmˈɑn\n", encoding="utf-8")
    mine = FrontEnd.create("phonemes", persian=PersianReading(homographs=read_homographs(path)))
    mine.save(tmp_path / "frontend.json")
    again = FrontEnd.load(tmp_path / "frontend.json")
    assert pronounce(again, "رنگ مو کرم است")[2] == "korom"
    assert pronounce(again, "شلمان در خاک است")[0] == "ʃalmɑn"
    assert pronounce(again, "یک کرم در خاک بود")[1] == "kerm"
    path.write_text("کرم\tkorom\tnear\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"mine\.tsv:1"):
        read_homographs(path)
    with pytest.raises(DataError, match=r"gone\.tsv"):
        read_homographs(tmp_path / "gone.tsv")


def test_english_needs_no_tagger() -> None:
    program = (
        "import sys\nfrom myxtts.text.frontend import FrontEnd\nf = FrontEnd.create('phonemes')\n"
        "f.encode('hello', 'en')\n"
        "from myxtts.text.persian.tagger import load_tagger\nassert not load_tagger.cache_info().currsize\n"
        "f.encode('سلام دوست من', 'fa')\nassert load_tagger.cache_info().currsize\n"
        "assert 'tensorflow' not in sys.modules and 'scipy' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


def test_folded_words_have_no_half_spaces_and_signs() -> None:
    assert fold_word("می‌روَم") == "میروم"
    assert fold_word("كتابي") == "کتابی"


@pytest.mark.parametrize(
    ("written", "ipa"),
    [
        ("قیمت", "qejmˈat"),
        ("گوشت", "ɡˈuːʃt"),
        ("راست", "rˈɑst"),
        ("آرایش", "ɑrɑjˈeʃ"),
        ("نوزدهم", "nuːzdahˈom"),
        ("داده‌ایم", "dɑdˈeʔim"),
        ("دقیقه‌ای", "daqiqˈeʔi"),
        ("کتاب‌هایم", "ketɑbhˈɑjam"),
    ],
)
def test_a_word_of_its_own_is_not_read_as_another_with_an_ending(frontend: FrontEnd, written: str, ipa: str) -> None:
    assert [word.ipa for word in frontend.explain(written, "fa").words] == [ipa]
