"""docs/tiles.md is the manual of stages/include/tiles: each names everything that the other does."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HEADERS = sorted((ROOT / "stages" / "include" / "tiles").glob("*.h"))
MANUAL = (ROOT / "docs" / "tiles.md").read_text(encoding="utf-8")

#: Namespaces internal to the library.
_INNER = re.compile(r"^namespace (?:detail|tiles::ptx) \{.*?^\} // namespace \S+\n", re.DOTALL | re.MULTILINE)
_TYPE = re.compile(r"^(?:template .*?|  requires .*?)?\b(?:struct|class|enum class|concept) (\w+)")
_ALIAS = re.compile(r"^(?:template <.*> )?using (\w+) =")
_FUNCTION = re.compile(r"(?<![.\w])(?!explicit|requires|alignas|sizeof|static_assert)(\w+)\(")


def declared(text: str) -> set[str]:
    """The public names of a header; names of members are qualified by their type."""
    names, owner, is_public = set(), "", True
    text = re.sub(r"//.*", "", _INNER.sub("", text))
    lines = [line for line in re.sub(r"\n\s+requires", " requires", text).splitlines() if line.strip()]
    for line, following in itertools.pairwise([*lines, ""]):
        depth = len(line) - len(line.lstrip())
        if line.startswith("}"):
            owner = ""
        if depth == 0 and (found := _TYPE.match(line) or _ALIAS.match(line)):
            names.add(found[1])
            opens = line.endswith("{") or (following.endswith("{") and not line.endswith(";"))
            owner, is_public = found[1] if opens else "", True
        elif line.strip() in ("public:", "private:", "protected:"):
            is_public = line.strip() == "public:"
        elif depth == 0 or (depth == 2 and owner and is_public):
            signature = line if "(" in line else line + following
            if (found := _FUNCTION.search(signature)) and found[1] != owner:  # a constructor is not listed
                names.add(f"{owner}::{found[1]}" if depth == 2 else found[1])
    return names


def named() -> set[str]:
    """The names in the first columns of the manual's tables."""
    cells = re.findall(r"^\| (`.*?) \|", MANUAL, re.MULTILINE)
    spans = [span for cell in cells for span in re.findall(r"`([^`]+)`", cell)]
    return {re.sub(r"<[^<>]*>(?=::|\(|$)", "", span).partition("(")[0] for span in spans}


def messages() -> set[str]:
    """The messages of the headers' static_asserts."""
    text = "".join(header.read_text(encoding="utf-8") for header in HEADERS)
    found = re.findall(r'static_assert\(\s*[^"]*?,\s*((?:"[^"]*"\s*)+)\)', text)
    return {"".join(re.findall(r'"([^"]*)"', literals)) for literals in found}


def test_the_manual_names_what_there_is() -> None:
    public = {name for header in HEADERS for name in declared(header.read_text(encoding="utf-8"))}
    assert len(public) > 100
    assert sorted(public - named()) == [], "not in docs/tiles.md"
    assert sorted(named() - public) == [], "in docs/tiles.md alone"


def test_the_manual_has_what_the_compiler_says() -> None:
    section = MANUAL.partition("\n## What the compiler says\n")[2]
    said = {re.sub(r"\s+", " ", line) for line in re.findall(r"^- (.*(?:\n  .*)*)", section, re.MULTILINE)}
    wanted = {message.replace("|", "\\|") for message in messages()}
    assert len(wanted) > 30
    assert sorted(wanted - said) == [], "not in docs/tiles.md"
    assert sorted(said - wanted) == [], "in docs/tiles.md alone"


@pytest.mark.parametrize(
    "text, names",
    [
        ("__device__ inline int lane_id() { return 1; }\n", {"lane_id"}),
        ("namespace detail {\nvoid hidden();\n} // namespace detail\n", set()),
        (
            "struct Turn {\n  int a;\n  __device__ void advance() {\n    f();\n  }\n};\n",
            {"Turn", "Turn::advance"},
        ),
    ],
)
def test_what_counts_as_public(text: str, names: set[str]) -> None:
    assert declared(text) == names
