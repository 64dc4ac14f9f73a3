"""Builds and caches whole programs from CUDA source."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from ladder.build import housekeeping, toolchain, wheels
from ladder.build.compiling import (
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
from ladder.build.messages import clashes_with_newer_names
from ladder.build.plain_names import plain, refuse_comma
from ladder.build.snapshot import Snapshot
from ladder.build.target import CXX_STANDARD, Target
from ladder.common import cache, files, processes
from ladder.errors import BuildError

#: File suffixes that nvcc compiles as CUDA or C++.
_PROGRAM_SUFFIXES = (".cu", ".cpp", ".cc", ".cxx")
#: Prefixes of flags that do not depend on the working directory.
_NO_RELATIVE_PATH = ("-D", "-I/", "-Xcompiler=-g")


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
    for source in sources:
        files.require_file(source, _PROGRAM_SUFFIXES)
    sources = [plain(source.resolve()) for source in sources]
    for source in sources:
        refuse_comma(source.name, "Rename it.")
    # Without g++ this raises before nvcc is fetched.
    compile_flags = [*target.flags(), *flags, *target.program_flags()]
    nvcc = target.nvcc()
    base = place_of(sources[0].stem, target)
    here = Path.cwd()
    # Relative paths in flags and variables make the result depend on the working directory.
    anywhere = not environment() and all(flag.startswith(_NO_RELATIVE_PATH) for flag in flags)
    place = [] if anywhere else [str(here)]
    link_flags = [*_link_flags(flags, here, target), *(target.judged_flags() if judged else ())]
    key = key_of(target, nvcc, [*compile_flags, *place, *map(str, sources), *link_flags])
    dependency_list = base.with_name(f"{base.name}-{key}.dependencies")

    def directory_for(dependencies: Snapshot) -> Path:
        return base.with_name(f"{base.name}-{cache.digest([key, *dependencies.parts()])}")

    def known() -> tuple[Snapshot, Path | None]:
        """Snapshots the files of the last build; also returns the program if they are unchanged."""
        dependencies = read_paths(dependency_list)
        now = Snapshot.of([*sources, *dependencies])
        program = directory_for(now) / sources[0].stem
        return now, program if dependencies and is_there(program) else None

    def make() -> Path:
        before, program = known()
        if program:
            return program
        with cache.unfinished(base) as directory:
            objects = [str(directory / f"{number}.o") for number in range(len(sources))]
            used = [*sources]
            for source, object_file in zip(sources, objects, strict=True):
                command = [str(nvcc.path), *compile_flags, "-c", str(source), "-o", object_file]
                used += _compile_of_any_age(command, here, source.name, directory / "rule", nvcc)
            command = [*target.linker(), *objects, *link_flags, *target.link_inputs()]
            used += _link(command, sources[0], directory, nvcc)
            after = refuse_moved(before, used)
            program = finish(directory, directory_for(after), sources[0].stem)
        cache.write_text(dependency_list, "\n".join(map(str, after.files)))
        housekeeping.tidy_now_and_then()
        return program

    if program := known()[1]:
        return program
    with cache.lock(dependency_list):
        return until_settled(sources[0].name, make)


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
