"""Builds and caches rungs' extensions and whole programs from CUDA source.

The name of a build directory holds a hash of everything it was made from: sources and their paths (which line
information contains), flags, compilers and linked libraries. So a build is never overwritten and never stale.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ladder.build import housekeeping, prebuilt, remarks, toolchain, wheels
from ladder.build.host_parts import HostPart
from ladder.build.messages import clashes_with_newer_names, failure
from ladder.build.plain_names import plain, refuse_comma
from ladder.build.snapshot import Snapshot
from ladder.build.target import CXX_STANDARD, Target, defines, host_compiler_flags
from ladder.common import cache, files, processes
from ladder.common.progress import steps
from ladder.errors import BuildError, LadderError
from ladder.operations import AnyProblem
from ladder.stages import OptionValue, Stage, include_directory

#: File suffixes that nvcc compiles as CUDA or C++.
_PROGRAM_SUFFIXES = (".cu", ".cpp", ".cc", ".cxx")
_ATTEMPTS = 3
#: Beside an extension with machine code: ptxas's messages, with each kernel's registers and spills.
PTXAS_REPORT = "ptxas.txt"
#: Prefixes of flags that do not depend on the working directory.
_NO_RELATIVE_PATH = ("-D", "-I/", "-Xcompiler=-g")
#: Environment variables that nvcc, g++ and the linker read; those of the second line through nvcc.profile.
_HEEDED = (
    *("NVCC_APPEND_FLAGS", "NVCC_PREPEND_FLAGS", "NVCC_CCBIN", "CUDA_HOME", "CUDA_PATH"),
    *("INCLUDES", "SYSTEM_INCLUDES", "LIBRARIES", "CUDAFE_FLAGS", "PTXAS_FLAGS", "NVVM_FLAGS", "OCG_FLAGS"),
    *("CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "COMPILER_PATH", "GCC_EXEC_PREFIX", "LIBRARY_PATH"),
    *("LD_RUN_PATH", "SOURCE_DATE_EPOCH"),
)


@processes.ended_by_signals()
def build(
    stage: Stage,
    target: Target,
    options: Mapping[str, OptionValue] | None = None,
    *,
    only: AnyProblem | None = None,
) -> Path:
    """Returns the stage's library ``ladder_stage.so``, building it if necessary; if ``only`` one problem is
    to be run, with no more than that needs.

    Raises :class:`BuildError` with the compiler's message, :class:`ToolchainError` or :class:`CacheError`.
    """
    if shipped := _shipped(stage, target, options or {}):
        return shipped
    plan = _plan_for(stage, target, options or {}, only)
    return plan.extension if _is_there(plan.extension) else _carry_out(plan)


@processes.ended_by_signals()
def build_all(
    stages: Sequence[Stage],
    targets: Mapping[str, Target],
    options: Mapping[str, Mapping[str, OptionValue]] | None = None,
    *,
    only: Mapping[str, AnyProblem] | None = None,
) -> dict[str, Path | LadderError]:
    """As :func:`build`, several stages in parallel, with options and problems by stage; one that fails maps
    to its error instead of its extension.
    """

    def attempt(plan: _Plan) -> Path | LadderError:
        try:
            with progress.step(plan.stage.name):
                return _carry_out(plan)
        except LadderError as error:
            return error

    chosen = {stage.name: (options or {}).get(stage.name, {}) for stage in stages}
    results: dict[str, Path | LadderError] = {
        stage.name: shipped
        for stage in stages
        if (shipped := _shipped(stage, targets[stage.name], chosen[stage.name]))
    }
    plans = [
        _plan_for(stage, targets[stage.name], chosen[stage.name], (only or {}).get(stage.name))
        for stage in stages
        if stage.name not in results
    ]
    results.update((plan.stage.name, plan.extension) for plan in plans)
    missing = [plan for plan in plans if not _is_there(plan.extension)]
    if missing:
        with (
            steps("Building", len(missing)) as progress,
            processes.Pool(max_workers=os.cpu_count()) as pool,
        ):
            results.update(zip([p.stage.name for p in missing], pool.map(attempt, missing), strict=True))
    return results


def _shipped(stage: Stage, target: Target, options: Mapping[str, OptionValue]) -> Path | None:
    """The extension that came prebuilt in the wheel, if any, unpacked into the cache."""
    archive = prebuilt.archive(stage, target, options)
    if archive is None:
        return None
    # What is unpacked names the stages' folder.
    final = housekeeping.builds() / f"{archive.name.partition('.')[0]}-{cache.digest([str(stage.path)])}"
    extension = final / prebuilt.EXTENSION
    if not _is_there(extension):
        with cache.lock(final):
            if not _is_there(extension):
                with cache.unfinished(final) as directory:
                    if not prebuilt.unpack(archive, directory):
                        return None
                    _finish(directory, final, extension.name)
                housekeeping.tidy()
    return extension


@dataclass(frozen=True)
class _Plan:
    """How and from which files a stage's extension is built.

    ``dependencies`` lists the files that the compiler read last time. ``sources`` holds these and all of the
    stage's own files, since a new one may shadow a shared header of the same name.
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
        """The directory of the extension built from these sources."""
        return self.dependencies.with_name(
            f"{_place(self.stage.name, self.target).name}-{cache.digest([self.key, *sources.parts()])}"
        )

    @property
    def extension(self) -> Path:
        return self.directory(self.sources) / prebuilt.EXTENSION


def _place(name: str, target: Target) -> Path:
    """The path of a stage's or program's build directories, less the digests that they end in. A benchmark's
    stages have their options in the name, with commas.
    """
    builds = plain(housekeeping.builds())
    refuse_comma(str(builds.resolve()), "Set XDG_CACHE_HOME to a folder without one.")
    return builds / f"{name.replace(',', '-')}-{target.backend}-{target.arch}"


def _plan(stage: Stage, target: Target, options: Mapping[str, OptionValue]) -> _Plan:
    # Without g++ this raises before nvcc is fetched.
    flags = _kernel_flags(stage, target, options)
    nvcc = target.nvcc()
    binding = Snapshot.of(_binding_sources())
    key = _key(target, nvcc, [*flags, stage.computes, str(stage.kernel)], binding)
    base = _place(stage.name, target)
    dependencies = base.with_name(f"{base.name}-{key}.dependencies")
    sources = Snapshot.of([*_source_files(stage.path), *_read_paths(dependencies)])
    return _Plan(stage, target, options, nvcc, tuple(flags), key, dependencies, sources)


def _kernel_flags(stage: Stage, target: Target, options: Mapping[str, OptionValue]) -> list[str]:
    # The stage's own headers take precedence over shared ones.
    include = [f"-I{plain(stage.path)}", f"-I{plain(include_directory())}"]
    return [*target.flags(), *defines(options), *include]


def ptx_command(stage: Stage, target: Target, options: Mapping[str, OptionValue]) -> list[str]:
    """The beginning of a command that compiles a source to PTX as the stage's kernel.cu is compiled."""
    flags = target.kernel_flags(_kernel_flags(stage, target, options))
    return [str(target.nvcc().path), *flags, "-ptx"]


def _plan_for(
    stage: Stage, target: Target, options: Mapping[str, OptionValue], only: AnyProblem | None
) -> _Plan:
    """The plan of the whole stage if that is built already, or of no more than a problem needs."""
    whole = _plan(stage, target, options)
    if only is None or _is_there(whole.extension):
        return whole
    return _plan(stage, target, {**options, **stage.needed_options([only])})


def _is_there(result: Path) -> bool:
    """Whether the file exists and matches its seal; if so, marks the build as used."""
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
    """Seals the built file ``name`` and moves its directory to ``final``, replacing an incomplete one."""
    _seal_of(directory / name).write_text(cache.digest([(directory / name).read_bytes()]))
    if final.exists() and not _is_there(final / name):
        shutil.rmtree(final)
    cache.finish(directory, final)
    return final / name


def _source_files(*directories: Path) -> list[Path]:
    return [
        path
        for directory in directories
        for path in files.walk(directory)
        if path.suffix in files.SOURCE_SUFFIXES
    ]


class _Moved(Exception):
    """Files changed while a compiler read them, so its output cannot be attributed to any version of them."""

    def __init__(self, paths: Sequence[Path]) -> None:
        super().__init__(paths)
        self.paths = paths


def _until_settled(name: str, make: Callable[[], Path]) -> Path:
    """Retries a build whose files changed meanwhile. Raises :class:`BuildError` after too many attempts."""
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
    """Snapshots the files again; raises :class:`_Moved` if any has changed."""
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
        bindings = _bindings(stage.computes, plan.target)
        with cache.unfinished(plan.extension.parent) as directory:
            used = _compile_kernel(plan, directory)
            after = _refuse_moved(plan.sources, [*_source_files(stage.path), *used])
            _link_extension(stage.name, plan.target, bindings, directory)
            extension = _finish(directory, plan.directory(after), prebuilt.EXTENSION)
        cache.write_text(plan.dependencies, "\n".join(map(str, after.files)))
        housekeeping.tidy_now_and_then()
        return extension

    with cache.lock(first.dependencies):
        return _until_settled(stage.name, make)


def _compile_kernel(plan: _Plan, directory: Path) -> list[Path]:
    """Compiles ``kernel.o`` in the directory; returns the files that the compiler read."""
    name, source = plan.stage.name, plan.stage.kernel
    with tempfile.TemporaryDirectory(dir=directory) as kept:
        ptx = Path(kept, f"{source.stem}.ptx")
        host = _host_part(plan)
        read = _compile_device(plan, directory, ptx, host) if host else None
        if read is None:
            used = _compile_whole(plan, directory, Path(kept))
            if host and (shared := _shared_headers(plan, used)) is not None:
                _refuse_moved(plan.sources, [*_source_files(plan.stage.path), *used])
                host.keep(directory, ptx, shared)
        else:
            used = [*_source_files(plan.stage.path), *read]
        commands = plan.target.machine_code(plan.nvcc, plan.flags, ptx)
        embedding = [] if commands or read is None else _embedding(plan, ptx)
        messages = "".join(_run(one, directory, name, "does not compile") for one in commands or embedding)
        if commands:
            (directory / PTXAS_REPORT).write_text(messages)
            remarks.write(remarks.parse(messages, ptx.read_text()), directory)
    return used


def _compile_whole(plan: _Plan, directory: Path, kept: Path) -> list[Path]:
    """Compiles the host's part and the PTX; leaves the PTX in ``kept``."""
    flags = plan.target.kernel_flags(plan.flags)
    command = [str(plan.nvcc.path), *flags, "-c", str(plan.stage.kernel), "-o", "kernel.o"]
    keep = ("--keep", "--keep-dir", str(kept))
    return _compile(command, directory, plan.stage.name, directory / "rule", plan.nvcc, keep)


def _compile_device(plan: _Plan, directory: Path, ptx: Path, host: HostPart) -> list[Path] | None:
    """Compiles the PTX alone, to go into the host's part; returns the shared headers that are read. None if
    there is no such part, or the source does not compile so.
    """
    if not host.is_there():
        return None
    flags = plan.target.kernel_flags(plan.flags)
    command = [str(plan.nvcc.path), *flags, "-ptx", str(plan.stage.kernel), "-o", str(ptx)]
    try:
        _run(command, directory, plan.stage.name, "does not compile", (), ptx.parent)
    except BuildError:  # its message is that of the whole compilation
        return None
    return host.put(directory, ptx)


def _embedding(plan: _Plan, ptx: Path) -> list[list[str]]:
    return plan.target.embedding(plan.nvcc, plan.target.kernel_flags(plan.flags), ptx)


def _host_part(plan: _Plan) -> HostPart | None:
    """The part of the object that does not depend on bodies of the rung's device functions, if any."""
    if not plan.target.embeds:
        return None
    stage, include = plan.stage, include_directory()
    flags = [flag for flag in plan.flags if flag != f"-I{plain(stage.path)}"]
    key = [_key(plan.target, plan.nvcc, flags), stage.computes, stage.kernel.name]
    shared = Snapshot.of(_source_files(include)).parts()
    return HostPart.of(key, stage.path, _source_files(stage.path), shared)


def _shared_headers(plan: _Plan, used: Sequence[Path]) -> list[Path] | None:
    """Of the files that were read, those that all rungs share; None if some are neither shared nor the
    rung's.
    """
    own, shared = {*_source_files(plan.stage.path)}, {*_source_files(include_directory())}
    return [path for path in used if path in shared] if {*used} <= own | shared else None


def _compile(
    command: Sequence[str],
    directory: Path,
    name: str,
    rule: Path,
    nvcc: toolchain.Nvcc,
    more: Sequence[str] = (),
) -> list[Path]:
    """Runs the compiler with ``more`` flags; returns the files that it reports as read."""
    listing = ("-MD", "-MT", "object", "-MF", str(rule))
    _run(command, directory, name, "does not compile", (*listing, *more), rule.parent)
    return _dependencies(os.fsdecode(rule.read_bytes()), directory, nvcc)


def _compile_of_any_age(
    command: Sequence[str], directory: Path, name: str, rule: Path, nvcc: toolchain.Nvcc
) -> list[Path]:
    """As :func:`_compile`, but a program whose names C++20 took, such as ``lerp``, is compiled as C++17."""
    try:
        return _compile(command, directory, name, rule, nvcc)
    except BuildError as error:
        if not clashes_with_newer_names(str(error)):
            raise
    older = ["-std=c++17" if flag == CXX_STANDARD else flag for flag in command]
    return _compile(older, directory, name, rule, nvcc)


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
    base = _place(sources[0].stem, target)
    here = Path.cwd()
    # Relative paths in flags and variables make the result depend on the working directory.
    anywhere = not _environment() and all(flag.startswith(_NO_RELATIVE_PATH) for flag in flags)
    place = [] if anywhere else [str(here)]
    link_flags = [*_link_flags(flags, here, target), *(target.judged_flags() if judged else ())]
    key = _key(target, nvcc, [*compile_flags, *place, *map(str, sources), *link_flags])
    dependency_list = base.with_name(f"{base.name}-{key}.dependencies")

    def directory_for(dependencies: Snapshot) -> Path:
        return base.with_name(f"{base.name}-{cache.digest([key, *dependencies.parts()])}")

    def known() -> tuple[Snapshot, Path | None]:
        """Snapshots the files of the last build; also returns the program if they are unchanged."""
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
                used += _compile_of_any_age(command, here, source.name, directory / "rule", nvcc)
            command = [*target.linker(), *objects, *link_flags, *target.link_inputs()]
            used += _link(command, sources[0], directory, nvcc)
            after = _refuse_moved(before, used)
            program = _finish(directory, directory_for(after), sources[0].stem)
        cache.write_text(dependency_list, "\n".join(map(str, after.files)))
        housekeeping.tidy_now_and_then()
        return program

    if program := known()[1]:
        return program
    with cache.lock(dependency_list):
        return _until_settled(sources[0].name, make)


def _link(command: Sequence[str], source: Path, directory: Path, nvcc: toolchain.Nvcc) -> list[Path]:
    """Links a program named like ``source``; returns the user's libraries that the linker read."""
    rule = directory / "linked"
    names_libraries = any(word.startswith("-l") and word != "-lladder_emulator" for word in command)
    listing = ("-Xlinker", f"--dependency-file={rule}") if names_libraries else ()
    _run([*command, "-o", source.stem], directory, source.name, "does not link", listing)
    read = _dependencies(os.fsdecode(rule.read_bytes()), directory, nvcc) if names_libraries else []
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


def _read_paths(listing: Path) -> list[Path]:
    text = os.fsdecode(listing.read_bytes()) if listing.exists() else ""
    return [Path(line) for line in text.splitlines()]


def _dependencies(rule: str, directory: Path, nvcc: toolchain.Nvcc) -> list[Path]:
    """Parses the files out of a compiler's make rule, except those in folders of the toolkit and the system.
    Symbolic links are not resolved, since their targets may change.
    """
    escaped = re.findall(r"(?:\\[ #]|\S)+", rule.replace("\\\n", " ").partition(":")[2])
    words = [re.sub(r"\\([ #])", r"\1", word).replace("$$", "$") for word in escaped]
    outside = (nvcc.home, Path("/usr/include"), Path("/usr/lib"))

    @functools.cache
    def is_outside(folder: str) -> bool:
        resolved = Path(folder).resolve()
        return any(resolved.is_relative_to(place) for place in outside)

    paths = (os.path.join(directory, word) for word in words)
    return [Path(path) for path in paths if not is_outside(os.path.dirname(path))]


def _binding_sources() -> list[Path]:
    return _source_files(include_directory() / "ladder")


def _bindings(operation: str, target: Target) -> list[Path]:
    """Returns the object files of the extension's entry and of an operation's part in it."""
    return [_host_object("binding", target), _host_object(f"{operation}_binding", target)]


def _host_object(name: str, target: Target) -> Path:
    """Returns the object file of ``ladder/<name>.cpp``, compiled once for all architectures."""
    include = include_directory()
    source = include / "ladder" / f"{name}.cpp"
    nvcc = target.nvcc()
    # nvcc passes a .cpp straight to g++, adding the include path of its toolkit.
    flags = [CXX_STANDARD, "-O2", "-ccbin", toolchain.gxx(), "-Xcompiler", "-fvisibility=hidden"]
    flags += host_compiler_flags()
    flags += [f"-I{include}"]

    def make() -> Path:
        sources = Snapshot.of(_binding_sources())
        key = cache.digest([*_compilers(nvcc), *flags, *sources.parts()])
        final = housekeeping.builds() / f"{name}-{key}"
        result = final / "binding.o"
        if not _is_there(result):
            with cache.lock(final):
                if not _is_there(result):
                    with cache.unfinished(final) as directory:
                        command = [str(nvcc.path), *flags, "-c", str(source), "-o", "binding.o"]
                        _run(command, directory, "the binding", "does not compile")
                        _refuse_moved(sources, _binding_sources())
                        _finish(directory, final, "binding.o")
        return result

    return _until_settled("the binding", make)


def _link_extension(name: str, target: Target, bindings: Sequence[Path], directory: Path) -> None:
    command = [*target.linker(), "-shared", "kernel.o", *map(str, bindings), *target.link_inputs()]
    _run([*command, *target.shared_flags(), "-o", prebuilt.EXTENSION], directory, name, "does not link")
    target.check(directory / prebuilt.EXTENSION, name)


def _key(target: Target, nvcc: toolchain.Nvcc, flags: Iterable[str], sources: Snapshot | None = None) -> str:
    parts = [target.backend, target.arch, *_compilers(nvcc), *flags, *target.linked()]
    return cache.digest([*parts, *(sources.parts() if sources else ())])


def ingredients(target: Target) -> list[str | bytes]:
    """What every build for the target depends on besides sources and flags."""
    return [target.backend, target.arch, *_compilers(target.nvcc()), *target.linked()]


def _compilers(nvcc: toolchain.Nvcc) -> list[str]:
    """What the compilers' output depends on besides sources and flags."""
    return [str(nvcc.path), nvcc.version, toolchain.gxx_version(), *_environment()]


def _environment() -> list[str]:
    """The environment's variables that compilers heed, with their values."""
    return [f"{name}={os.environ[name]}" for name in _HEEDED if name in os.environ]


def _run(
    command: Sequence[str],
    directory: Path,
    name: str,
    otherwise: str,
    more: Sequence[str] = (),
    scratch: Path | None = None,
) -> str:
    """Runs a compiler or linker and returns its messages; raises :class:`BuildError` if it fails.

    ``more`` flags are not part of the command that the error shows; ``scratch`` is for temporary files.
    """
    result = processes.run([*command, *more], directory, scratch or directory)
    if result.returncode == 0:
        return result.stderr
    message = result.stderr + result.stdout
    if "No space left on device" in message:
        raise OSError(28, "No space left on device")
    raise failure(name, otherwise, message, command)
