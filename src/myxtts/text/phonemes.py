"""Grapheme-to-phoneme conversion: text to IPA with punctuation, by the user's lexicon first, then by espeak-ng.

espeak-ng drops punctuation and can end the whole process on odd input: stray hyphens, words of hundreds of letters,
rare symbols. So it is given letters, figures and a few symbols that are read aloud, clause by clause, in bounded
length. Quotation marks, brackets and invisible signs have no sound and are left out; other symbols, like emoji, are
reported as unknown.

Steps for a batch in one voice: split into clauses, look up lexicon words, find characters that the voice cannot read,
phonemise the clauses that are not cached, and join the IPA of each text with its punctuation. Persian is read word by
word, because ezafe and homographs are decided for each word (`persian.reading`).
"""

from __future__ import annotations

import re
import threading
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby

from myxtts.config.languages import canonical_language, suggest_language
from myxtts.errors import DataError
from myxtts.text.espeak import clean_ipa, list_voices
from myxtts.text.espeak_worker import SHARED_WORKER
from myxtts.text.inventory import PUNCTUATION, VOWELS
from myxtts.text.ipa import PUNCTUATION_SPELLINGS
from myxtts.text.languages import LANGUAGES
from myxtts.text.lexicon import Lexicon
from myxtts.text.persian.reading import Choice, PersianReading, ReadWord
from myxtts.text.persian.words import is_persian
from myxtts.text.word_cuts import cut_at_words

MAX_CLAUSE_LENGTH = 400
"""Characters given to espeak-ng at once; longer clauses are cut between words."""
_MAX_WORD_LENGTH = 60
"""Characters; espeak-ng can crash on words of hundreds of letters, so longer ones are cut."""

_READ_ALOUD = frozenset("%&@#+=*/°§×÷±$£€¥₹₽₺₴₪₩₫﷼¢‰")
"""Symbols that espeak-ng reads as words; other symbols are reported as unknown."""
_APOSTROPHES = frozenset("'’ʼ‘´`′")
_HYPHENS = frozenset("-\u2010\u2011")
_QUOTATION_MARKS = frozenset('"“”„‟«»‹›＂')
_JOINERS = frozenset("\u200c\u200d")
_INSIDE_WORDS = frozenset(".,:٫٬")
_QUOTES_AND_BRACKETS = frozenset({"Ps", "Pe", "Pi", "Pf"})
"""Unicode categories of opening and closing punctuation and of quotes."""

# A full stop before a letter or figure belongs to its word, as in 3.5 or e.g. or a web address, unless a space was
# forgotten after a sentence; commas and colons belong to a number when figures stand on both sides.
_PAUSE = re.compile(
    r"(\.{2,}|[!?;—…]"
    r"|(?<!\d)[,:]|[,:](?!\d)"
    r"|\.(?![^\W_])|(?<=[a-z\u0600-\u06ff]{2})\.(?=[A-Z\u0600-\u06ff])"
    r"|(?<!\S)-+(?!\S)|-{2,})"
)
_HYPHEN_BESIDE_NOTHING = re.compile(r"(?<![^\W_])-|-(?![^\W_])")
# As in "and/or"; between figures it is a fraction or a date.
_SLASH_BETWEEN_WORDS = re.compile(r"(?<!\d)/|/(?!\d)")
_REPEATED_APOSTROPHE = re.compile(r"'{2,}")

_MAX_CACHED_CLAUSES = 200_000
"""IPA strings in memory; the cache is emptied when it is full."""
_CLAUSE_LENGTHS = {"my": 50}
"""Clause length by voice. espeak-ng copies the rest of a Burmese clause into a buffer of 160 bytes; a letter has 3."""
_UNREADABLE_LETTERS = {"CJK": "龘", "HIRAGANA": "ゟ", "KATAKANA": "ヿ"}
"""Scripts of which espeak-ng prints the same IPA for every letter ("Chinese letter") in voices that cannot read them,
with a letter that no voice can read: another letter with the same IPA is unreadable too."""
_CONSONANT_STAND_IN, _VOWEL_STAND_IN = "zizuvi", "izuvi"
"""Invented words that replace words of the lexicon while espeak-ng phonemises their clause, because the words around
depend on them: "a" and "the" sound different alone and before a vowel."""
_WITHOUT_STRESS = str.maketrans("", "", "ˈˌ")
# Canonical codes whose voice has another name in espeak-ng, or that the voice of a near language reads.
_VOICES = {"zh": "cmn", "nn": "nb", "ckb": "ku"}
_PERSIAN_VOICE = "fa"
_UNUSABLE = frozenset({"xex", "fo", "kaa"})
"""Voices that espeak-ng 1.52 lists without the dictionary that they need."""


@dataclass(frozen=True, slots=True)
class Clauses:
    """A text split for the phonemiser: `parts` are clauses and, as single characters of PUNCTUATION, the marks
    between them; `unknown` lists each occurrence of a symbol that was dropped."""

    parts: tuple[str, ...]
    unknown: tuple[str, ...]


class _Cleaner(dict[int, str]):
    """A `str.translate` table of `_clean_character`, filled as characters occur."""

    def __missing__(self, code: int) -> str:
        cleaned = _clean_character(chr(code))
        self[code] = " " if cleaned is None else cleaned
        return self[code]


_CLEANER = _Cleaner()


def split_clauses(text: str, max_clause_length: int = MAX_CLAUSE_LENGTH) -> Clauses:
    """Splits a text at its punctuation into clauses of bounded length, and drops characters that have no sound."""
    unspeakable = {character for character in set(text) if _clean_character(character) is None}
    unknown = tuple(character for character in text if character in unspeakable) if unspeakable else ()
    parts: list[str] = []
    for index, piece in enumerate(_PAUSE.split(text.translate(_CLEANER))):
        if index % 2:
            mark = _name_pause(piece)
            if not (parts and parts[-1] == mark):
                parts.append(mark)
        else:
            parts += _bound_clause(piece, max_clause_length)
    return Clauses(tuple(parts), unknown)


def _clean_character(character: str) -> str | None:
    """Returns a character as espeak-ng may get it: "" or a space where it has no sound, None where it is unknown."""
    if character in PUNCTUATION_SPELLINGS:
        # With a space behind: unlike the marks of English, these never stand inside a number or a word.
        return f"{PUNCTUATION_SPELLINGS[character]} "
    if character in _APOSTROPHES:
        return "'"
    if character in _HYPHENS:
        return "-"
    category = unicodedata.category(character)
    if character.isspace() or character == "_" or character in _QUOTATION_MARKS or category in _QUOTES_AND_BRACKETS:
        return " "
    if category == "Cf" and character not in _JOINERS:
        return ""
    is_speech = category[0] in "LMN" or character in _JOINERS or character in _INSIDE_WORDS
    is_kept = is_speech or character in _READ_ALOUD or character in PUNCTUATION
    return character if is_kept else None


def _name_pause(written: str) -> str:
    """Maps a matched mark to PUNCTUATION: hyphens between spaces are a dash, several dots an ellipsis."""
    if written.startswith("-"):
        return "—"
    return "…" if len(written) > 1 else written


def _bound_clause(piece: str, max_length: int) -> list[str]:
    """Splits the text between two marks into clauses of at most `max_length`, without stray signs around words."""
    smoothed = _SLASH_BETWEEN_WORDS.sub(" ", _REPEATED_APOSTROPHE.sub(" ", _HYPHEN_BESIDE_NOTHING.sub(" ", piece)))
    clauses: list[str] = []
    for word in smoothed.split():
        trimmed = word.strip("'.,:٫٬\u200c\u200d")
        for start in range(0, len(trimmed), _MAX_WORD_LENGTH):
            part = trimmed[start : start + _MAX_WORD_LENGTH]
            if clauses and len(clauses[-1]) + len(part) < max_length:
                clauses[-1] += f" {part}"
            else:
                clauses.append(part)
    return clauses


@dataclass(frozen=True, slots=True)
class PhonemeString:
    """IPA with punctuation; `unknown` lists each character or word of the text that could not be phonemised."""

    text: str
    unknown: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Run:
    """One clause or mark of a text: either known `ipa`, or words for espeak-ng.

    `stretches` are the word sequences between the words of the lexicon, whose IPA is in `substitutes`; there is one
    more of them, and any may be empty. A run of Persian has its words in `read`, with their readings.
    """

    ipa: str = ""
    stretches: tuple[str, ...] = ()
    substitutes: tuple[str, ...] = ()
    read: tuple[ReadWord, ...] = ()

    @property
    def words(self) -> str:
        """The input of espeak-ng, with stand-ins for the words of the lexicon."""
        if not self.substitutes:
            return self.stretches[0] if self.stretches else ""
        stand_ins = (*(_choose_stand_in(ipa) for ipa in self.substitutes), "")
        return " ".join(word for pair in zip(self.stretches, stand_ins, strict=True) for word in pair if word)


class Phonemizer:
    """Converts texts to IPA with the lexicon and espeak-ng. Caches the IPA of clauses; safe for threads.

    `persian` is how Persian is read; None leaves it to espeak-ng, clause by clause, as older models do.
    """

    def __init__(self, lexicon: Lexicon | None = None, persian: PersianReading | None = None) -> None:
        self._lexicon = lexicon
        self._persian = persian
        self._lock = threading.Lock()
        self._ipa_by_clause: dict[tuple[str, str], str | None] = {}
        self._is_said: dict[tuple[str, str], bool] = {}

    def phonemize(
        self, texts: Sequence[str], language: str, choices: Sequence[Sequence[Choice]] | None = None
    ) -> list[PhonemeString]:
        """Returns the IPA of each text, clause by clause with the marks between them: . , ! ? ; : — …

        `choices` are, for each Persian text, words whose reading is known.
        """
        voice = find_voice(language)
        with self._lock:
            return self._phonemize(texts, voice, choices or [()] * len(texts))

    def _phonemize(self, texts: Sequence[str], voice: str, choices: Sequence[Sequence[Choice]]) -> list[PhonemeString]:
        """Phonemises texts in one voice, with one request for new characters and one for new clauses."""
        if len(self._ipa_by_clause) > _MAX_CACHED_CLAUSES:
            self._ipa_by_clause.clear()
        clauses = [split_clauses(text, _CLAUSE_LENGTHS.get(voice, MAX_CLAUSE_LENGTH)) for text in texts]
        rows = [self._look_up_all(voice, item.parts, known) for item, known in zip(clauses, choices, strict=True)]
        self._learn_characters(
            voice, {character for row in rows for run in row for character in "".join(run.stretches)}
        )
        unsaid = [self._find_unsaid(voice, row) for row in rows]
        # For a letter that it cannot read espeak-ng gives its name at best: such letters are removed beforehand.
        rows = [[_leave_out(run, set(signs)) for run in row] for row, signs in zip(rows, unsaid, strict=True)]
        self._learn_clauses(voice, (run.words for row in rows for run in row if run.words))
        strings = []
        for item, row, signs in zip(clauses, rows, unsaid, strict=True):
            ipa, crashed = self._assemble(voice, row)
            strings.append(PhonemeString(ipa, (*item.unknown, *signs, *crashed)))
        return strings

    def read_words(self, text: str, language: str) -> list[ReadWord] | None:
        """Returns the words of a text with their IPA, in order, where the text is read word by word, else None."""
        voice = find_voice(language)
        if self._persian is None or voice != _PERSIAN_VOICE:
            return None
        with self._lock:
            self._phonemize([text], voice, [()])
            row = self._look_up_all(voice, split_clauses(text).parts)
            unsaid = set(self._find_unsaid(voice, row))
            runs = [_leave_out(run, unsaid) for run in row]
            return [replace(word, ipa=ipa) for run in runs for word, ipa in self._list_said(voice, run)]

    def _look_up_all(self, voice: str, parts: Sequence[str], choices: Sequence[Choice] = ()) -> list[_Run]:
        """Makes the runs of one text: one for each clause and mark, in Persian one for each word or foreign stretch."""
        if self._persian is None or voice != _PERSIAN_VOICE:
            return [self._look_up(part) for part in parts]
        runs: list[_Run] = []
        for part, words in zip(parts, self._persian.read(parts, choices), strict=True):
            if part in PUNCTUATION:
                runs.append(_Run(ipa=part))
            # Neighbouring words of other scripts stay one stretch: espeak-ng reads them together.
            for is_native, group in groupby(map(self._apply_lexicon, words), key=_is_native):
                together = tuple(group)
                spans = [(word,) for word in together] if is_native else [together]
                runs += [_make_persian_run(span) for span in spans]
        return runs

    def _apply_lexicon(self, word: ReadWord) -> ReadWord:
        """Gives a word the IPA of the user's lexicon, which wins over every other source."""
        found = (self._lexicon.find(word.word) or self._lexicon.find(word.spelling)) if self._lexicon else None
        return word.replace_ipa(found) if found else word

    def _list_said(self, voice: str, run: _Run) -> list[tuple[ReadWord, str]]:
        """Pairs the words of a run of Persian with their IPA."""
        if not run.read:
            return []
        if run.ipa:
            return [(run.read[0], run.ipa)]
        ipa = self._say(voice, run.words, []) if run.words else ""
        if len(run.read) == 1:
            return [(run.read[0], run.read[0].finish(ipa))]
        self._learn_clauses(voice, (word.word for word in run.read))
        alone = [self._say(voice, word.word, []) for word in run.read]
        return list(zip(run.read, cut_at_words(ipa, alone), strict=True))

    def _look_up(self, part: str) -> _Run:
        """Makes the run of a clause or mark, with the words of the lexicon separated from the others."""
        if part in PUNCTUATION:
            return _Run(ipa=part)
        if self._lexicon is None:
            return _Run(stretches=(part,))
        stretches: list[list[str]] = [[]]
        substitutes = []
        for word in part.split():
            ipa = self._lexicon.find(word)
            if ipa is None:
                stretches[-1].append(word)
            else:
                substitutes.append(ipa)
                stretches.append([])
        if not any(stretches):
            return _Run(ipa=" ".join(substitutes))
        return _Run(stretches=tuple(" ".join(stretch) for stretch in stretches), substitutes=tuple(substitutes))

    def _learn_characters(self, voice: str, characters: Iterable[str]) -> None:
        """Finds out which characters the voice can read, by phonemising each alone; the results are cached."""
        asked = sorted(c for c in characters if (voice, c) not in self._is_said and _can_stand_alone(c))
        if not asked:
            return
        answers = SHARED_WORKER.texts_to_ipa([*asked, *_UNREADABLE_LETTERS.values()], voice)
        said = ["".join(answer or ()).strip() for answer in answers]
        same_for_all = dict(zip(_UNREADABLE_LETTERS, said[len(asked) :], strict=True))
        for character, ipa in zip(asked, said, strict=False):
            script = unicodedata.name(character, "").partition(" ")[0]
            self._is_said[voice, character] = bool(ipa) and ipa != same_for_all.get(script)

    def _find_unsaid(self, voice: str, row: list[_Run]) -> list[str]:
        return [character for run in row for character in run.words if not self._is_said.get((voice, character), True)]

    def _learn_clauses(self, voice: str, clauses: Iterable[str]) -> None:
        """Phonemises clauses that are not cached. Where one crashes espeak-ng, its words are phonemised one by one."""
        asked = list(dict.fromkeys(clause for clause in clauses if (voice, clause) not in self._ipa_by_clause))
        if not asked:
            return
        crashed = []
        for clause, answer in zip(asked, SHARED_WORKER.texts_to_ipa(asked, voice), strict=True):
            self._ipa_by_clause[voice, clause] = None if answer is None else clean_ipa(" ".join(answer), voice)
            if answer is None and " " in clause:
                crashed.append(clause)
        self._learn_clauses(voice, (word for clause in crashed for word in clause.split()))

    def _assemble(self, voice: str, row: list[_Run]) -> tuple[str, list[str]]:
        """Joins the IPA of the runs of one text; returns it with the words on which espeak-ng crashed."""
        parts: list[str] = []
        crashed: list[str] = []
        for run in row:
            if run.ipa in PUNCTUATION and parts:
                parts[-1] += run.ipa
            elif run.ipa:
                parts.append(run.ipa)
            elif run.substitutes:
                parts.append(self._substitute(voice, run, crashed))
            elif run.words:
                ipa = self._say(voice, run.words, crashed)
                parts.append(run.read[0].finish(ipa) if len(run.read) == 1 else ipa)
        return " ".join(part for part in parts if part), crashed

    def _say(self, voice: str, words: str, crashed: list[str]) -> str:
        """Returns the cached IPA of a clause, or of its words where the clause crashed espeak-ng."""
        ipa = self._ipa_by_clause[voice, words]
        if ipa is not None:
            return ipa
        parts = [(word, self._ipa_by_clause[voice, word]) for word in words.split()]
        crashed += [word for word, said in parts if said is None]
        return " ".join(said for _, said in parts if said)

    def _substitute(self, voice: str, run: _Run, crashed: list[str]) -> str:
        """Returns the IPA of a run, with the lexicon's IPA in the positions of the stand-ins.

        Stand-ins are found by their IPA without stress, which depends on the clause.
        """
        stand_ins = (_CONSONANT_STAND_IN, _VOWEL_STAND_IN)
        self._learn_clauses(voice, stand_ins)
        sounds = {(self._ipa_by_clause[voice, word] or "").translate(_WITHOUT_STRESS) for word in stand_ins}
        words = self._say(voice, run.words, crashed).split()
        places = [index for index, word in enumerate(words) if word.translate(_WITHOUT_STRESS) in sounds]
        if len(places) == len(run.substitutes):
            for place, ipa in zip(places, run.substitutes, strict=True):
                words[place] = ipa
            return " ".join(words)
        # The stand-ins cannot be found again, as in a voice that spells them: phonemise the words between one by one.
        return self._say_between(voice, run, crashed)

    def _say_between(self, voice: str, run: _Run, crashed: list[str]) -> str:
        """As `_substitute`, without stand-ins: each stretch is phonemised as a clause of its own."""
        self._learn_clauses(voice, (stretch for stretch in run.stretches if stretch))
        said = [self._say(voice, stretch, crashed) if stretch else "" for stretch in run.stretches]
        pairs = zip(said, (*run.substitutes, ""), strict=True)
        return " ".join(part for pair in pairs for part in pair if part)


def _is_native(word: ReadWord) -> bool:
    return bool(word.ipa) or is_persian(word.word)


def _make_persian_run(words: tuple[ReadWord, ...]) -> _Run:
    """Makes the run of one word with known IPA, of one Persian word, or of a stretch of foreign words."""
    if words[0].ipa:
        return _Run(ipa=words[0].ipa, read=words)
    return _Run(stretches=(" ".join(word.spelling for word in words),), read=words)


def _can_stand_alone(character: str) -> bool:
    """Whether a character is tried alone: letters, figures and symbols, but not ASCII, marks or joiners."""
    is_plain = character.isascii() and character.isalnum()
    return not is_plain and character not in " '.,:-" and unicodedata.category(character)[0] not in "MC"


def _choose_stand_in(ipa: str) -> str:
    return _VOWEL_STAND_IN if ipa.lstrip("ˈˌ")[:1] in VOWELS else _CONSONANT_STAND_IN


def _leave_out(run: _Run, signs: set[str]) -> _Run:
    if not signs or not run.stretches:
        return run
    table = str.maketrans(dict.fromkeys(signs, " "))
    return replace(run, stretches=tuple(" ".join(stretch.translate(table).split()) for stretch in run.stretches))


def find_voice(language: str) -> str:
    """Returns the espeak-ng voice for a language such as en, pt-BR, zh_CN or German; raises DataError without one.

    A region without a voice falls back to its language.
    """
    voices = _rank_voices()
    code = canonical_language(language)
    while code:
        code_or_alias = _name_voice(code)
        if code_or_alias in voices:
            return voices[code_or_alias]
        code = code.rpartition("-")[0]
    raise DataError(
        f"espeak-ng has no voice for the language {language!r}.",
        next_step=f"{suggest_language(language)} Other languages can be trained with text_frontend: characters.",
    )


def _name_voice(code: str) -> str:
    declared = LANGUAGES.get(code)
    return (declared.espeak_voice if declared else "") or _VOICES.get(code, code)


@lru_cache(maxsize=1)
def _rank_voices() -> dict[str, str]:
    """Returns the best voice of each language code and each voice name; the lowest rank wins."""
    best: dict[str, tuple[int, str]] = {}
    for voice in list_voices():
        if voice.name in _UNUSABLE:
            continue
        for code, rank in (*voice.languages, (voice.name, 0)):
            best[code] = min(best.get(code, (rank, voice.name)), (rank, voice.name))
    return {code: name for code, (_, name) in best.items()}
