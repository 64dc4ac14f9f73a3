"""The environment variables that the emulator reads, validated before use."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from ladder.errors import LadderError

ARCH = "LADDER_ARCH"
CHECK = "LADDER_CHECK"
INSTRUCTION_LIMIT = "LADDER_WARP_INSTRUCTION_LIMIT"
THREADS = "LADDER_THREADS"

#: The limit set by :func:`instruction_limit`.
_limit: ContextVar[int | None] = ContextVar("instruction_limit", default=None)

_MOST = {THREADS: 1024, INSTRUCTION_LIMIT: 2**63 - 1}


def number(name: str, otherwise: int) -> int:
    """Reads ``LADDER_THREADS`` or ``LADDER_WARP_INSTRUCTION_LIMIT``. Raises :class:`LadderError`."""
    text = os.environ.get(name, "")
    if not text:
        return otherwise
    # isdigit() alone would accept superscripts.
    if not (text.isascii() and text.isdecimal()):
        raise LadderError(f"{name} is {text!r}, not a number", "Unset it for the default.")
    if len(text) > 20 or int(text) > _MOST[name]:
        raise LadderError(f"{name} is {text}; it may be {_MOST[name]} at most", "Unset it for the default.")
    return int(text)


@contextmanager
def instruction_limit(most: int) -> Iterator[None]:
    """Within the block, ends launches in which a warp has executed ``most`` instructions, unless the user has
    set ``LADDER_WARP_INSTRUCTION_LIMIT``.
    """
    token = _limit.set(most)
    try:
        yield
    finally:
        _limit.reset(token)


def most_instructions(otherwise: int) -> int:
    """The user's limit, or else that of :func:`instruction_limit`, or else ``otherwise``.

    Raises :class:`LadderError`.
    """
    limit = _limit.get()
    return number(INSTRUCTION_LIMIT, otherwise if limit is None else limit)


def check_is_on() -> bool:
    """Whether ``LADDER_CHECK`` asks for the sanitizer. Raises :class:`LadderError`."""
    text = os.environ.get(CHECK, "")
    if text not in ("", "0", "1"):
        raise LadderError(f"{CHECK} is {text!r}", "It is 1 to run programs under the sanitizer, or unset.")
    return text == "1"


def validate() -> None:
    """Raises :class:`LadderError` for a value that would keep the emulator from starting."""
    from ladder.stages import require_arch

    for name in _MOST:
        number(name, 0)
    check_is_on()
    if arch := os.environ.get(ARCH):
        require_arch(arch, ARCH)
