"""Builds: a rung's extension, or somebody's whole program, from CUDA source. Cached.

The name of a built directory holds a hash of all that it was made from: sources, their place (line
information holds paths), flags, compilers and what is linked in. So a name is never built over, and nothing
is ever stale.
"""

from __future__ import annotations

import os
import shlex
import sysconfig
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from pathlib import Path

import pybind11

from ladder import cache, files, housekeeping, processes, toolchain
from ladder.build_errors import failure, refuse_undefined
from ladder.emulator_library import emulator_library
from ladder.errors import BuildError, LadderError
from ladder.progress import steps
from ladder.snapshot import Snapshot
from ladder.stages import OptionValue, Stage, include_directory

_SOURCE_SUFFIXES = {".cu", ".cuh", ".h", ".hpp", ".inl", ".cpp", ".cc"}
#: Of what nvcc compiles as C++.
_PROGRAM_SUFFIXES = (".cu", ".cpp", ".cc", ".cxx")
_ATTEMPTS = 3
#: How flags begin that mean the same in every directory.
_NO_RELATIVE_PATH = ("-D", "-I/", "-Xcompiler=-g")
# Inline functions' statics of two rungs must not become one object although each is loaded privately.
_HOST_FLAGS = ["-fPIC", "-fno-gnu-unique"]


def host_compiler_flags() -> list[str]:
    """What nvcc hands to g++."""
    return [word for flag in (*_HOST_FLAGS, *toolchain.gxx_flags()) for word in ("-Xcompiler", flag)]


@dataclass(frozen=True)
class Target:
    """What to build for: ``backend`` is ``emulator`` or ``cuda``, ``arch`` the GPU, e.g. ``sm_80``."""

    backend: str
    arch: str

    def nvcc(self) -> toolchain.Nvcc:
        """The pinned compiler for the emulator, the system's, if there is one, for a GPU."""
        if self.backend == "emulator":
            return toolchain.pinned_nvcc()
        return toolchain.system_nvcc() or toolchain.pinned_nvcc()

    def flags(self) -> list[str]:
        common = ["-std=c++20", "-O3", "-lineinfo", "-ccbin", toolchain.gxx()]
        common += host_compiler_flags()
        if self.backend == "cuda":
            return [*common, "-arch=native"]
        compute = self.arch.replace("sm_", "compute_")
        # PTX alone, as plain text, and no CUDA runtime: the emulator brings its own.
        code = f"-gencode=arch={compute},code={compute}"
        return [*common, code, "-Xfatbin", "--compress=false", "-cudart", "none"]

    def linker(self) -> list[str]:
        """How the link line begins."""
        if self.backend == "cuda":
            return [
                *(str(self.nvcc().path), "-ccbin", toolchain.gxx(), "-cudart", "static"),
                *host_compiler_flags(),
            ]
        return [toolchain.gxx(), *toolchain.gxx_flags()]

    def link_inputs(self) -> list[str]:
        """What comes after the objects on the link line."""
        if self.backend == "cuda":
            return []
        library = emulator_library()
        directory = str(library.directory)
        return [str(library.entry_points), f"-L{directory}", "-lladder_emulator", f"-Wl,-rpath,{directory}"]


@processes.ended_by_signals()
def build(stage: Stage, target: Target, options: Mapping[str, OptionValue] | None = None) -> Path:
    """The stage's Python extension ``ladder_stage``, built if it is not there yet.

    Raises :class:`BuildError` with the compiler's message, :class:`ToolchainError` or :class:`CacheError`.
    """
    plan = _plan(stage, target, options or {})
    return plan.extension if _is_there(plan.extension) else _carry_out(plan)


@processes.ended_by_signals()
def build_all(
    stages: Sequence[Stage],
    targets: Mapping[str, Target],
    options: Mapping[str, Mapping[str, OptionValue]] | None = None,
) -> dict[str, Path | LadderError]:
    """Builds several stages at once; a stage that fails has its error in place of the extension."""

    def attempt(plan: _Plan) -> Path | LadderError:
        try:
            with progress.step(plan.stage.name):
                return _carry_out(plan)
        except LadderError as error:
            return error

    plans = [_plan(stage, targets[stage.name], (options or {}).get(stage.name, {})) for stage in stages]
    results: dict[str, Path | LadderError] = {plan.stage.name: plan.extension for plan in plans}
    missing = [plan for plan in plans if not _is_there(plan.extension)]
    if missing:
        with (
            steps("Building", len(missing)) as progress,
            processes.Pool(max_workers=os.cpu_count()) as pool,
        ):
            results.update(zip([p.stage.name for p in missing], pool.map(attempt, missing), strict=True))
    return results


@dataclass(frozen=True)
class _Plan:
    """How a stage's extension is made, of which files, and where it will be."""

    stage: Stage
    target: Target
    options: Mapping[str, OptionValue]
    nvcc: toolchain.Nvcc
    flags: tuple[str, ...]
    sources: Snapshot
    extension: Path


def _plan(stage: Stage, target: Target, options: Mapping[str, OptionValue]) -> _Plan:
    defines = [f"-D{name}={int(v) if isinstance(v, bool) else v}" for name, v in options.items()]
    include = include_directory()
    nvcc = target.nvcc()
    flags = [*target.flags(), *defines, f"-I{include}"]
    sources = Snapshot.of(_source_files(stage.path, include))
    key = _key(target, nvcc, [*flags, *_python_abi()], sources)
    directory = housekeeping.builds() / f"{stage.name}-{target.backend}-{target.arch}-{key}"
    return _Plan(stage, target, options, nvcc, tuple(flags), sources, directory / "ladder_stage.so")


def _is_there(result: Path) -> bool:
    """Whether it was built before; if so, it is in use now."""
    if result.exists():
        housekeeping.mark_used(result.parent)
        return True
    return False


def _source_files(*directories: Path) -> list[Path]:
    return [
        path for directory in directories for path in files.walk(directory) if path.suffix in _SOURCE_SUFFIXES
    ]


class _Moved(Exception):
    """Files were written while a compiler read them: nobody knows what its output was made from."""

    def __init__(self, paths: Sequence[Path]) -> None:
        super().__init__(paths)
        self.paths = paths


def _until_settled(name: str, make: Callable[[], Path]) -> Path:
    """Makes it again when a file was saved meanwhile. Raises :class:`BuildError` if that does not end."""
    for _ in range(_ATTEMPTS):
        try:
            return make()
        except _Moved as moved:
            paths = moved.paths
    raise BuildError(
        f"{name}: {', '.join(map(str, paths))} was written each of the {_ATTEMPTS} times it was compiled",
        "Build again when it is not being written any more.",
    )


def _refuse_moved(before: Snapshot, files: Iterable[Path]) -> Snapshot:
    """The files as they are now. Raises :class:`_Moved` unless they are as they were."""
    after = Snapshot.of(files)
    if changed := before.changed(after):
        raise _Moved(changed)
    return after


def _carry_out(first: _Plan) -> Path:
    plans = chain([first], repeat(None))

    def make() -> Path:
        plan = next(plans) or _plan(first.stage, first.target, first.options)
        final = plan.extension.parent
        with cache.lock(final):
            if _is_there(plan.extension):
                return plan.extension
            binding = _binding(plan.target)
            with cache.new_directory(final) as directory:
                command = [str(plan.nvcc.path), *plan.flags, "-c", str(plan.stage.kernel), "-o", "kernel.o"]
                _run(command, directory, plan.stage.name, "does not compile")
                _refuse_moved(plan.sources, _source_files(plan.stage.path, include_directory()))
                _link_extension(plan.stage.name, plan.target, binding, directory)
        housekeeping.tidy()
        return plan.extension

    return _until_settled(first.stage.name, make)


@processes.ended_by_signals()
def build_program(sources: Sequence[Path], target: Target, flags: Sequence[str] = ()) -> Path:
    """An executable of somebody's own ``.cu`` files; ``flags`` go to the compiler as they are.

    The compiler runs in the working directory, where relative paths in ``flags`` begin.

    Built again when a source, or a header that the compiler read last time, has changed.
    """
    for source in sources:
        files.require_file(source, _PROGRAM_SUFFIXES)
    nvcc = target.nvcc()
    sources = [source.resolve() for source in sources]
    compile_flags = [*target.flags(), *flags]
    base = housekeeping.builds() / f"{sources[0].stem}-{target.backend}-{target.arch}"
    here = Path.cwd()
    # Where a relative path in the flags leads depends on it.
    place = [] if all(flag.startswith(_NO_RELATIVE_PATH) for flag in flags) else [str(here)]
    key = _key(target, nvcc, [*compile_flags, *place, *map(str, sources)])
    dependency_list = base.with_name(f"{base.name}-{key}.dependencies")

    def directory_for(dependencies: Snapshot) -> Path:
        return base.with_name(f"{base.name}-{cache.digest([key, *dependencies.parts()])}")

    def known() -> tuple[Snapshot, Path | None]:
        """The files that it depended on last time, and the program if it was made of them as they are."""
        dependencies = _read_paths(dependency_list)
        now = Snapshot.of([*sources, *dependencies])
        program = directory_for(now) / sources[0].stem
        return now, program if dependencies and _is_there(program) else None

    def make() -> Path:
        before, program = known()
        if program:
            return program
        with cache.unfinished(base) as directory:
            objects = [str(directory / f"{number}.o") for number in range(len(sources))]
            used = [*sources]
            for source, object_file in zip(sources, objects, strict=True):
                rule = directory / "rule"
                command = [str(nvcc.path), *compile_flags, "-c", str(source), "-o", object_file]
                command += ["-MD", "-MT", "object", "-MF", str(rule)]
                _run(command, here, source.name, "does not compile")
                used += _dependencies(os.fsdecode(rule.read_bytes()), nvcc)
            after = _refuse_moved(before, used)
            command = [*target.linker(), *objects, *target.link_inputs(), "-o", sources[0].stem]
            _run(command, directory, sources[0].name, "does not link")
            final = directory_for(after)
            cache.finish(directory, final)
        cache.write_text(dependency_list, "\n".join(map(str, after.files)))
        housekeeping.tidy()
        return final / sources[0].stem

    if program := known()[1]:
        return program
    with cache.lock(dependency_list):
        return _until_settled(sources[0].name, make)


def _read_paths(listing: Path) -> list[Path]:
    text = os.fsdecode(listing.read_bytes()) if listing.exists() else ""
    return [Path(line) for line in text.splitlines()]


def _dependencies(rule: str, nvcc: toolchain.Nvcc) -> list[Path]:
    """The files that a make rule of the compiler names, less those of the toolkit and the system."""
    words = shlex.split(rule.replace("\\\n", " ").partition(":")[2])
    outside = (nvcc.home, Path("/usr/include"), Path("/usr/lib"))
    paths = (Path(word).resolve() for word in words)
    return [path for path in paths if not any(path.is_relative_to(directory) for directory in outside)]


def _binding(target: Target) -> Path:
    """The object of the shared Python binding, compiled once for all stages of a target."""
    include = include_directory()
    source = include / "ladder" / "binding.cpp"
    nvcc = target.nvcc()
    # nvcc hands a .cpp to g++ as it is, with the include path of its own toolkit.
    flags = ["-std=c++20", "-O2", "-ccbin", toolchain.gxx(), "-Xcompiler", "-fvisibility=hidden"]
    flags += host_compiler_flags()
    flags += [f"-I{include}", f"-I{toolchain.python_include()}", f"-I{pybind11.get_include()}"]

    def make() -> Path:
        sources = Snapshot.of(_source_files(include))
        key = _key(target, nvcc, [*flags, *_python_abi()], sources)
        final = housekeeping.builds() / f"binding-{target.backend}-{key}"
        result = final / "binding.o"
        if not _is_there(result):
            with cache.lock(final):
                if not result.exists():
                    with cache.new_directory(final) as directory:
                        command = [str(nvcc.path), *flags, "-c", str(source), "-o", "binding.o"]
                        _run(command, directory, "the Python binding", "does not compile")
                        _refuse_moved(sources, _source_files(include))
        return result

    return _until_settled("the Python binding", make)


def _python_abi() -> list[str]:
    """What an extension built for one Python, and no other, depends on."""
    return [pybind11.__version__, sysconfig.get_config_var("SOABI") or ""]


def _link_extension(name: str, target: Target, binding: Path, directory: Path) -> None:
    command = [*target.linker(), "-shared", "kernel.o", str(binding), *target.link_inputs()]
    if target.backend == "cuda":
        # The runtime's symbols are hidden: the one that torch has loaded may be of another version.
        command += ["-Xlinker", "--exclude-libs,ALL"]
    _run([*command, "-o", "ladder_stage.so"], directory, name, "does not link")
    if target.backend == "emulator":
        refuse_undefined(directory / "ladder_stage.so", name)


def _key(target: Target, nvcc: toolchain.Nvcc, flags: Iterable[str], sources: Snapshot | None = None) -> str:
    parts: list[str | bytes] = [
        target.backend,
        target.arch,
        str(nvcc.path),
        nvcc.version,
        toolchain.gxx_version(),
    ]
    parts += [*flags]
    if target.backend == "emulator":
        library = emulator_library()
        parts += [str(library.directory), library.entry_points.read_bytes()]
    return cache.digest([*parts, *(sources.parts() if sources else ())])


def _run(command: list[str], directory: Path, name: str, otherwise: str) -> None:
    result = processes.run(command, directory)
    if result.returncode == 0:
        return
    message = result.stderr + result.stdout
    if "No space left on device" in message:
        raise OSError(28, "No space left on device")
    raise failure(name, otherwise, message, command)
