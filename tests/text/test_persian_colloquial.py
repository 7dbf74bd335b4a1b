"""The colloquial register: verbs, plurals, pronouns and words are said as in everyday speech, others as they are."""

from __future__ import annotations

import pytest

from myxtts.text.frontend import FrontEnd
from myxtts.text.persian.reading import PersianReading

pytest.importorskip("espeakng_loader")
NO_STRESS = str.maketrans("", "", "ˈˌ")

SAID = [
    ("من می‌خواهم بروم", "man mixɑm beram"),
    ("نمی‌توانند بیایند", "nemituːnan bijɑn"),
    ("اگر بخواهید می‌آوریم", "aɡe bexɑjn mijɑrim"),
    ("چرا نمی‌گذارید بنشینم", "tʃerɑ nemizɑrin beʃinam"),
    ("می‌پرسند و می‌خندند", "miporsan va mixandan"),
    ("دیر آمدید و نماندند", "dir uːmadin va namuːndan"),
    ("آمدم و خواندم", "uːmadam va xuːndam"),
    ("رفتند و گفتید", "raftan va ɡoftin"),
    ("نان بخورید", "nuːn boxorin"),
    ("هوا خوب است", "havɑ xuːb e"),
    ("آنجا است", "uːndʒɑ ast"),
    ("کتاب‌ها را بیاور", "ketɑbɑ ro bijɑr"),
    ("خودشان و دوستانمان", "xodeʃuːn va duːstɑnemuːn"),
    ("آسمان و زمستان", "ɑsemuːn va zemestuːn"),
    ("جان من", "dʒuːne man"),
    ("دیوانه", "divuːne"),
]
UNCHANGED = ["تنها", "انسان", "ایران", "مامان", "بچه‌ها", "بدهی", "نبرد", "شدید", "خرید", "کتاب من", "خانواده"]


@pytest.fixture(scope="module")
def colloquial() -> FrontEnd:
    return FrontEnd.create("phonemes", persian=PersianReading(register="colloquial"))


def pronounce(frontend: FrontEnd, text: str) -> str:
    return " ".join(word.ipa for word in frontend.explain(text, "fa").words).translate(NO_STRESS)


@pytest.mark.parametrize(("written", "said"), SAID)
def test_what_is_written_formally_is_said_colloquially(colloquial: FrontEnd, written: str, said: str) -> None:
    assert pronounce(colloquial, written) == said


@pytest.mark.parametrize("written", UNCHANGED)
def test_other_words_are_said_as_in_the_formal_register(colloquial: FrontEnd, written: str) -> None:
    assert pronounce(colloquial, written) == pronounce(FrontEnd.create("phonemes"), written)


def test_written_vowels_and_the_lexicon_of_the_user_win(colloquial: FrontEnd) -> None:
    assert pronounce(colloquial.with_entries({"می‌خواهم": "mixɑham"}), "می‌خواهم") == "mixɑham"
    assert pronounce(colloquial, "آمَدَم").startswith("ɑmad")


def test_models_that_were_made_before_keep_their_colloquial_words() -> None:
    old = FrontEnd.create("phonemes", persian=PersianReading(register="colloquial", rules=1))
    assert pronounce(old, "می‌خواهم") == "mixɑm"
    assert pronounce(old, "آسمان") == pronounce(FrontEnd.create("phonemes"), "آسمان")
    assert pronounce(old, "هوا خوب است").endswith("ast")
