"""Writes Persian pages so that GitHub shows them from right to left; by default it shows pages left to right.

The page stands in a `<div dir="rtl">` and each code block in a `<div dir="ltr">`. Short code that begins or ends with a
sign instead of a letter (`--help`, `.venv`, `clips/`) gets a left-to-right mark beside it: otherwise the sign would be
shown at the other end. A right-to-left mark behind code keeps a comma after it in the order of the sentence. One behind
a comma between Latin words does the same for a list of them.
"""

from __future__ import annotations

import re

RTL, LTR, END = '<div dir="rtl">', '<div dir="ltr">', "</div>"
_LEFT_MARK, _RIGHT_MARK = "\u200e", "\u200f"
_BLOCK = r"(```[^\n]*\n.*?^```)"
_FENCE = re.compile(rf"^{LTR}\n\n{_BLOCK}\n\n{END}$|^{_BLOCK}$", re.DOTALL | re.MULTILINE)
_CODE = re.compile(r"[\u200e\u200f]*(?<!`)`([^`\n]+)`(?!`)[\u200e\u200f]*")
_COMMA = re.compile(r"(?<=[A-Za-z0-9)])([،؛])\u200f?(?=\s[\[(*]*[A-Za-z])")


def set_directions(text: str) -> str:
    """The page with its marks; a page that has them already stays as it is."""
    body = text.strip().removeprefix(RTL).removesuffix(END).strip() if text.lstrip().startswith(RTL) else text.strip()
    parts, last = [], 0
    for fence in _FENCE.finditer(body):
        parts += [_mark_text(body[last : fence.start()]), f"{LTR}\n\n{fence[1] or fence[2]}\n\n{END}"]
        last = fence.end()
    parts.append(_mark_text(body[last:]))
    return f"{RTL}\n\n{''.join(parts)}\n\n{END}\n"


def _mark_text(text: str) -> str:
    return _COMMA.sub(rf"\1{_RIGHT_MARK}", _CODE.sub(_mark_code, text))


def _mark_code(code: re.Match[str]) -> str:
    content = code[1]
    before = "" if content[0].isalnum() else _LEFT_MARK
    after = "" if content[-1].isalnum() else _LEFT_MARK
    return f"{before}`{content}`{after}{_RIGHT_MARK}"
