"""Persian numbers and signs that are read by what stands beside them; models that were made before read as they did."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from myxtts.errors import DataError
from myxtts.text.frontend import FrontEnd
from myxtts.text.normalize import normalize_text

CODES = [
    ("تلفن ۸۸۷۷۶۶۵۵", "تلفن هشت هشت هفت هفت شش شش پنج پنج"),
    ("تلفنم ۸۸۷۷۶۶۵۵ است.", "تلفنم هشت هشت هفت هفت شش شش پنج پنج است."),
    ("شماره تماس: ۴۴۲۲۳۳", "شماره تماس: چهار چهار دو دو سه سه"),
    ("شماره تماس ۰۹۱۲ ۱۲۳ ۴۵ ۶۷", "شماره تماس صفر نه یک دو، یک دو سه، چهار پنج، شش هفت"),
    ("به ۰۹۱۲-۱۲۳-۴۵-۶۷ زنگ بزن", "به صفر نه یک دو، یک دو سه، چهار پنج، شش هفت زنگ بزن"),
    ("تلفن تماس ۲۲۳۳-۴۴۵۵", "تلفن تماس دو دو سه سه، چهار چهار پنج پنج"),
    ("تلفن ۱۱۰", "تلفن صد و ده"),
    ("تلفن ۲۵۰۰۰ نفر قطع شد", "تلفن بیست و پنج هزار نفر قطع شد"),
    ("به همراه ۲۵۰۰ نفر", "به همراه دو هزار و پانصد نفر"),
    ("کارت ۶۰۳۷-۹۹۱۱-۲۲۳۳-۴۴۵۵", "کارت شش صفر سه هفت، نه نه یک یک، دو دو سه سه، چهار چهار پنج پنج"),
    ("۶۰۳۷ ۹۹۱۱ ۲۲۳۳ ۴۴۵۵", "شش صفر سه هفت، نه نه یک یک، دو دو سه سه، چهار چهار پنج پنج"),
    ("کد ملی ۰۰۱۲۳۴۵۶۷۸", "کد ملی صفر صفر یک دو سه چهار پنج شش هفت هشت"),
    ("کد پستی ۱۴۳۵۶-۷۸۹۱۲", "کد پستی یک چهار سه پنج شش، هفت هشت نه یک دو"),
    ("کد تایید ۴۸۲۱", "کد تایید چهار هشت دو یک"),
    (
        "شبا IR12 0170 0000 0012 3456 7890 12",
        "شبا آی آر یک دو، صفر یک هفت صفر، صفر صفر صفر صفر، صفر صفر یک دو، سه چهار پنج شش، هفت هشت نه صفر، یک دو",
    ),
]
AMOUNTS = [
    ("۲۵۰/۰۰۰ تومان", "دویست و پنجاه هزار تومان"),
    ("۱/۲۵۰/۰۰۰ ریال", "یک میلیون و دویست و پنجاه هزار ریال"),
    ("۱/۲۵۰/۰۰۰", "یک میلیون و دویست و پنجاه هزار"),
    ("۱۲.۵۰۰ تومان", "دوازده هزار و پانصد تومان"),
    ("۱۲۵/۵۰۰ کیلومتر", "صد و بیست و پنج ممیز پانصد هزارم کیلومتر"),
    ("۱/۵ میلیون تومان", "یک ممیز پنج دهم میلیون تومان"),
    ("﷼۵۰۰۰", "پنج هزار ریال"),
    ("۵۰۰۰ ﷼", "پنج هزار ریال"),
    ("۲ ۱/۲ لیوان", "دو و نیم لیوان"),
    ("۱/۲ لیوان", "نیم لیوان"),
    ("۵۰٪-۶۰٪", "پنجاه تا شصت درصد"),
    ("۲۰-۳۰٪ و ٪۱۲ و ۱۲٫۵٪", "بیست تا سی درصد و دوازده درصد و دوازده ممیز پنج دهم درصد"),
    ("فیلم ۱۸+", "فیلم مثبت هجده"),
    ("۳اُم و ۲۱اُمین", "سوم و بیست و یکمین"),
    ("۱۰۰ km/h و ۲ GB", "صد کیلومتر بر ساعت و دو گیگابایت"),
]
TIMES = [
    ("ساعت ۷:۳۰", "ساعت هفت و سی دقیقه"),
    ("ساعت ۷.۳۰ صبح", "ساعت هفت و سی دقیقه صبح"),
    ("ساعت ۱۹/۴۵", "ساعت نوزده و چهل و پنج دقیقه"),
    ("۱۴۰۵/۰۸", "آبان هزار و چهارصد و پنج"),
    ("۱۴۰۵/۸/۲۵", "بیست و پنج آبان هزار و چهارصد و پنج"),
    ("سال ۱۳۵۷ ه‍.ش.", "سال هزار و سیصد و پنجاه و هفت هجری شمسی."),
    ("سال ۱۴۰۲ هـ ش بود", "سال هزار و چهارصد و دو هجری شمسی بود"),
    ("سال ۱۴۰۲ ش", "سال هزار و چهارصد و دو شمسی"),
    ("سال ۱۹۷۹ م انقلاب شد", "سال هزار و نهصد و هفتاد و نه میلادی انقلاب شد"),
    ("سال ۶۱ ه. ق", "سال شصت و یک هجری قمری"),
]
SCORES = [
    ("نتیجه ۲-۱ شد", "نتیجه دو بر یک شد"),
    ("بازی ۲-۲ مساوی شد", "بازی دو بر دو مساوی شد"),
    ("استقلال ۱ - ۲ پرسپولیس", "استقلال یک بر دو پرسپولیس"),
    ("گلدان ۲-۳ تایی", "گلدان دو تا سه تایی"),
    ("۱۰-۱۲ نفر", "ده تا دوازده نفر"),
]
HONORIFICS = [
    ("حضرت محمد (ص) فرمود", "حضرت محمد صلی|الله|علیه|وآله فرمود"),
    ("امام علی (ع) و فاطمه (س)", "امام علی علیه|السلام و فاطمه سلام|الله|علیها"),
    ("امام خمینی(ره)", "امام خمینی رحمت|الله|علیه"),
    ("علی علیه السلام", "علی علیه|السلام"),
    ("گزینه (ع) را بزن", "گزینه (ع) را بزن"),
    ("(ص) و (ع)", "(ص) و (ع)"),
]


@pytest.mark.parametrize(("written", "said"), [*CODES, *AMOUNTS, *TIMES, *SCORES, *HONORIFICS])
def test_numbers_and_signs_are_read_by_what_stands_beside_them(written: str, said: str) -> None:
    spoken = normalize_text(written, "fa")
    assert spoken == said.replace("|", "\u200c")
    assert normalize_text(spoken, "fa") == spoken


def test_names_keep_no_ezafe_before_a_blessing_which_is_said_in_one_piece() -> None:
    pytest.importorskip("espeakng_loader")
    words = FrontEnd.create("phonemes").explain("پیامبر (ص) و علی (ع) آمدند", "fa").words
    assert [(word.word, word.ezafe) for word in words[:2]] == [("پیامبر", False), ("صلی‌الله‌علیه‌وآله", False)]
    assert words[1].ipa.replace("ˈ", "") == "sallallɑhoalejhevaɑleh"
    assert words[4].ipa.replace("ˈ", "") == "alejhessalɑm"


def test_a_front_end_that_was_made_before_reads_as_it_did(tmp_path: Path) -> None:
    pytest.importorskip("espeakng_loader")
    FrontEnd.create("phonemes").save(tmp_path / "frontend.json")
    content = json.loads((tmp_path / "frontend.json").read_text())
    assert content["persian"].pop("rules") == 2
    (tmp_path / "old.json").write_text(json.dumps(content))
    new, old = FrontEnd.load(tmp_path / "frontend.json"), FrontEnd.load(tmp_path / "old.json")
    price = "۲۵۰/۰۰۰ تومان"
    assert new.normalize(price, "fa") == "دویست و پنجاه هزار تومان"
    assert old.normalize(price, "fa") == "دویست و پنجاه ممیز صفر تومان"
    assert new.fingerprint() != old.fingerprint()
    old.save(tmp_path / "again.json")
    assert json.loads((tmp_path / "again.json").read_text()) == content
    content["persian"]["rules"] = 3
    (tmp_path / "newer.json").write_text(json.dumps(content))
    with pytest.raises(DataError, match=r"newer\.json"):
        FrontEnd.load(tmp_path / "newer.json")


@pytest.mark.parametrize("unit", ["1/250", "12 34-", "تلفن 12 ", "09", "IR12", "(ص) ", "2-2 ", "% ", "سال 1 ش "])
def test_a_hostile_text_takes_linear_time(unit: str) -> None:
    short, long = (unit * (count // len(unit)) for count in (5_000, 50_000))
    durations = []
    for text in (short, long):
        started = time.process_time()
        normalize_text(text, "fa")
        durations.append(time.process_time() - started)
    assert durations[1] < 40 * max(durations[0], 0.05)
