"""Expressions of the debugger: what of C++ they read."""

import pytest

from ladder.debugger.values import Expression, NoValue

NAMES = {"ring": {"full": 3, "l": 4, "from": 6}, "x": 2, "in": 5, "lambda": 7, "None": 8}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("ring.full", 3),  # all of its letters are also suffixes of numbers
        ("ring.l + 1u", 5),
        ("x * 2.f + .5f", 4.5),
        ("0xff - 15", 240),
        ("x == 2 && !(x > 3)", True),
        ("in + lambda * ring.from + None", 55),  # words of Python
        ("in == 5 and not false || x", True),
    ],
)
def test_the_value_of_an_expression(text: str, value: float) -> None:
    assert Expression(text).value(NAMES.__getitem__) == value


def test_calls_are_not_read() -> None:
    with pytest.raises(NoValue, match="reads names, members, elements and operators"):
        Expression("f(x)")
