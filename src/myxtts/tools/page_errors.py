"""Error messages of the servers of pages in the language of the page.

Errors are raised in English, with their values in them, by code that knows no page. `translate_error` finds the text of
`_TEXTS` that a message was made of, takes the values out of it, and fills them into the Persian text. A test reads the
sources of the studio and of the live page, and asks for a text for each message that they raise.
"""

from __future__ import annotations

import re
from functools import cache

from myxtts.tools.words import Translator, mark
from myxtts.types import PAGE_LANGUAGES

_PLACEHOLDER = re.compile(r"\{(\w+)\}")
_TEXTS = (
    # Of every server.
    mark("The key is missing or wrong."),
    mark("Send a Bearer token."),
    mark("The body has more than {count} bytes."),
    mark("The body did not arrive within {seconds} s."),
    mark("{field}: String should have at least {count} character."),
    mark("{field}: String should have at most {count} characters."),
    # Of the live page.
    mark("The key is wrong."),
    mark("{count} pages are open already."),
    mark("Close some of them."),
    mark("There is no such sample."),
    mark("There is no such file."),
    mark("There is no such voice."),
    mark("Choose one of {names}."),
    mark("The request must be JSON."),
    mark("No training of this run is going on here."),
    mark("The training belongs to another user."),
    mark("Another sentence is being said."),
    mark("Wait until it is done."),
    mark("The sentence was not ready after {seconds} s: the machine is too busy."),
    mark("The sentence was cancelled."),
    mark("The process that speaks has failed."),
    mark("The model does not speak the language {language}."),
    mark("It speaks: {languages}."),
    mark("Nothing in the text {text} can be said in the language {language} by this model."),
    mark("Check that text and language belong together."),
    # Of the studio.
    mark("The request comes from another site."),
    mark("The content type must be {kind}."),
    mark("A take needs a name of 8 to 64 letters and figures."),
    mark("{value} is none of {names}."),
    mark("{value} is no whole number."),
    mark("There is no clip {id}."),
    mark("{audio} leads out of {folder}."),
    mark("The corpus was changed in another tab."),
    mark("The list is loaded again."),
    mark("The clip has no text."),
    mark("Write what is said, or drop the clip."),
    mark("The text has characters that cannot be written."),
    mark("The text is empty."),
    mark("{name} cannot be a speaker's name."),
    mark("Use 1 to {count} letters."),
    mark("A split needs the texts of both parts."),
    mark("Two clips of one speaker and language can be merged."),
    mark("The speaker's name and consent are missing."),
    mark("The take is neither WAV nor FLAC."),
    mark("The take is not stored: {detail}."),
    mark("Record it again."),
    mark("{file} is longer than {minutes} minutes."),
    mark("Cut it first: myxtts collect RECORDINGS --out CORPUS."),
    mark("{file} cannot be played: {detail}."),
    mark("{file} holds no sound."),
    mark("One part would have {seconds} s, and clips need {least} s."),
    mark("Choose another place."),
    mark("The merged clip would have {seconds} s, and clips have at most {most} s."),
    mark("Merge shorter clips."),
)


def choose_translator(accept_language: str, usual: str = "en") -> Translator:
    """The translator for the `Accept-Language` that a page sends: its own language, not the browser's."""
    asked = accept_language[:2].lower()
    return Translator(asked if asked in PAGE_LANGUAGES else usual or "en")


def translate_error(message: str, tr: Translator) -> str:
    """Translates the problem or the next step of an error; a message without a text stays as it is."""
    for text, pattern in _list_patterns():
        found = pattern.fullmatch(message)
        if found:
            # Numbers get the digits of the language, names and paths stay.
            values = {name: tr.figure(value) for name, value in found.groupdict().items()}
            return tr(text, **values)
    return message


@cache
def _list_patterns() -> list[tuple[str, re.Pattern[str]]]:
    """Each text with the expression that its messages match; those with more words come first."""
    ordered = sorted(_TEXTS, key=lambda text: -len(_PLACEHOLDER.sub("", text)))
    return [(text, re.compile(_write_pattern(text), re.DOTALL)) for text in ordered]


def _write_pattern(text: str) -> str:
    parts = _PLACEHOLDER.split(text)
    return "".join(f"(?P<{part}>.+?)" if place % 2 else re.escape(part) for place, part in enumerate(parts))
