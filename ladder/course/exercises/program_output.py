"""What the programs of exercises print of a wrong result, and its translation.

A program's ``main``, in C++, prints it in English with the numbers filled in.
"""

from __future__ import annotations

from ladder.run.emulator import retold

#: With fields, as in :data:`ladder.run.emulator.FORMS`.
PRINTED = (
    "row {row}: {element} is {found}, should be {wanted}, with m = {m} and l = {l}",
    "row {row}: lane {lane} has {found}, should have {wanted}",
    "rank {rank}, query {query}: the sum is {found}, should be {wanted}",
    "rank {rank}, key {key}: the gradient is {found}, should be {wanted}",
    "rank {rank} of {ranks} with {rows} rows: {count} bytes by your formula, {sent} are sent",
    "rank {rank} has its late chunk first: its rows must be in their order",
    "rank {rank} has chunk {chunk}; there are chunks 0 to {last}",
    "rank {rank} has {found}, should have {wanted}",
    "rank {rank} adds {count} values and rank {other} adds {more}: all wait for the slowest",
    "chunk {chunk} is at {count} ranks, should be at one",
    "the largest is {value}, counted {count} times, and occurs {wanted} times",
    "{value} was counted {count} times, and occurs {wanted} times",
    "the largest difference is {found}, should be {wanted}",
    "the sum is {found}, should be {wanted}",
    "{element} is {found}, should be {wanted}, the largest of {first} to {last}",
    "{element} is {found}, should be {wanted}, the sum of {terms} for i = 0 to {last}",
    "{element} is {found}, should be {wanted}, a relative error of {error}",
    "{element} is {found}, should be {wanted}",
)


def printed(text: str) -> str:
    """The output of a program in the reader's language; lines of other forms stay as they are."""
    return "\n".join(retold(line, PRINTED) for line in text.splitlines())
