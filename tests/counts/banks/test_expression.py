"""Expressions from a command line: they have their values in C++, and can do nothing else."""

from __future__ import annotations

import random
import subprocess

import pytest
from expressions import REFUSED, UNDEFINED, WRITTEN, random_expression

from ladder.compile import toolchain
from ladder.counts.banks import Expression, ExpressionError


def value_or_none(text: str, lane: int) -> int | None:
    try:
        return Expression(text)(lane=lane)
    except ExpressionError:
        return None


def test_values_are_those_of_cpp(tmp_path) -> None:
    """Compares the expressions listed here and some hundred random ones with C++, where they are defined."""
    rng = random.Random(20)
    texts = WRITTEN + [random_expression(rng, 4) for _ in range(300)]
    wanted = {(n, lane): value_or_none(text, lane) for n, text in enumerate(texts) for lane in (0, 1, 5, 31)}
    defined = {key: value for key, value in wanted.items() if value is not None}
    assert len(defined) > 600, "most of them must be worth something"
    functions = [f"long long f{n}(int lane) {{ return {text}; }}" for n, text in enumerate(texts)]
    calls = [f'  std::printf("%lld\\n", f{n}({lane}));' for n, lane in defined]
    source = tmp_path / "values.cpp"
    source.write_text("\n".join(["#include <cstdio>", *functions, "int main() {", *calls, "}\n"]))
    program = tmp_path / "values"
    subprocess.run([toolchain.gxx(), "-std=c++20", "-w", str(source), "-o", str(program)], check=True)
    printed = subprocess.run([str(program)], check=True, capture_output=True, text=True).stdout.split()
    for (n, lane), got in zip(defined, printed, strict=True):
        assert defined[n, lane] == int(got), f"{texts[n]} at lane {lane}"


@pytest.mark.parametrize("text", WRITTEN)
def test_what_is_written_has_a_value_at_some_lane(text: str) -> None:
    assert any(value_or_none(text, lane) is not None for lane in range(32))


def test_functions() -> None:
    text = "min(lane, 7) * 4 + max(lane, 9, 3) - abs(-lane)"
    assert [Expression(text)(lane=lane) for lane in (0, 9, 31)] == [9, 28, 28]
    assert Expression("max(lane - 5, 2u)")(lane=0) == 2**32 - 5


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_no_expression(text: str) -> None:
    with pytest.raises(ExpressionError):
        Expression(text)(lane=1)


def test_long_is_not_deep() -> None:
    assert Expression("+".join(["lane"] * 300))(lane=2) == 600


@pytest.mark.parametrize("text", UNDEFINED)
def test_what_has_no_value(text: str) -> None:
    with pytest.raises(ExpressionError):
        Expression(text)(lane=0)


def test_errors_say_where_and_what_would_work() -> None:
    with pytest.raises(ExpressionError, match=r"(?m)^lane // 2\n      \^\nIn C // begins a comment"):
        Expression("lane // 2")
    with pytest.raises(ExpressionError, match=r"In C: condition \? value : other"):
        Expression("0 if lane else 1")
    with pytest.raises(ExpressionError, match=r"(?m)&& joins two:\n4 <= lane < 8\n          \^"):
        Expression("4 <= lane < 8")
