"""Paths that are safe to pass to nvcc.

nvcc resolves links and pastes names, in double quotes, into shell commands. So characters that a shell
interprets there are refused; spaces, apostrophes and non-ASCII letters are fine.
"""

from __future__ import annotations

from pathlib import Path

from ladder.errors import BuildError

_OBEYED = ('"', "$", "`", "\\", "\n")


def plain(path: Path) -> Path:
    """Returns the path unchanged. Raises :class:`BuildError` if a shell would interpret part of its name."""
    if obeyed := [character for character in _OBEYED if character in str(path.resolve())]:
        raise BuildError(
            f"{str(path.resolve())!r} has {' and '.join(map(repr, obeyed))} in its name, "
            "which the compiler's shell would obey",
            "Rename it, or the folder, or work in another one.",
        )
    return path


def refuse_comma(name: str, advice: str) -> None:
    """Raises :class:`BuildError` if the name has a comma, at which nvcc's calls of fatbinary end a path."""
    if "," in name:
        raise BuildError(f"{name!r} has a comma, at which the compiler would split it", advice)
