"""Describes sets of rows, columns and lanes concisely."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

#: The share of a pattern's positions that must be wrong; not all, since some are right by chance.
MOST = 0.9
_PERIODS = (2, 4, 8, 16, 32, 64, 128)


def describe(wrong: Sequence[int], count: int) -> str:
    """Describes a set of numbers below ``count``: as all, a range, a repeating pattern, or a list.

    >>> describe([8, 9, 24, 25], 32)
    '8-9 of every 16'
    """
    if len(wrong) == count:
        return f"all {count}" if count > 1 else "the only one"
    if wrong[-1] - wrong[0] + 1 == len(wrong):
        place = ""
        if len(wrong) > 1:
            place = (
                ", the first ones" if wrong[0] == 0 else ", the last ones" if wrong[-1] == count - 1 else ""
            )
        return f"{numbers(wrong)} of {count}{place}"
    for period in _PERIODS:
        if 2 * period > count:
            break
        rest = sorted({one % period for one in wrong})
        predicted = sum(1 for one in range(count) if one % period in rest)
        if len(rest) <= period // 2 and len(wrong) >= MOST * predicted:
            return f"{numbers(rest)} of every {period}"
        if len(rest) < period and len(wrong) == predicted:
            return f"all but {numbers(sorted(set(range(period)) - set(rest)))} of every {period}"
    return f"{len(wrong)} of {count}: {numbers(wrong)}"


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
