"""Compares the table of opcodes with its users: binding, the sanitizer, and no comparisons by name."""

from __future__ import annotations

import re
from pathlib import Path

from ladder import _emulator

EMULATOR = Path(__file__).parents[2] / "emulator"

ROWS = _emulator.opcode_rows()

#: Opcodes that the sanitizer ignores: they concern caches, or order accesses that are not modelled.
EXEMPT = {
    "prefetch",
    "prefetchu",
    "discard",
    "applypriority",
    "createpolicy",
    "cp.async.bulk.prefetch",
    "tensormap",
    "fence.proxy",
    "membar.proxy",
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


def test_no_layer_compares_opcodes() -> None:
    comparison = re.compile(
        r"""opcode(\(\))?\s*[!=]=|[!=]=\s*[\w.>-]*opcode\b|opcode\w*(\(\))?\.(starts_with|ends_with|find|compare)\("""
    )
    found = {
        path.relative_to(EMULATOR).as_posix(): line.strip()
        for path in sorted(EMULATOR.rglob("*"))
        if path.suffix in (".cpp", ".h")
        for line in path.read_text().splitlines()
        if comparison.search(line)
    }
    assert found == {
        # Parenthesised lists are syntax, and only calls have them.
        "ptx/body_parser.cpp": 'const bool is_call = result.opcode == "call";',
    }
