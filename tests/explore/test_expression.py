"""Expressions from a command line: what they are worth, and that they can do nothing else."""

from __future__ import annotations

import pytest

from ladder.expression import Expression, ExpressionError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("lane", lambda lane: lane),
        ("(lane % 16) * 256 + (lane // 16) * 16", lambda lane: lane % 16 * 256 + lane // 16 * 16),
        ("lane / 4 * 256", lambda lane: lane // 4 * 256),
        ("lane ^ (lane >> 3 & 7) << 4", lambda lane: lane ^ (lane >> 3 & 7) << 4),
        ("~lane & 31 | 64", lambda lane: ~lane & 31 | 64),
        ("0 if lane < 16 else 128", lambda lane: 0 if lane < 16 else 128),
        (
            "min(lane, 7) * 4 + max(lane, 9, 3) - abs(-lane)",
            lambda lane: min(lane, 7) * 4 + max(lane, 9) - lane,
        ),
        ("(4 <= lane < 8) * 4 + (lane == 3 or lane > 30) + (not lane)", None),
        (" 0x10 + 0b11 ", lambda lane: 19),
    ],
)
def test_values(text: str, expected) -> None:
    expression = Expression(text)
    for lane in range(32):
        wanted = expected(lane) if expected else (4 <= lane < 8) * 4 + (lane == 3 or lane > 30) + (not lane)
        assert expression(lane=lane) == wanted


@pytest.mark.parametrize(
    "text",
    [
        "",
        "lane +",
        "lane; lane",
        "warp",
        "lane.real",
        "__import__('os').system('true')",
        "print(lane)",
        "(lambda: 1)()",
        "[lane]",
        "'a'",
        "1.5 * lane",
        "True",
        "lane ** lane",
        "lane @ lane",
        "lane in lane",
        "min(lane)",
        "abs(lane, 1)",
        "min(*lane)",
        "max(a=lane)",
        "9" * 5000,
        "(" * 900 + "1" + ")" * 900,
        "-" * 1900 + "1",
        "\x00",
    ],
)
def test_what_is_no_expression(text: str) -> None:
    with pytest.raises(ExpressionError):
        Expression(text)(lane=1)


@pytest.mark.parametrize("text", ["1 // lane", "1 % lane", "1 << 60", "1 << lane - 1", "1 << 48 << 48"])
def test_what_has_no_value(text: str) -> None:
    with pytest.raises(ExpressionError):
        Expression(text)(lane=0)
