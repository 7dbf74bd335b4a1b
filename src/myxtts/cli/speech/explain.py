"""`myxtts explain`: shows how the front end reads a text: spoken words, IPA, where it comes from, what is left out."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from myxtts.cli.help import option
from myxtts.cli.screen import Screen, print_note
from myxtts.errors import DataError, MyXTTSError, UsageError

if TYPE_CHECKING:
    from myxtts.synthesis.sentences import TextLine
    from myxtts.text.explain import Explanation
    from myxtts.text.frontend import FrontEnd

_STDIN = "-"


def run_explain(
    text: Annotated[
        str | None, typer.Argument(help="The text; - reads it from standard input.", metavar="TEXT")
    ] = None,
    language: Annotated[str | None, option("Language of the text, such as en or fa.", "CODE")] = None,
    file: Annotated[
        Path | None, option("Explain every line of this file, or of a table (.csv, .tsv, .jsonl) with a text column.")
    ] = None,
    model: Annotated[
        Path | None, option("Read the text as this model does; base is the model of the package.", "MODEL")
    ] = None,
    lexicon: Annotated[Path | None, option("Your own pronunciations: one word, tab, IPA per line.", "FILE")] = None,
    as_json: Annotated[bool, option("Print one JSON object for each text, one a line.", flag="--json")] = False,
) -> None:
    """Show how a text is read: its words, their phonemes, and where these come from.

    [bold]Examples[/bold]

    myxtts explain "Dr. Smith was born in 1984." --language en

    myxtts explain --file sentences.txt --language fa --json

    myxtts explain "صبح بخیر" --model runs/anna
    """
    screen = Screen(as_json=as_json)
    lines = _read_lines(text, file)
    frontend, known = _open_frontend(model, lexicon)
    for line in lines:
        explained = _explain(line, language, frontend, known)
        if as_json:
            sys.stdout.write(json.dumps(explained.to_json(), ensure_ascii=False) + "\n")
        else:
            _show(explained, screen)


def _read_lines(text: str | None, file: Path | None) -> list[TextLine]:
    from myxtts.synthesis.sentences import TextLine, read_stdin, read_texts

    if (text is None) == (file is None):
        problem = "There is no text to explain." if text is None else "Both a text and --file are given."
        raise UsageError(problem, next_step='Give one of them, such as: myxtts explain "Good morning." --language en')
    if file is not None:
        return read_texts(file)
    return [TextLine("", read_stdin() if text == _STDIN else str(text), "")]


def _open_frontend(model: Path | None, lexicon: Path | None) -> tuple[FrontEnd, tuple[str, ...]]:
    """Returns the front end of a model with its languages, or one that a new corpus would get."""
    from myxtts.text.frontend import FrontEnd

    if model is None:
        return FrontEnd.create("phonemes", str(lexicon) if lexicon else None), ()
    from myxtts.synthesis.loaded_bundle import load_bundle
    from myxtts.text.lexicon import load_lexicon

    loaded = load_bundle(model, print_note)
    frontend = loaded.frontend.with_entries(load_lexicon(lexicon).entries) if lexicon else loaded.frontend
    return frontend, loaded.spec.languages


def _explain(line: TextLine, asked: str | None, frontend: FrontEnd, known: tuple[str, ...]) -> Explanation:
    from myxtts.text.directions import remove_directions
    from myxtts.text.script import wrong_script

    language = line.language or asked or (known[0] if len(known) == 1 else "")
    if not language:
        raise UsageError("The language of the text is not given.", next_step="Give --language, such as en or fa.")
    try:
        if problem := wrong_script(remove_directions(line.text), language):
            raise DataError(f"The text {line.text[:40]!r}: {problem.problem}.", next_step=problem.next_step)
        return frontend.explain(line.text, language)
    except MyXTTSError as error:
        if line.place:
            raise type(error)(f"{line.place}: {error.problem}", next_step=error.next_step) from error
        raise


def _show(explained: Explanation, screen: Screen) -> None:
    """Prints the text, a table of its words, and what has no token."""
    console = screen.console
    console.print(Text(explained.text, "bold"))
    table = Table(box=None, pad_edge=False)
    for heading in ("word", "IPA", "from"):
        table.add_column(heading)
    for word in explained.words:
        source = f"{word.source}, with ezafe" if word.ezafe else word.source
        table.add_row(Text(word.word), Text(word.ipa), source)
    console.print(table)
    for line in _describe(explained):
        console.print(line, markup=False)
    console.print()


def _describe(explained: Explanation) -> Iterator[str]:
    if explained.normalized != explained.text:
        yield f"Spoken as: {explained.normalized}"
    if explained.unknown:
        yield f"Left out, because it has no sound: {' '.join(dict.fromkeys(explained.unknown))}"
    yield f"{explained.num_tokens} tokens."
