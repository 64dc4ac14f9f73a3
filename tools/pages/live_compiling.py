"""Compiles kernels of live pages to PTX: several versions of a file at once, since nvcc spends most of its
time on headers. Each version stands in a namespace of its own.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ladder.compile.messages import failure
from ladder.course.serving import Kernel, debugging_tables, without_folders
from ladder.errors import BuildError

#: nvcc puts a hash of the source's path and of its text into the name of what is in an anonymous namespace.
_OWN_NAMESPACE = re.compile(r"\b(?:version_\d+|_GLOBAL__N__\w+)::")
_LAUNCH = re.compile(r"^void ladder::launch\(([^)]*)\)", re.MULTILINE)
_INCLUDE = re.compile(r"^#include .*$", re.MULTILINE)


def together(texts: Sequence[str], file: str) -> str:
    """One source with all versions of the file, each with the line numbers that it has by itself."""
    if len(texts) == 1:
        return texts[0]
    includes = list(dict.fromkeys(line for text in texts for line in _INCLUDE.findall(text)))
    versions = []
    for number, text in enumerate(texts):
        launch = _LAUNCH.search(text)
        # What a version defines in ladder:: is its own; everything else there is the headers'.
        own = f"namespace ladder {{ using namespace ::ladder; void launch({launch[1]}); }}" if launch else ""
        body = _INCLUDE.sub("", text)
        versions.append(f'namespace version_{number} {{ {own}\n#line 1 "{file}"\n{body}\n}}')
    return "\n".join([*includes, *versions, ""])


def demangled(mangled: Sequence[str]) -> list[str]:
    if not mangled:
        return []
    done = subprocess.run(["c++filt", *mangled], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def plain_names(mangled: Sequence[str]) -> list[str]:
    """The names without the namespaces in which a version or a file has them."""
    return [_OWN_NAMESPACE.sub("", name) for name in demangled(mangled)]


def kernel_names(ptx: str, count: int) -> list[dict[str, str]]:
    """For each of so many versions: by plain name, the name that the PTX has for its kernel."""
    found: list[dict[str, str]] = [{} for _ in range(count)]
    entries = re.findall(r"\.entry\s+(\w+)", ptx)
    for entry, name in zip(entries, demangled(entries), strict=True):
        version = re.search(r"\bversion_(\d+)::", name)
        found[int(version[1]) if version else 0][_OWN_NAMESPACE.sub("", name)] = entry
    return found


def compiled(texts: Sequence[str], command: Sequence[str], file: str) -> str:
    """The PTX of all versions. Raises :class:`ladder.errors.BuildError`."""
    with tempfile.TemporaryDirectory(prefix="ladder-") as name:
        folder = Path(name)
        (folder / file).write_text(together(texts, file), encoding="utf-8")
        words = [*command, "-w", file, "-o", "out.ptx"]
        done = subprocess.run(words, cwd=folder, capture_output=True, text=True)
        if done.returncode:
            raise failure(file, "does not compile", done.stdout + done.stderr, words)
        return without_folders((folder / "out.ptx").read_text(encoding="utf-8"))


def _error(text: str, command: Sequence[str], file: str) -> str:
    """What the compiler says first of a version that does not compile; "" if it does."""
    try:
        compiled([text], command, file)
    except BuildError as error:
        return "\n".join(error.message.splitlines()[:2])
    return ""


def modules_of(
    texts: Sequence[str], file: str, kernel: Kernel, names: Sequence[str], kinds: Sequence[str]
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A module with all versions, and for each of them its names for the kernels with these ``names``, as
    JSON. ``kinds`` has ``ptx`` or, with tables for stepping, ``debug``, or both. A version without one of the
    kernels has no names; one that does not compile has the compiler's ``error`` instead.
    """
    module: dict[str, Any] = {}
    versions: list[dict[str, Any]] = [{} for _ in texts]
    wanted = dict(zip(plain_names(names), names, strict=True))
    for kind in kinds:
        command = kernel.command(steps=kind == "debug")
        try:
            ptx = compiled(texts, command, file)
        except BuildError:
            errors = [_error(text, command, file) for text in texts]
            right = [text for text, error in zip(texts, errors, strict=True) if not error]
            module, found = modules_of(right, file, kernel, names, kinds)
            of_right = iter(found)
            return module, [{"error": error} if error else next(of_right) for error in errors]
        module[kind] = {"ptx": ptx}
        if kind == "debug":
            module[kind]["tables"] = debugging_tables(ptx, kernel.arch)
        for version, own in zip(versions, kernel_names(ptx, len(texts)), strict=True):
            if wanted.keys() <= own.keys():
                version[kind] = {name: own[plain] for plain, name in wanted.items()}
    return module, versions
