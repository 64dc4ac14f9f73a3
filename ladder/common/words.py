"""Describes sets of rows, columns and lanes concisely."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ladder.common.wording import said

#: The share of a pattern's positions that must be wrong; not all, since some are right by chance.
MOST = 0.9
_PERIODS = (2, 4, 8, 16, 32, 64, 128)


def describe(wrong: Sequence[int], count: int) -> str:
    """Describes a set of numbers below ``count``: as all, a range, a repeating pattern, or a list.

    >>> describe([8, 9, 24, 25], 32)
    '8-9 of every 16'
    """
    if len(wrong) == count:
        return said("all {count}", count=count) if count > 1 else said("the only one")
    if wrong[-1] - wrong[0] + 1 == len(wrong):
        if len(wrong) > 1 and wrong[0] == 0:
            return said("{which} of {count}, the first ones", which=numbers(wrong), count=count)
        if len(wrong) > 1 and wrong[-1] == count - 1:
            return said("{which} of {count}, the last ones", which=numbers(wrong), count=count)
        return said("{which} of {count}", which=numbers(wrong), count=count)
    for period in _PERIODS:
        if 2 * period > count:
            break
        rest = sorted({one % period for one in wrong})
        predicted = sum(1 for one in range(count) if one % period in rest)
        if len(rest) <= period // 2 and len(wrong) >= MOST * predicted:
            return said("{which} of every {period}", which=numbers(rest), period=period)
        if len(rest) < period and len(wrong) == predicted:
            right = numbers(sorted(set(range(period)) - set(rest)))
            return said("all but {which} of every {period}", which=right, period=period)
    return said("{n} of {count}: {which}", n=len(wrong), count=count, which=numbers(wrong))


def numbers(values: Iterable[int], most: int = 8) -> str:
    """Writes numbers as ranges, at most ``most`` of them.

    >>> numbers([0, 1, 2, 3, 8])
    '0-3, 8'
    """
    parts: list[list[int]] = []
    for value in values:
        if parts and value == parts[-1][-1] + 1:
            parts[-1].append(value)
        else:
            parts.append([value])
    shown = [str(part[0]) if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in parts[:most]]
    return ", ".join(shown) + (", ..." if len(parts) > most else "")


def told_apart(got: float, wanted: float) -> tuple[str, str]:
    """Formats both with enough digits to tell them apart, at least four."""
    digits = next((n for n in range(4, 17) if f"{got:.{n}g}" != f"{wanted:.{n}g}"), 17)
    return f"{got:.{digits}g}", f"{wanted:.{digits}g}"


def listed(names: Sequence[str]) -> str:
    """Writes names as a sentence has them.

    >>> listed(["dq", "dk", "dv"])
    'dq, dk and dv'
    """
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
