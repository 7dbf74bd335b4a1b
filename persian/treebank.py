"""Derives part of speech and ezafe of each word from Universal Dependencies treebanks of Persian.

A word has ezafe where the phrase behind it is linked without a preposition to the word itself or to a word before it:
`nmod` and `amod` behind their head, numbers behind a noun, and the noun of certain prepositions and determiners. Where
the relation does not decide it (names, appositions), the word is left open.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from myxtts.text.normalize import normalize_text
from myxtts.text.persian.words import fold_word

TAG_BY_UPOS = {
    "NOUN": "N",
    "PROPN": "E",
    "ADJ": "A",
    "VERB": "V",
    "AUX": "V",
    "ADP": "P",
    "PRON": "R",
    "DET": "D",
    "NUM": "M",
    "ADV": "B",
    "CCONJ": "C",
    "SCONJ": "C",
    "PART": "I",
    "INTJ": "I",
    "PUNCT": "U",
    "SYM": "U",
    "X": "X",
}

EZAFE_PREPOSITIONS = frozenset(
    "روی زیر بین میان بدون مثل مانند همانند همچون‌ درباره دربارهٔ پیرامون علیه برابر طبق طی ضمن توسط جهت نزد بالای پایین "
    "کنار جلوی پشت داخل درون سوی به‌وسیله ضد حدود خلال عین شبیه وسط سمت طرف دور خاطر دلیل محض مطابق مورد خصوص زمینه "
    "عنوان منظور علت وسیله سبب رغم جای علی‌رغم اساس اثر قبال مقابل باره بابت واسطه پای لحاظ پیش فراز لای گرد راجع "
    "هنگام حین بهر قبیل فرا ورای ماورای".split()
)
EZAFE_DETERMINERS = frozenset("تمام همه کلیه سایر تمامی کل اکثر اغلب عموم جمیع بقیه غالب خود نصف".split())
_PLAIN_AFTER_ALL = frozenset("چیز کس جا روز وقت چی کار ساله روزه جانبه گونه جور نوع".split())
_PREPOSITIONS = frozenset("از به با در بر تا که و یا".split())
_OPENINGS = frozenset('«"“(')


@dataclass(frozen=True, slots=True)
class TaggedWord:
    """A word with its tag; `ezafe` is None where it is not known, and `tag` is '' where only ezafe is."""

    word: str
    tag: str
    ezafe: bool | None


@dataclass(slots=True)
class _Token:
    form: str
    lemma: str
    upos: str
    head: int
    relation: str


def read_treebank(path: Path) -> list[list[TaggedWord]]:
    return [_tag(block) for block in path.read_text(encoding="utf-8").split("\n\n") if block.strip()]


def list_known_words(paths: Iterable[Path]) -> tuple[list[str], list[str]]:
    """Returns the base forms of nouns, names and adjectives, and the forms that occur as verbs only, both folded."""
    nominals: set[str] = set()
    kinds: dict[str, set[str]] = defaultdict(set)
    for path in paths:
        for line in path.read_text(encoding="utf-8").splitlines():
            fields = line.split("\t")
            if len(fields) != 10 or not fields[0].isdigit():
                continue
            form, lemma = (fold_word(normalize_text(text, "fa", 1)) for text in fields[1:3])
            kinds[form].add(TAG_BY_UPOS.get(fields[3], "X"))
            if fields[3] in ("NOUN", "PROPN", "ADJ") and form == lemma and " " not in form and len(form) > 1:
                nominals.add(form)
    verbs = {form for form, tags in kinds.items() if tags == {"V"} and form not in nominals and " " not in form}
    return sorted(nominals), sorted(verbs)


def _tag(block: str) -> list[TaggedWord]:
    """Tags the words as they are written: the parts of a joined word (noun and pronoun) count as one."""
    tokens: list[_Token] = [_Token("", "", "", 0, "")]
    spans: list[tuple[int, int, str]] = []
    for line in block.splitlines():
        fields = line.split("\t")
        if len(fields) != 10 or "." in fields[0]:
            continue
        if "-" in fields[0]:
            first, last = fields[0].split("-")
            spans.append((int(first), int(last), fields[1]))
        else:
            tokens.append(_Token(fields[1], fields[2], fields[3], int(fields[6]), fields[7]))
    words = []
    index = 1
    while index < len(tokens):
        span = next((span for span in spans if span[0] == index), (index, index, tokens[index].form))
        form = normalize_text(span[2], "fa", 1)
        upos = tokens[index].upos
        if upos == "ADP" and span[1] > index:
            upos = tokens[span[1]].upos
        ezafe = _find_ezafe(tokens, span[1], form)
        parts = form.split() or [form]
        tag = TAG_BY_UPOS.get(upos, "X")
        if fold_word(form) == "را":
            tag = "I"
        words += [TaggedWord(part, tag, False) for part in parts[:-1]]
        words.append(TaggedWord(parts[-1], tag, ezafe if span[0] == span[1] else False))
        index = span[1] + 1
    return words


def _find_ezafe(tokens: list[_Token], index: int, form: str) -> bool | None:
    """Returns whether token `index` has ezafe; None where the treebank does not tell."""
    if index + 1 >= len(tokens):
        return False
    following, token = tokens[index + 1], tokens[index]
    if following.form in _OPENINGS:
        return None
    if following.upos in ("PUNCT", "CCONJ", "SCONJ") or following.form in _PREPOSITIONS or following.form == "را":
        return None if fold_word(form).endswith("های") else False
    special = _judge_function_word(token, following)
    if special is not None:
        return special
    if _is_indefinite(token):
        return False
    answer = _judge_relation(tokens, index)
    if answer is False and fold_word(form).endswith("های"):
        return None
    return answer


def _judge_function_word(token: _Token, following: _Token) -> bool | None:
    form = fold_word(token.form)
    if token.upos == "ADP":
        return form in EZAFE_PREPOSITIONS
    if token.relation.startswith("det") and form in EZAFE_DETERMINERS:
        return not (form == "همه" and following.form in _PLAIN_AFTER_ALL)
    if token.upos in ("VERB", "AUX", "CCONJ", "SCONJ", "PUNCT", "PART"):
        return False
    return None


def _is_indefinite(token: _Token) -> bool:
    """Whether a noun has the indefinite ی, after which no ezafe follows."""
    form, lemma = fold_word(token.form), fold_word(token.lemma)
    if form.endswith("هایی"):
        return True
    if token.upos not in ("NOUN", "PROPN") or not form.endswith("ی") or lemma.endswith("ی"):
        return False
    return form.startswith(lemma[:2]) and not form.endswith(("ای", "وی"))


def _judge_relation(tokens: list[_Token], index: int) -> bool | None:
    """Looks at the relation that links the phrase that starts behind `index` to a word before it."""
    node = index + 1
    while tokens[node].head > index + 1:
        node = tokens[node].head
    head, relation = tokens[node].head, tokens[node].relation
    if head == 0 or head > index:
        return False
    starts_with_case = any(
        tokens[child].head == node and tokens[child].relation == "case" and child < node
        for child in range(index + 1, len(tokens))
    )
    if starts_with_case:
        return False
    kind = tokens[head].upos
    if relation.startswith(("flat", "appos", "compound", "dep")):
        return None if relation != "compound:lvc" else False
    if kind not in ("NOUN", "PROPN", "ADJ", "NUM", "PRON", "DET", "ADP"):
        return False
    if relation.startswith("acl"):
        is_participle = node == index + 1 and tokens[node].form.endswith("ه")
        return (True if head == index else None) if is_participle else False
    if relation.startswith("nmod") or relation in ("amod", "nummod"):
        return _is_open_end(tokens, index, head)
    if relation.startswith("obl"):
        return None
    return False


def _is_open_end(tokens: list[_Token], index: int, head: int) -> bool | None:
    """Whether the words from `head` to `index` are one phrase without a preposition, behind which ezafe goes on."""
    node = index
    while node != head:
        if not tokens[node].relation.startswith(("nmod", "amod", "conj", "flat", "nummod", "compound")):
            return None
        if any(tokens[child].head == node and tokens[child].relation == "case" for child in range(head, index + 1)):
            return None
        node = tokens[node].head
        if node < head:
            return None
        if node > index:
            return False
    return True
