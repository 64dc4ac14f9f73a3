"""Errors in words for the person at the keyboard: a message, and a way out if there is one."""

from __future__ import annotations


class LadderError(Exception):
    """An error to be shown without a traceback.

    ``message`` says what is wrong, ``hint`` what to do about it (a sentence or a command, may be empty).
    """

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message, hint)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n{self.hint}" if self.hint else self.message


class InvalidProblem(LadderError, ValueError):
    """Sizes, tensors or options that make no problem at all."""


class UnsupportedProblem(LadderError, ValueError):
    """A sound problem that this stage does not take; the message names what it does take."""


class StageError(LadderError):
    """A stage folder that is missing something or whose stage.toml does not hold what it must."""


class BuildError(LadderError):
    """A compiler or linker failed on a stage or a program."""


class ToolchainError(LadderError):
    """A compiler, a header or a library is missing and could not be fetched."""


class CacheError(LadderError):
    """The cache directory cannot be written: full, read-only, or not a directory."""


class ExecutionError(LadderError):
    """A kernel failed while it ran: a fault of the emulated GPU or a CUDA error."""


class ProfilerError(LadderError):
    """Nsight Compute is missing, or cannot read the counters here."""
