"""Extensions that the wheel brings along, so that its rungs need no compiler: the project's own, with default
options, for the emulator.

An archive's name holds a hash of everything that its extension was made from: the names and contents of the
sources, flags, options, the compiler's version and the emulator's entry points. So one that does not fit is
not found, and the rung is compiled.

Line information names the sources' absolute paths, which an archive has from the machine that made it.
:func:`unpack` replaces them, in place: the path there must be at least as long as the one here.
"""

from __future__ import annotations

import io
import os
import re
import tarfile
from collections.abc import Mapping
from pathlib import Path

from ladder.common import cache, files
from ladder.compile import toolchain
from ladder.compile.libraries import emulator_library
from ladder.compile.target import EmulatorTarget, Target, defines
from ladder.stages import OptionValue, Stage, include_directory

EXTENSION = "ladder_stage.so"
_PACKAGE = Path(__file__).resolve().parents[1]
#: In the package of a wheel; nowhere else.
_FOLDER = _PACKAGE / "_prebuilt"
#: Besides the members that lie beside an extension: the package's path on the machine that made it.
_PLACE = "place"
_MEMBERS = (EXTENSION, "remarks.json", "ptxas.txt")
#: Environment variables by which somebody chooses a compiler or its flags.
_CHOICES = (
    *("CXX", "LADDER_NVCC", "NVCC_APPEND_FLAGS", "NVCC_PREPEND_FLAGS", "NVCC_CCBIN"),
    *("CUDAFE_FLAGS", "PTXAS_FLAGS", "NVVM_FLAGS", "OCG_FLAGS"),
)


def archive(stage: Stage, target: Target, options: Mapping[str, OptionValue]) -> Path | None:
    """The archive of exactly this extension; None if the installation has none, or it is to be compiled by a
    compiler of the user's choice.
    """
    if not (_FOLDER.is_dir() and isinstance(target, EmulatorTarget) and stage.path.is_relative_to(_PACKAGE)):
        return None
    if any(name in os.environ for name in _CHOICES):
        return None
    path = _FOLDER / archive_name(stage, target, options)
    return path if path.is_file() else None


def archive_name(stage: Stage, target: EmulatorTarget, options: Mapping[str, OptionValue]) -> str:
    """The name of the archive with this extension."""
    flags = [*target.own_flags(), *defines(options)]
    parts: list[str | bytes] = [toolchain.REQUIREMENT, target.arch, *flags, stage.computes]
    parts.append(emulator_library().entry_points.read_bytes())
    for folder in (stage.path, include_directory()):
        for path in sorted(files.walk(folder)):
            if path.suffix in files.SOURCE_SUFFIXES:
                parts += [str(path.relative_to(folder)), path.read_bytes()]
    return f"{stage.name}-{target.backend}-{target.arch}-{cache.digest(parts)}.tar.xz"


def pack(extension: Path, archive: Path) -> None:
    """Writes an extension that was built here, and what was found out about it, to an archive."""
    with tarfile.open(archive, "w:xz", preset=9) as tar:
        for name in _MEMBERS:
            if (path := extension.with_name(name)).is_file():
                _add(tar, name, path.read_bytes())
        _add(tar, _PLACE, os.fsencode(_PACKAGE))


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(data)
    tar.addfile(member, io.BytesIO(data))


def unpack(archive: Path, directory: Path) -> bool:
    """Unpacks an archive into a directory; returns whether the package's path here fits into it."""
    with tarfile.open(archive, "r:xz") as tar:
        contents = {member.name: _read(tar, member) for member in tar}
    there, here = contents.pop(_PLACE), os.fsencode(_PACKAGE)
    if len(here) > len(there):
        return False
    for name in _MEMBERS:
        if name in contents:
            (directory / name).write_bytes(_moved(contents[name], there, here))
    return True


def _read(tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = tar.extractfile(member)
    assert file is not None
    return file.read()


def _moved(data: bytes, there: bytes, here: bytes) -> bytes:
    """Replaces the folder in quoted paths; blanks after the quote keep the data's size, as PTX allows."""
    padding = b" " * (len(there) - len(here))
    return re.sub(
        b'"' + re.escape(there) + rb'(/[^"\n\0]*")', lambda found: b'"' + here + found[1] + padding, data
    )
