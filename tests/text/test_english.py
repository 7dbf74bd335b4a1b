"""English normalisation: what is written on the left is said as on the right."""

from __future__ import annotations

import pytest

from myxtts.text.languages.en_abbreviations import is_in_capitals
from myxtts.text.normalize import normalize_text

CARDINALS = [
    ("0", "zero"),
    ("I have 7 cats.", "I have seven cats."),
    ("21 guns", "twenty-one guns"),
    ("100 men", "one hundred men"),
    ("342 pages", "three hundred forty-two pages"),
    ("1,234 people", "one thousand two hundred thirty-four people"),
    ("10,000", "ten thousand"),
    ("1,000,000,000,000", "one trillion"),
    ("1234567 ants", "one million two hundred thirty-four thousand five hundred sixty-seven ants"),
    ("5 million", "five million"),
    ("the number 10000000000", "the number ten billion"),
    ("twenty-one", "twenty-one"),
]

ORDINALS = [
    ("1st 2nd 3rd 4th", "first second third fourth"),
    ("the 5th, 8th, 9th and 12th", "the fifth, eighth, ninth and twelfth"),
    ("21st", "twenty-first"),
    ("the 30th", "the thirtieth"),
    ("the 1,000th visitor", "the one thousandth visitor"),
    ("on the 3rd.", "on the third."),
]

DECIMALS_AND_SIGNS = [
    ("3.14", "three point one four"),
    ("0.05", "zero point zero five"),
    (".5", "point five"),
    ("-5", "minus five"),
    ("It was −3.5 outside", "It was minus three point five outside"),
    ("a B-52", "a B-fifty-two"),
    ("COVID-19", "COVID-nineteen"),
    ("5+3=8", "five plus three equals eight"),
    ("10 - 3", "ten minus three"),
    ("x² + 2³", "x squared plus two cubed"),
    ("C++", "C plus plus"),
    ("2 < 3", "two is less than three"),
    ("6.02e23", "six point zero two times ten to the twenty-three"),
    ("1e999", "one times ten to the nine hundred ninety-nine"),
]

RANGES = [
    ("5-6 days", "five to six days"),
    ("pages 10–15", "pages ten to fifteen"),
    ("from 1990-2000", "from nineteen ninety to two thousand"),
    ("10-20%", "ten to twenty percent"),
    ("8:15-9:30", "eight fifteen to nine thirty"),
    ("$5-$10", "five to ten dollars"),
]

YEARS = [
    ("in 1905", "in nineteen oh five"),
    ("in 1984,", "in nineteen eighty-four,"),
    ("in 1900", "in nineteen hundred"),
    ("in 2000", "in two thousand"),
    ("in 2005", "in two thousand five"),
    ("in 2019.", "in twenty nineteen."),
    ("in 1066", "in one thousand sixty-six"),
    ("the 1990s", "the nineteen nineties"),
    ("the '90s", "the nineties"),
    ("the 1900s", "the nineteen hundreds"),
    ("the 2010s", "the twenty tens"),
    ("class of '99", "class of ninety-nine"),
    ("1500 km", "one thousand five hundred kilometers"),
]

MONEY = [
    ("$1", "one dollar"),
    ("$5.", "five dollars."),
    ("$5.50", "five dollars and fifty cents"),
    ("$0.99", "ninety-nine cents"),
    ("$1.01", "one dollar and one cent"),
    ("$1,234.56", "one thousand two hundred thirty-four dollars and fifty-six cents"),
    ("-$5", "minus five dollars"),
    ("£2.01", "two pounds and one penny"),
    ("¥500", "five hundred yen"),
    ("5€", "five euros"),
    ("$3 million", "three million dollars"),
    ("€1.2bn", "one point two billion euros"),
    ("US$5k", "five thousand US dollars"),
    ("$5/month", "five dollars per month"),
    ("100 USD", "one hundred US dollars"),
]

TIMES_AND_DATES = [
    ("7:30", "seven thirty"),
    ("7:05", "seven oh five"),
    ("at 7:00", "at seven o'clock"),
    ("12:30pm", "twelve thirty p m"),
    ("14:45", "fourteen forty-five"),
    ("14:00", "fourteen hundred"),
    ("7:30 a.m.", "seven thirty a m."),
    ("7:00 AM sharp", "seven a m sharp"),
    ("at 5pm", "at five p m"),
    ("1:02:03", "one oh two and three seconds"),
    ("2024-05-17", "May seventeenth twenty twenty-four"),
    ("5/17/2024", "May seventeenth twenty twenty-four"),
    ("17/5/2024", "May seventeenth twenty twenty-four"),
    ("12/25/99", "December twenty-fifth nineteen ninety-nine"),
    ("99/99/2024", "ninety-nine ninety-nine two thousand twenty-four"),
    ("May 17, 2024", "May seventeenth, twenty twenty-four"),
    ("Jan. 5th", "January fifth"),
    ("a score of 3:2", "a score of three to two"),
]

FRACTIONS_AND_MEASURES = [
    ("1/2", "one half"),
    ("3/4", "three quarters"),
    ("2/3 of it", "two thirds of it"),
    ("½ ¼ ⅔", "one half one quarter two thirds"),
    ("2½ km", "two and a half kilometers"),
    ("1/2 hr", "one half of an hour"),
    ("open 24/7", "open twenty-four seven"),
    ("1 km and 5 km", "one kilometer and five kilometers"),
    ("10kg, 3.5GB", "ten kilograms, three point five gigabytes"),
    ("60 mph", "sixty miles per hour"),
    ("100 km/h", "one hundred kilometers per hour"),
    ("20°C or 68 °F", "twenty degrees Celsius or sixty-eight degrees Fahrenheit"),
    ("1°", "one degree"),
    ("6 ft", "six feet"),
    ("5 min. later", "five minutes later"),
    ("a 5-km run", "a five-kilometer run"),
    ("1 km² and 5 m³", "one square kilometer and five cubic meters"),
    ("5% and 2.5 %", "five percent and two point five percent"),
    ("6'2\" tall", "six feet two inches tall"),
    ("4x4", "four by four"),
    ("3×10^8 m/s", "three times ten to the power of eight meters per second"),
]

CODES = [
    ("007", "zero zero seven"),
    ("call 4155551234", "call four one five five five five one two three four"),
    ("555-1234", "five five five, one two three four"),
    ("(555) 123-4567", "five five five, one two three, four five six seven"),
    ("0800 123 456", "zero eight zero zero, one two three, four five six"),
    ("9-1-1", "nine one one"),
    ("v1.2.3", "v one point two point three"),
    ("H₂O and MP3", "H two O and MP three"),
]

ABBREVIATIONS = [
    ("Mr. Smith and Mrs. Jones", "Mister Smith and Missus Jones"),
    ("Dr Who met Ms. Brown", "Doctor Who met Miz Brown"),
    ("Prof. X vs. Gen. Lee", "Professor X versus General Lee"),
    ("in St. Louis", "in Saint Louis"),
    ("on Main St. today", "on Main Street today"),
    ("123 Oak Dr. Bob lives there", "one hundred twenty-three Oak Drive Bob lives there"),
    ("Mt. St. Helens", "Mount Saint Helens"),
    ("cats, dogs, etc.", "cats, dogs, et cetera."),
    ("e.g. this, i.e. that", "for example this, that is that"),
    ("No. 5", "Number five"),
    ("He said no. I left.", "He said no. I left."),
    ("Fig. 3 in vol. 2, p. 10", "Figure three in volume two, page ten"),
    ("I ate a fig.", "I ate a fig."),
    ("Apple Inc. and Smith & Co. Ltd.", "Apple Incorporated and Smith and Company Limited."),
    ("John Smith Jr. came", "John Smith Junior came"),
    ("approx. 5", "approximately five"),
    ("Ft. Worth", "Fort Worth"),
    ("5 ms.", "five milliseconds."),
]

SIGNS = [
    ("R&D", "R and D"),
    ("#5", "number five"),
    ("#fun", "hashtag fun"),
    ("me@example.com", "me at example dot com"),
    ("~20 people", "about twenty people"),
    ("the $ sign", "the dollar sign"),
    ("=====", "====="),
]

ROMAN_NUMERALS = [
    ("Henry VIII", "Henry the eighth"),
    ("Louis XIV's court", "Louis the fourteenth's court"),
    ("Chapter IV", "Chapter four"),
    ("World War II", "World War two"),
    ("World War I was long", "World War one was long"),
    ("Part I.", "Part one."),
    ("the part I liked", "the part I liked"),
    ("Henry I think", "Henry I think"),
    ("The IV drip", "The IV drip"),
    ("Rocky III", "Rocky three"),
    ("Fig. IV", "Figure four"),
    ("I am", "I am"),
    ("vitamin C", "vitamin C"),
]

LEFT_ALONE = [
    ("NASA and the U.S.A.", "NASA and the U.S.A."),
    ("café, naïve, résumé", "café, naïve, résumé"),
    ("“Don’t,” she said—softly…", '"Don\'t," she said—softly…'),
    ("good 😀 day", "good 😀 day"),
    ("well-known", "well-known"),
]

CASES = (
    CARDINALS
    + ORDINALS
    + DECIMALS_AND_SIGNS
    + RANGES
    + YEARS
    + MONEY
    + TIMES_AND_DATES
    + FRACTIONS_AND_MEASURES
    + CODES
    + ABBREVIATIONS
    + SIGNS
    + ROMAN_NUMERALS
    + LEFT_ALONE
)


@pytest.mark.parametrize(("written", "said"), CASES)
def test_text_is_written_out_as_it_is_said(written: str, said: str) -> None:
    assert normalize_text(written, "en") == said


@pytest.mark.parametrize(("written", "said"), CASES)
def test_spoken_text_is_left_unchanged(written: str, said: str) -> None:
    assert normalize_text(said, "en") == said


def test_numbers_without_a_name_are_read_digit_by_digit() -> None:
    assert normalize_text("1" + "0" * 36, "en") == " ".join(["one"] + ["zero"] * 36)
    assert normalize_text("7" * 400, "en") == " ".join(["seven"] * 400)


def test_digits_of_every_script_are_read() -> None:
    assert normalize_text("۱۲ १२ 12", "en") == "twelve twelve twelve"


def test_a_raised_number_is_not_glued_to_the_one_before() -> None:
    assert normalize_text("10⁴", "en") == "ten four"


@pytest.mark.parametrize(
    ("written", "spoken"),
    [
        ("WE CALL IT BEAR", "we call it bear"),
        ("IT IS US.", "it is us."),
        ("WHO AM I? I'M DON'T KNOW", "who am I? I'm don't know"),
        ("I LIVE IN THE US, NOT IN THE UK", "I live in the US, not in the UK"),
        ("THE FBI AND NASA CALLED US", "the FBI and NASA called us"),
        ("MR. SMITH WENT TO ST. PAUL", "Mister Smith went to Saint Paul"),
        ("WE MET GEN. LEE AT 12 MAIN ST. ON MAY 3", "we met General Lee at twelve main street on May third"),
        ("CHAPTER IV OF HENRY VIII", "chapter four of Henry the eighth"),
        ("AT 5 PM, JAN. 3, 10 KM FROM HERE", "at five p m, January third, ten kilometers from here"),
        ("THE 1990S COST $5M ETC. AND SO ON", "the nineteen nineties cost five million dollars et cetera and so on"),
        ("IT IS ÉTÉ", "it is été"),
    ],
)
def test_a_text_all_in_capitals_is_read_as_words(written: str, spoken: str) -> None:
    assert normalize_text(written, "en") == spoken
    assert normalize_text(spoken, "en") == spoken


@pytest.mark.parametrize(
    "text", ["IT", "FBI", "BBC NEWS", "USA, UK", "We work in IT in the US.", "II US بزرگ", "A B C"]
)
def test_abbreviations_in_other_texts_keep_their_capitals(text: str) -> None:
    assert "us" not in normalize_text(text, "en")
    assert "it" not in normalize_text(text, "en")
    assert not is_in_capitals(text)
