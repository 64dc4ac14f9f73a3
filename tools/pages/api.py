"""The reference of what ``import ladder`` offers, out of its docstrings: docs/api.md.

    python -m tools.pages.api

writes the page. A test runs the examples in the docstrings.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ladder

PAGE = Path(__file__).parents[2] / "docs" / "api.md"
_HEAD = """# Reference: what `import ladder` offers

`python -m tools.pages.api` writes this page out of the docstrings; a test runs the examples. Each begins with
`import torch` and `import ladder`, and runs without a GPU. [Which rung computes what](rungs.md) has the
limits of each rung.
"""
_ERRORS = """## Errors

Each is a `LadderError`, with a `message` that says what is wrong and a `hint` that says what to do, or "".

| error | |
| --- | --- |
"""
#: A role of reStructuredText, and what it names: the last part with "~".
_ROLE = re.compile(r":\w+:`([^`]+)`")


def exports() -> dict[str, Any]:
    """What ``ladder`` exports besides errors, by name."""
    found = {name: getattr(ladder, name) for name in ladder.__all__}
    return {name: one for name, one in found.items() if not _is_error(one)}


def page() -> str:
    errors = [one for one in map(ladder.__dict__.get, ladder.__all__) if _is_error(one)]
    rows = [f"| `{one.__name__}` | {_prose(inspect.getdoc(one) or '').splitlines()[0]} |" for one in errors]
    return "\n".join([_HEAD, *map(_entry, exports()), _ERRORS + "\n".join(rows), ""])


def _is_error(one: Any) -> bool:
    return isinstance(one, type) and issubclass(one, ladder.LadderError)


def _entry(name: str) -> str:
    """The section of one export: its signature, and its docstring with examples in blocks."""
    one = exports()[name]
    blocks = [_block(block) for block in _blocks(inspect.getdoc(one) or "")]
    return "\n\n".join([f"## ladder.{name}", _signature(name, one), *blocks, ""])


def _signature(name: str, one: Any) -> str:
    parameters = inspect.signature(one).parameters.values()
    lines, is_named = [], False
    for parameter in parameters:
        if parameter.kind is parameter.KEYWORD_ONLY and not is_named:
            lines.append("    *,")
            is_named = True
        default = "" if parameter.default is parameter.empty else f" = {_value(parameter.default)}"
        lines.append(f"    {parameter.name}: {_type(parameter.annotation)}{default},")
    return "\n".join(["```python", f"{name}(", *lines, ")", "```"]) if lines else f"```python\n{name}()\n```"


def _type(annotation: Any) -> str:
    return str(getattr(annotation, "__forward_arg__", annotation))


def _value(default: Any) -> str:
    return str(getattr(default, "__name__", None) or repr(default))


def _blocks(text: str) -> Iterator[str]:
    """Paragraphs; an example is one of them."""
    yield from re.split(r"\n\n(?! )", text)


def _block(block: str) -> str:
    if block.startswith(">>>"):
        return f"```pycon\n{block}\n```"
    first, *indented = re.split(r"\n\n(?=    )", block)
    return "\n\n".join([_prose(first), *indented])


def _prose(text: str) -> str:
    """Markdown of a docstring's text."""
    return _ROLE.sub(lambda found: f"`{found[1].removeprefix('~')}`", text).replace("``", "`")


def main() -> int:
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
