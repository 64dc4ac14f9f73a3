"""Builds and caches whole programs from CUDA source."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ladder.common import cache, files, processes
from ladder.compile import housekeeping, toolchain, wheels
from ladder.compile.compiling import (
    compile_source,
    dependencies_of,
    environment,
    finish,
    is_there,
    key_of,
    place_of,
    read_paths,
    refuse_moved,
    run,
    until_settled,
)
from ladder.compile.device_linking import link_device_code
from ladder.compile.messages import clashes_with_newer_names
from ladder.compile.plain_names import plain, refuse_comma
from ladder.compile.snapshot import Snapshot
from ladder.compile.target import CXX_STANDARD, Target
from ladder.errors import BuildError

#: File suffixes that nvcc compiles as CUDA or C++.
_PROGRAM_SUFFIXES = (".cu", ".cpp", ".cc", ".cxx")
#: Prefixes of flags that do not depend on the working directory.
_NO_RELATIVE_PATH = ("-D", "-I/", "-Xcompiler=-g")


@processes.ended_by_signals()
def build_program(
    sources: Sequence[Path], target: Target, flags: Sequence[str] = (), *, judged: bool = False
) -> Path:
    """Builds an executable from the user's ``.cu`` files; ``flags`` are passed to the compiler unchanged, and
    to the linker those that name libraries or OpenMP. If it is to be ``judged``, its launch log says what
    main returned.

    The compiler runs in the working directory, so relative paths in ``flags`` start there.

    The program is rebuilt if a source, or a header that the compiler read last time, has changed.
    """
    plan = _plan(sources, target, flags, judged)
    if program := plan.built()[1]:
        return program
    with cache.lock(plan.dependencies):
        return until_settled(plan.sources[0].name, lambda: _carry_out(plan))


@dataclass(frozen=True)
class _Plan:
    """How and from which sources a program is built; ``here`` is the compiler's working directory."""

    sources: Sequence[Path]
    target: Target
    nvcc: toolchain.Nvcc
    compile_flags: Sequence[str]
    link_flags: Sequence[str]
    here: Path
    key: str

    @property
    def name(self) -> str:
        return self.sources[0].stem

    @property
    def base(self) -> Path:
        return place_of(self.name, self.target)

    @property
    def dependencies(self) -> Path:
        """The list of the files that the last build read."""
        return self.base.with_name(f"{self.base.name}-{self.key}.dependencies")

    def directory(self, read: Snapshot) -> Path:
        """The directory of the program built from these files."""
        return self.base.with_name(f"{self.base.name}-{cache.digest([self.key, *read.parts()])}")

    def built(self) -> tuple[Snapshot, Path | None]:
        """Snapshots the files of the last build; also returns the program if they are unchanged."""
        dependencies = read_paths(self.dependencies)
        now = Snapshot.of([*self.sources, *dependencies])
        program = self.directory(now) / self.name
        return now, program if dependencies and is_there(program) else None


def _plan(sources: Sequence[Path], target: Target, flags: Sequence[str], judged: bool) -> _Plan:
    for source in sources:
        files.require_file(source, _PROGRAM_SUFFIXES)
    sources = [plain(source.resolve()) for source in sources]
    for source in sources:
        refuse_comma(source.name, "Rename it.")
    # Without g++ this raises before nvcc is fetched.
    compile_flags = [*target.flags(), *flags, *target.program_flags()]
    nvcc = target.nvcc()
    here = Path.cwd()
    # Relative paths in flags and variables make the result depend on the working directory.
    anywhere = not environment() and all(flag.startswith(_NO_RELATIVE_PATH) for flag in flags)
    place = [] if anywhere else [str(here)]
    link_flags = [*_link_flags(flags, here, target), *(target.judged_flags() if judged else ())]
    key = key_of(target, nvcc, [*compile_flags, *place, *map(str, sources), *link_flags])
    return _Plan(sources, target, nvcc, compile_flags, link_flags, here, key)


def _carry_out(plan: _Plan) -> Path:
    before, program = plan.built()  # another process may have made it meanwhile
    if program:
        return program
    with cache.unfinished(plan.base) as directory:
        objects = [str(directory / f"{number}.o") for number in range(len(plan.sources))]
        used = [*plan.sources]
        for source, object_file in zip(plan.sources, objects, strict=True):
            command = [str(plan.nvcc.path), *plan.compile_flags, "-c", str(source), "-o", object_file]
            used += _compile_of_any_age(command, plan.here, source.name, directory / "rule", plan.nvcc)
        objects += link_device_code(objects, plan.sources[0].name, directory, plan.target, plan.nvcc)
        command = [*plan.target.linker(), *objects, *plan.link_flags, *plan.target.link_inputs()]
        used += _link(command, plan.sources[0], directory, plan.nvcc)
        after = refuse_moved(before, used)
        program = finish(directory, plan.directory(after), plan.name)
    cache.write_text(plan.dependencies, "\n".join(map(str, after.files)))
    housekeeping.tidy_now_and_then()
    return program


def _compile_of_any_age(
    command: Sequence[str], directory: Path, name: str, rule: Path, nvcc: toolchain.Nvcc
) -> list[Path]:
    """As :func:`compile_source`, but a program whose names C++20 took, such as ``lerp``, is C++17."""
    try:
        return compile_source(command, directory, name, rule, nvcc)
    except BuildError as error:
        if not clashes_with_newer_names(str(error)):
            raise
    older = ["-std=c++17" if flag == CXX_STANDARD else flag for flag in command]
    return compile_source(older, directory, name, rule, nvcc)


def _link(command: Sequence[str], source: Path, directory: Path, nvcc: toolchain.Nvcc) -> list[Path]:
    """Links a program named like ``source``; returns the user's libraries that the linker read."""
    rule = directory / "linked"
    names_libraries = any(word.startswith("-l") and word != "-lladder_emulator" for word in command)
    listing = ("-Xlinker", f"--dependency-file={rule}") if names_libraries else ()
    run([*command, "-o", source.stem], directory, source.name, "does not link", listing)
    read = dependencies_of(os.fsdecode(rule.read_bytes()), directory, nvcc) if names_libraries else []
    # Not the objects, nor what the compiler removed again.
    return [path for path in read if path.exists() and directory not in path.parents]


def _link_flags(flags: Sequence[str], here: Path, target: Target) -> list[str]:
    """The compiler's flags that also apply to linking for ``target``; relative library directories are
    resolved from ``here``.
    """
    folders = [f"-L{here / flag[2:]}" for flag in flags if flag.startswith("-L") and len(flag) > 2]
    libraries = [
        flag for flag in flags if flag.startswith("-l") and flag not in {"-lineinfo", *target.replaced}
    ]
    nvrtc = wheels.nvrtc_flags() if wheels.NVRTC in libraries and target.replaced else []
    if nvrtc:
        libraries.remove(wheels.NVRTC)
    openmp = ["-lgomp"] if any("-fopenmp" in flag for flag in flags) else []
    return [*folders, *libraries, *nvrtc, *openmp]
