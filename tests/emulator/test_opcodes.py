"""Compares the table of opcodes with its users: binding, the sanitizer, and no comparisons by name."""

from __future__ import annotations

import re
from pathlib import Path

from ladder import _emulator

EMULATOR = Path(__file__).parents[2] / "emulator"

ROWS = _emulator.opcode_rows()

#: Opcodes that the sanitizer ignores: they concern caches or images, or order accesses that are not modelled.
EXEMPT = {
    "prefetch",
    "prefetchu",
    "discard",
    "applypriority",
    "createpolicy",
    "cp.async.bulk.prefetch",
    "fence.proxy",
    "membar.proxy",
    "tex",
    "tld4",
    "suld",
    "sust",
}


def test_every_bound_opcode_has_a_row() -> None:
    assert {form.split(".")[0] for form, _, _ in ROWS} == set(_emulator.bound_opcodes())


def test_the_sanitizer_checks_every_effect() -> None:
    assert {form for form, effect, _ in ROWS if effect == "unchecked"} == EXEMPT
    for form, effect, is_checked in ROWS:
        assert is_checked == (effect not in ("none", "unchecked")), form


def test_every_row_can_be_reached() -> None:
    """The first matching row counts, so a form must not follow a more general one."""
    seen: dict[str, list[set[str]]] = {}
    for form, _, _ in ROWS:
        opcode, *modifiers = form.split(".")
        above = seen.setdefault(opcode, [])
        assert not any(words <= set(modifiers) for words in above), form
        above.append(set(modifiers))


def lines_of(*layers: str) -> dict[str, list[str]]:
    """By file, the lines of C++ of these layers; of all if none is named."""
    return {
        path.relative_to(EMULATOR).as_posix(): path.read_text().splitlines()
        for layer in layers or ("",)
        for path in sorted((EMULATOR / layer).rglob("*"))
        if path.suffix in (".cpp", ".h")
    }


def matches(pattern: str, files: dict[str, list[str]]) -> dict[str, str]:
    """By file, the last line in which the pattern is found."""
    return {name: line.strip() for name, lines in files.items() for line in lines if re.search(pattern, line)}


def test_no_layer_compares_opcodes() -> None:
    comparison = (
        r"opcode(\(\))?\s*[!=]=|[!=]=\s*[\w.>-]*opcode\b"
        r"|opcode\w*(\(\))?\.(starts_with|ends_with|find|compare)\("
    )
    assert matches(comparison, lines_of()) == {
        # Parenthesised lists are syntax, and only calls have them.
        "ptx/body_parser.cpp": 'const bool is_call = result.opcode == "call";',
        # Of which ptxas makes one instruction each: known of ptxas, not of PTX.
        "timing/facts.cpp": 'source.opcode == "ex2" || source.opcode == "ldmatrix" || '
        "fact.kind == Kind::block_barrier ||",
    }


def test_only_binding_reads_modifiers() -> None:
    """The other layers ask for traits: they neither look a modifier up nor compare strings with literals."""
    layers = lines_of("machine", "sanitizer", "runtime", "python")
    assert matches(r"""\bmodifiers\b|\bhas\("|[!=]= ?"|"[^"]*" ?[!=]= """, layers) == {}


def test_every_trait_is_asked_for_and_every_modifier_is_bound() -> None:
    table = (EMULATOR / "program/opcodes.def").read_text()
    code = "\n".join(line for lines in lines_of().values() for line in lines)
    enumeration = re.search(r"enum Trait : .*?\{(.*?)\};", code, re.DOTALL)
    assert enumeration is not None
    traits = set(re.findall(r"(\w+) = 1ull <<", enumeration[1]))
    in_table = {
        word
        for columns in re.findall(r"^(?:OPCODE|BITWISE|MODIFIER)\(\"[^\"]*\", ([^,)]*)", table, re.MULTILINE)
        for word in columns.split(" | ")
    }
    assert in_table - {"nothing"} == traits == set(re.findall(r"\b[Tt]rait::(\w+)", code)) & traits
    binding = "\n".join(line for lines in lines_of("instructions").values() for line in lines)
    types = re.findall(r"^TYPE\((\w+),", (EMULATOR / "ptx/types.def").read_text(), re.MULTILINE)
    for modifier in re.findall(r"^MODIFIER\(\"([^\"]*)\"", table, re.MULTILINE):
        assert modifier in types or f'"{modifier}"' in binding, modifier
