"""Expressions for the tests of those who take them: the command line and the live page."""

from __future__ import annotations

import random

WRITTEN = [
    "lane",
    "(lane % 16) * 256 + lane / 16 * 16",
    "(lane - 1) % 8 * 128 + 1024",
    "(lane - 1u) % 8",
    "(lane - 9) / 8",
    "-lane / 3 + -lane % 3",
    "lane & 3 == 0",
    "(lane & 3) == 0",
    "lane ^ (lane >> 3 & 7) << 4",
    "lane ^ lane >> 3 & 7",
    "~lane & 31 | 64",
    "lane < 16 ? 0 : lane < 24 ? 128 : 256",
    "lane < 16 ? -1 : 4u",
    "4 <= lane && lane < 8 || lane > 30",
    "!lane + !!lane * 2",
    "lane == 3 != 1",
    "0x1F + 010 + 0b11 + 4u + 5UL + 6ll + 0",
    "lane - 40 < 4u",
    "lane - 40 < 4ul",
    "-1 < 0x80000000",
    "lane << 3 + 1",
    "1u << lane",
    "-1 >> lane",
    "lane && 16 / lane",
    "not lane or lane bitand 4 and compl lane",
    "0xffffffff + lane",
    "4294967295 + lane",
    "- - + ~ lane",
]
#: What is no expression at all.
REFUSED = [
    "",
    "lane +",
    "lane lane",
    "(lane",
    "lane)",
    "lane ? 1",
    "lane; lane",
    "warp",
    "lane.real",
    "__import__('os').system('true')",
    "print(lane)",
    "[lane]",
    "'a'",
    "1.5 * lane",
    "09",
    "4f",
    "True",
    "lane ** lane",
    "lane // 2",
    "0 if lane else 1",
    "4 <= lane < 8",
    "lane @ lane",
    "lane = 2",
    "lane++",
    "--lane",
    "min(lane)",
    "abs(lane, 1)",
    "min(*lane)",
    "max(a=lane)",
    "min",
    "²",
    "9" * 1900,
    "9" * 5000,
    "(" * 900 + "1" + ")" * 900,
    "-" * 1900 + "1",
    "1 ? " * 400 + "1" + ": 1" * 400,
    "\x00",
]
#: What has no value at lane 0.
UNDEFINED = [
    "1 / lane",
    "1 % lane",
    "1 << 60",
    "1 << lane - 1",
    "1 >> 32",
    "2147483647 + !lane",
    "-(-2147483647 - 1)",
    "(-2147483647 - 1) / -1",
    "65536 * 65536",
    "abs(-2147483647 - 1)",
    "1l << 49",
]


def random_expression(rng: random.Random, depth: int) -> str:
    if depth == 0 or rng.random() < 0.15:
        return rng.choice(
            ["lane", "lane", "0", "1", "3", "7", "16", "32u", "0x7fffffff", "5l", "9ull", "020"]
        )
    shape = rng.random()
    part = [random_expression(rng, depth - 1) for _ in range(3)]
    if shape < 0.08:
        return f"{part[0]} ? {part[1]} : {part[2]}"
    if shape < 0.16:
        return rng.choice("-~!+") + " " + part[0]
    if shape < 0.3:
        return f"({part[0]})"
    operators = ["+", "-", "*", "/", "%", "&", "|", "^", "<<", ">>", "==", "!=", "&&", "||"]
    if not any(sign in text for text in part[:2] for sign in ("<", ">", "=", "?", "!")):
        operators += ["<", "<=", ">", ">="]
    return f"{part[0]} {rng.choice(operators)} {part[1]}"
