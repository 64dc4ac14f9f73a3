"""Paths that nvcc can hand to its shell.

nvcc writes names into commands of a shell, between double quotes, and instead of a link its target. What a
shell would obey there is refused. Spaces, apostrophes and letters of any language may stand in a path.
"""

from __future__ import annotations

from pathlib import Path

from ladder.errors import BuildError

_OBEYED = ('"', "$", "`", "\\", "\n")


def plain(path: Path) -> Path:
    """The path. Raises :class:`BuildError` if nvcc's shell would obey a part of its name."""
    if obeyed := [character for character in _OBEYED if character in str(path.resolve())]:
        raise BuildError(
            f"{str(path.resolve())!r} has {' and '.join(map(repr, obeyed))} in its name, "
            "which the compiler's shell would obey",
            "Rename it, or the folder, or work in another one.",
        )
    return path
