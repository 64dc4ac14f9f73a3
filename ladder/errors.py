"""Errors for the user: a message, and advice if there is any."""

from __future__ import annotations


class LadderError(Exception):
    """An error that is shown to the user without a traceback.

    ``message`` says what is wrong; ``hint``, a sentence or a command, says what to do about it and may be
    empty.
    """

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message, hint)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n{self.hint}" if self.hint else self.message


class InvalidProblem(LadderError, ValueError):
    """The sizes, tensors or options do not form a valid problem."""


class UnsupportedProblem(LadderError, ValueError):
    """The problem is valid, but this stage does not take it; the message says what it does take."""


class StageError(LadderError):
    """A stage folder is incomplete, or its stage.toml is invalid."""


class BuildError(LadderError):
    """A compiler or linker failed on a stage or a program."""


class ToolchainError(LadderError):
    """A compiler, a header or a library is missing and could not be fetched."""


class CacheError(LadderError):
    """The cache directory cannot be written: full, read-only, or not a directory."""


class ExecutionError(LadderError):
    """A kernel failed while it ran: a fault of the emulated GPU or a CUDA error."""


class CommunicationError(LadderError):
    """A rank of a process group has ended, or does not answer."""


class UnspecifiedOutput(ExecutionError):
    """Outputs depend on what CUDA leaves unspecified: an order, or memory that was never written."""


class ProfilerError(LadderError):
    """Nsight Compute is missing, or cannot read the counters here."""


class EarlierName(FutureWarning):
    """A rung is named that is part of another rung today. The other rung is used."""
