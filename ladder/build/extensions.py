"""Builds a rung's extension, or a whole program, from CUDA source, and caches it.

The name of a built directory holds a hash of all that it was made from: sources, their place (line
information holds paths), flags, compilers and what is linked in. So nothing is ever built over, and nothing
is ever stale.
"""

from __future__ import annotations

import os
import re
import shutil
import sysconfig
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pybind11

from ladder.build import housekeeping, toolchain
from ladder.build.messages import failure
from ladder.build.plain_names import plain
from ladder.build.snapshot import Snapshot
from ladder.build.target import Target, host_compiler_flags
from ladder.common import cache, files, processes
from ladder.common.progress import steps
from ladder.errors import BuildError, LadderError
from ladder.stages import OptionValue, Stage, include_directory

_SOURCE_SUFFIXES = {".cu", ".cuh", ".h", ".hpp", ".inl", ".cpp", ".cc"}
#: Endings of files that nvcc compiles as C++.
_PROGRAM_SUFFIXES = (".cu", ".cpp", ".cc", ".cxx")
_ATTEMPTS = 3
#: Beginnings of flags that mean the same in every directory.
_NO_RELATIVE_PATH = ("-D", "-I/", "-Xcompiler=-g")
#: Environment variables that nvcc, g++ and the linker read.
_HEEDED = (
    *("NVCC_APPEND_FLAGS", "NVCC_PREPEND_FLAGS", "NVCC_CCBIN", "CUDA_HOME", "CUDA_PATH"),
    *("CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "COMPILER_PATH", "GCC_EXEC_PREFIX", "LIBRARY_PATH"),
    *("LD_RUN_PATH", "SOURCE_DATE_EPOCH"),
)


@processes.ended_by_signals()
def build(stage: Stage, target: Target, options: Mapping[str, OptionValue] | None = None) -> Path:
    """The stage's Python extension ``ladder_stage``, built if need be.

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
    """How a stage's extension is made, from which files, and where it will be. ``dependencies`` lists what
    the compiler read the last time; ``sources`` are these files and the stage's own, since a new one may
    shadow a shared one of the same name.
    """

    stage: Stage
    target: Target
    options: Mapping[str, OptionValue]
    nvcc: toolchain.Nvcc
    flags: tuple[str, ...]
    key: str
    dependencies: Path
    sources: Snapshot

    def directory(self, sources: Snapshot) -> Path:
        """Where the extension made from these sources is."""
        return self.dependencies.with_name(
            f"{self.stage.name}-{self.target.backend}-{self.target.arch}-"
            f"{cache.digest([self.key, *sources.parts()])}"
        )

    @property
    def extension(self) -> Path:
        return self.directory(self.sources) / "ladder_stage.so"


def _plan(stage: Stage, target: Target, options: Mapping[str, OptionValue]) -> _Plan:
    defines = [f"-D{name}={int(v) if isinstance(v, bool) else v}" for name, v in options.items()]
    nvcc = target.nvcc()
    # A header of the stage's own comes before a shared one of the same name.
    flags = [*target.flags(), *defines, f"-I{plain(stage.path)}", f"-I{plain(include_directory())}"]
    binding = Snapshot.of(_binding_sources())
    key = _key(target, nvcc, [*flags, *_python_abi(), stage.computes, str(stage.kernel)], binding)
    base = plain(housekeeping.builds()) / f"{stage.name}-{target.backend}-{target.arch}"
    dependencies = base.with_name(f"{base.name}-{key}.dependencies")
    sources = Snapshot.of([*_source_files(stage.path), *_read_paths(dependencies)])
    return _Plan(stage, target, options, nvcc, tuple(flags), key, dependencies, sources)


def _is_there(result: Path) -> bool:
    """Whether it is built and unchanged; if so, marks it as used."""
    try:
        whole = _seal_of(result).read_text() == cache.digest([result.read_bytes()])
    except OSError:
        return False
    if whole:
        housekeeping.mark_used(result.parent)
    return whole


def _seal_of(result: Path) -> Path:
    return result.with_name(f"{result.name}.sha256")


def _finish(directory: Path, final: Path, name: str) -> Path:
    """Gives a directory with the built file ``name`` its final name; an incomplete one in its place is
    removed."""
    _seal_of(directory / name).write_text(cache.digest([(directory / name).read_bytes()]))
    if final.exists() and not _is_there(final / name):
        shutil.rmtree(final)
    cache.finish(directory, final)
    return final / name


def _source_files(*directories: Path) -> list[Path]:
    return [
        path for directory in directories for path in files.walk(directory) if path.suffix in _SOURCE_SUFFIXES
    ]


class _Moved(Exception):
    """Files were written while a compiler read them, so it is unknown what its output was made from."""

    def __init__(self, paths: Sequence[Path]) -> None:
        super().__init__(paths)
        self.paths = paths


def _until_settled(name: str, make: Callable[[], Path]) -> Path:
    """Builds again while files are being saved meanwhile. Raises :class:`BuildError` if that does not end."""
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
    """Snapshots the files again. Raises :class:`_Moved` if any has changed."""
    after = Snapshot.of(files)
    if changed := before.changed(after):
        raise _Moved(changed)
    return after


def _carry_out(first: _Plan) -> Path:
    stage = first.stage

    def make() -> Path:
        plan = _plan(stage, first.target, first.options)  # another process may have made it meanwhile
        if _is_there(plan.extension):
            return plan.extension
        binding = _binding(stage.computes, plan.target)
        with cache.unfinished(plan.extension.parent) as directory:
            used = _compile_kernel(plan, directory)
            after = _refuse_moved(plan.sources, [*_source_files(stage.path), *used])
            _link_extension(stage.name, plan.target, binding, directory)
            extension = _finish(directory, plan.directory(after), "ladder_stage.so")
        cache.write_text(plan.dependencies, "\n".join(map(str, after.files)))
        housekeeping.tidy()
        return extension

    with cache.lock(first.dependencies):
        return _until_settled(stage.name, make)


def _compile_kernel(plan: _Plan, directory: Path) -> list[Path]:
    """Compiles ``kernel.o`` in the directory; returns the files that were read."""
    name, source = plan.stage.name, plan.stage.kernel
    with tempfile.TemporaryDirectory(dir=directory) as kept:
        flags = plan.target.kernel_flags(plan.flags)
        command = [str(plan.nvcc.path), *flags, "-c", str(source), "-o", "kernel.o"]
        keep = ("--keep", "--keep-dir", kept)
        used = _compile(command, directory, name, directory / "rule", plan.nvcc, keep)
        for command in plan.target.machine_code(plan.nvcc, plan.flags, Path(kept, f"{source.stem}.ptx")):
            _run(command, directory, name, "does not compile")
    return used


def _compile(
    command: Sequence[str],
    directory: Path,
    name: str,
    rule: Path,
    nvcc: toolchain.Nvcc,
    more: Sequence[str] = (),
) -> list[Path]:
    """Runs the compiler, with ``more`` flags, and returns the files that it says it read."""
    listing = ("-MD", "-MT", "object", "-MF", str(rule))
    _run(command, directory, name, "does not compile", (*listing, *more), rule.parent)
    return _dependencies(os.fsdecode(rule.read_bytes()), directory, nvcc)


@processes.ended_by_signals()
def build_program(sources: Sequence[Path], target: Target, flags: Sequence[str] = ()) -> Path:
    """An executable made from the user's own ``.cu`` files; ``flags`` go to the compiler unchanged.

    The compiler runs in the working directory, where relative paths in ``flags`` begin.

    Built again when a source, or a header that the compiler read last time, has changed.
    """
    for source in sources:
        files.require_file(source, _PROGRAM_SUFFIXES)
    nvcc = target.nvcc()
    sources = [plain(source.resolve()) for source in sources]
    compile_flags = [*target.flags(), *flags]
    base = plain(housekeeping.builds()) / f"{sources[0].stem}-{target.backend}-{target.arch}"
    here = Path.cwd()
    # Where a relative path in the flags leads depends on it.
    place = [] if all(flag.startswith(_NO_RELATIVE_PATH) for flag in flags) else [str(here)]
    key = _key(target, nvcc, [*compile_flags, *place, *map(str, sources)])
    dependency_list = base.with_name(f"{base.name}-{key}.dependencies")

    def directory_for(dependencies: Snapshot) -> Path:
        return base.with_name(f"{base.name}-{cache.digest([key, *dependencies.parts()])}")

    def known() -> tuple[Snapshot, Path | None]:
        """The files that it depended on the last time, and the program if they have not changed since."""
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
                command = [str(nvcc.path), *compile_flags, "-c", str(source), "-o", object_file]
                used += _compile(command, here, source.name, directory / "rule", nvcc)
            after = _refuse_moved(before, used)
            command = [*target.linker(), *objects, *target.link_inputs(), "-o", sources[0].stem]
            _run(command, directory, sources[0].name, "does not link")
            program = _finish(directory, directory_for(after), sources[0].stem)
        cache.write_text(dependency_list, "\n".join(map(str, after.files)))
        housekeeping.tidy()
        return program

    if program := known()[1]:
        return program
    with cache.lock(dependency_list):
        return _until_settled(sources[0].name, make)


def _read_paths(listing: Path) -> list[Path]:
    text = os.fsdecode(listing.read_bytes()) if listing.exists() else ""
    return [Path(line) for line in text.splitlines()]


def _dependencies(rule: str, directory: Path, nvcc: toolchain.Nvcc) -> list[Path]:
    """The files named by a compiler's make rule, without those of toolkit and system. Links are kept as the
    compiler named them: where they lead may change.
    """
    escaped = re.findall(r"(?:\\[ #]|\S)+", rule.replace("\\\n", " ").partition(":")[2])
    words = [re.sub(r"\\([ #])", r"\1", word).replace("$$", "$") for word in escaped]
    outside = (nvcc.home, Path("/usr/include"), Path("/usr/lib"))
    paths = (directory / word for word in words)
    return [path for path in paths if not any(path.resolve().is_relative_to(place) for place in outside)]


def _binding_sources() -> list[Path]:
    return _source_files(include_directory() / "ladder")


def _binding(operation: str, target: Target) -> Path:
    """The object file of an operation's Python binding, compiled once for all its stages of a target."""
    include = include_directory()
    source = include / "ladder" / f"{operation}_binding.cpp"
    nvcc = target.nvcc()
    # nvcc hands a .cpp to g++ as it is, with the include path of its own toolkit.
    flags = ["-std=c++20", "-O2", "-ccbin", toolchain.gxx(), "-Xcompiler", "-fvisibility=hidden"]
    flags += host_compiler_flags()
    flags += [f"-I{include}", f"-I{toolchain.python_include()}", f"-I{pybind11.get_include()}"]

    def make() -> Path:
        sources = Snapshot.of(_binding_sources())
        key = _key(target, nvcc, [*flags, *_python_abi()], sources)
        final = housekeeping.builds() / f"{operation}-binding-{target.backend}-{key}"
        result = final / "binding.o"
        if not _is_there(result):
            with cache.lock(final):
                if not _is_there(result):
                    with cache.unfinished(final) as directory:
                        command = [str(nvcc.path), *flags, "-c", str(source), "-o", "binding.o"]
                        _run(command, directory, "the Python binding", "does not compile")
                        _refuse_moved(sources, _binding_sources())
                        _finish(directory, final, "binding.o")
        return result

    return _until_settled("the Python binding", make)


def _python_abi() -> list[str]:
    """What ties an extension to one Python."""
    return [pybind11.__version__, sysconfig.get_config_var("SOABI") or ""]


def _link_extension(name: str, target: Target, binding: Path, directory: Path) -> None:
    command = [*target.linker(), "-shared", "kernel.o", str(binding), *target.link_inputs()]
    _run([*command, *target.shared_flags(), "-o", "ladder_stage.so"], directory, name, "does not link")
    target.check(directory / "ladder_stage.so", name)


def _key(target: Target, nvcc: toolchain.Nvcc, flags: Iterable[str], sources: Snapshot | None = None) -> str:
    parts: list[str | bytes] = [
        target.backend,
        target.arch,
        str(nvcc.path),
        nvcc.version,
        toolchain.gxx_version(),
        *(f"{name}={os.environ[name]}" for name in _HEEDED if name in os.environ),
    ]
    parts += [*flags]
    return cache.digest([*parts, *target.linked(), *(sources.parts() if sources else ())])


def _run(
    command: Sequence[str],
    directory: Path,
    name: str,
    otherwise: str,
    more: Sequence[str] = (),
    scratch: Path | None = None,
) -> None:
    """``more`` flags are left out where the command is shown; ``scratch`` is for its temporary files."""
    result = processes.run([*command, *more], directory, scratch or directory)
    if result.returncode == 0:
        return
    message = result.stderr + result.stdout
    if "No space left on device" in message:
        raise OSError(28, "No space left on device")
    raise failure(name, otherwise, message, command)
