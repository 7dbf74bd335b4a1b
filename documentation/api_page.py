"""The page of the Python interface: signatures and docstrings of all public names, read from the source."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from documentation.words import Language

_SOURCE = Path(__file__).parents[1] / "src"
_TITLES: dict[Language, tuple[str, str, str]] = {
    "en": (
        "Python API",
        "Made from the docstrings by `make docs`; do not edit.",
        (
            "All public names, those that most programs need first. Each is imported from `myxtts`, as in "
            "`from myxtts import Trainer`, and loaded when it is first used: `import myxtts` alone loads no TensorFlow."
        ),
    ),
    "fa": (
        "رابط پایتون (API)",
        "این صفحه را make docs از روی docstringها می‌سازد؛ دستی ویرایش نکنید.",
        (
            "همهٔ نام‌های عمومی؛ اول آن‌هایی که بیشتر لازم می‌شوند. هر کدام را از `myxtts` import کنید، مثل "
            "`from myxtts import Trainer`. خود `import myxtts` کتابخانهٔ TensorFlow را load نمی‌کند. "
            "توضیح‌ها همان docstringهای انگلیسی‌اند."
        ),
    ),
}
_ORDER = (
    *("XTTSConfig", "Trainer", "Synthesizer", "Waveform", "open_batches", "Batch", "setup_gpu_strategy", "open_corpus"),
    *("Utterance", "FrontEnd", "FeatureStore", "TFNativeDataLoader", "detect_hardware", "choose_plan", "DataConfig"),
    *("ModelConfig", "TrainingConfig", "XTTS", "MyXTTSError"),
)
_MAX_SIGNATURE = 100
_EXAMPLE = re.compile(r"^>>> .*(?:\n>>> .*)*", re.MULTILINE)
Definition = ast.ClassDef | ast.FunctionDef


def make_api_page(language: Language) -> str:
    title, notice, intro = _TITLES[language]
    homes = _read_homes()
    assert set(homes) == set(_ORDER), set(homes) ^ set(_ORDER)
    found = {name: _find(name, homes[name]) for name in _ORDER}
    rows = [f"| [`{name}`](#{name.lower()}) | {_summarize(node)} |" for name, node in found.items()]
    index = "\n".join(["| name | what it is |", "|---|---|", *rows])
    entries = "\n\n".join([index, *(_describe(name, node) for name, node in found.items())])
    if language == "fa":
        entries = f'<div dir="ltr">\n\n{entries}\n\n</div>'
    return f"# {title}\n\n<!-- {notice} -->\n\n{intro}\n\n{entries}\n"


def _read_homes() -> dict[str, str]:
    """Each public name with the module that defines it, from `_HOMES` of the package."""
    tree = ast.parse((_SOURCE / "myxtts" / "__init__.py").read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "_HOMES":
            homes: dict[str, str] = ast.literal_eval(node.value)
            return homes
    raise AssertionError("myxtts/__init__.py has no _HOMES")


def _find(name: str, module: str) -> Definition:
    path = _SOURCE.joinpath(*module.split("."))
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, Definition) and node.name == name:
            return node
        if isinstance(node, ast.ImportFrom) and node.module and name in [one.asname or one.name for one in node.names]:
            return _find(name, node.module)
    raise AssertionError(f"{module} does not define {name}")


def _describe(name: str, node: Definition) -> str:
    if isinstance(node, ast.FunctionDef):
        return f"## {name}\n\n```python\n{_sign(node)}\n```\n\n{_read_docstring(node)}"
    init = next((one for one in node.body if isinstance(one, ast.FunctionDef) and one.name == "__init__"), None)
    signature = f"```python\n{_sign(init, node.name)}\n```\n\n" if init else ""
    parts = [f"## {name}\n\n{signature}{_read_docstring(node)}", *_list_fields(node), *_list_methods(node)]
    return "\n\n".join(part.strip() for part in parts if part.strip())


def _list_fields(node: ast.ClassDef) -> Iterator[str]:
    fields = [
        f"| `{ast.unparse(one.target)}` | `{ast.unparse(one.annotation).replace('|', 'or')}` |"
        for one in node.body
        if isinstance(one, ast.AnnAssign) and not ast.unparse(one.target).startswith("_")
    ]
    # Settings have a page of their own.
    if fields and not any(ast.unparse(base) in ("Section", "BaseModel") for base in node.bases):
        yield "| field | type |\n|---|---|\n" + "\n".join(fields)


def _list_methods(node: ast.ClassDef) -> Iterator[str]:
    for method in node.body:
        if isinstance(method, ast.FunctionDef) and not method.name.startswith("_") and ast.get_docstring(method):
            marks = {ast.unparse(one) for one in method.decorator_list}
            full_name = f"{node.name}.{method.name}"
            shown = full_name if "property" in marks else _sign(method, full_name)
            yield f"```python\n{shown}\n```\n\n{_read_docstring(method)}"


def _sign(node: ast.FunctionDef, name: str | None = None) -> str:
    """The signature, one line for each parameter where a single line would be too long."""
    arguments = ast.parse(f"def f({ast.unparse(node.args)}): ...").body[0]
    assert isinstance(arguments, ast.FunctionDef)
    plain = arguments.args.args
    if plain and plain[0].arg in ("self", "cls"):
        del plain[0]
    returned = f" -> {ast.unparse(node.returns)}" if node.returns and node.name != "__init__" else ""
    name = name or node.name
    line = f"{name}({ast.unparse(arguments.args)}){returned}"
    if len(line) <= _MAX_SIGNATURE:
        return line
    parameters = "".join(f"    {one},\n" for one in _split(arguments.args))
    return f"{name}(\n{parameters}){returned}"


def _split(arguments: ast.arguments) -> Iterator[str]:
    """Each parameter as it is written in a signature."""
    plain = [*arguments.posonlyargs, *arguments.args]
    defaults = [*([None] * (len(plain) - len(arguments.defaults))), *arguments.defaults]
    yield from map(_show_parameter, plain, defaults)
    if arguments.vararg:
        yield f"*{ast.unparse(arguments.vararg)}"
    elif arguments.kwonlyargs:
        yield "*"
    yield from map(_show_parameter, arguments.kwonlyargs, arguments.kw_defaults)
    if arguments.kwarg:
        yield f"**{ast.unparse(arguments.kwarg)}"


def _show_parameter(parameter: ast.arg, default: ast.expr | None) -> str:
    return ast.unparse(parameter) + (f" = {ast.unparse(default)}" if default else "")


def _summarize(node: Definition) -> str:
    """The first sentence of a docstring."""
    first = " ".join((ast.get_docstring(node) or "").partition("\n\n")[0].split())
    return first.partition(". ")[0].removesuffix(".").replace("|", "or") + "."


def _read_docstring(node: Definition) -> str:
    """The docstring, with its example as a code block."""
    return _EXAMPLE.sub(lambda found: _fence(found[0]), ast.get_docstring(node) or "")


def _fence(example: str) -> str:
    lines = [line.removeprefix(">>> ") for line in example.splitlines()]
    return "\n".join(["```python", *lines, "```"])
