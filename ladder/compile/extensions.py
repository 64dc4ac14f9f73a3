"""Builds and caches rungs' extensions from CUDA source."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ladder.common import cache, processes
from ladder.common.progress import steps
from ladder.compile import housekeeping, prebuilt, remarks, toolchain
from ladder.compile.compiling import (
    WITHOUT_SPECIAL_FUNCTIONS,
    compile_source,
    compile_with,
    compilers,
    finish,
    is_there,
    key_of,
    place_of,
    read_paths,
    refuse_moved,
    run,
    source_files,
    until_settled,
)
from ladder.compile.confining import CompilerStopped
from ladder.compile.host_parts import HostPart
from ladder.compile.plain_names import plain
from ladder.compile.snapshot import Snapshot
from ladder.compile.target import CXX_STANDARD, Target, defines, host_compiler_flags
from ladder.errors import BuildError, LadderError
from ladder.operations import AnyProblem
from ladder.stages import OptionValue, Stage, include_directory

#: Beside an extension with machine code: ptxas's messages, with each kernel's registers and spills.
PTXAS_REPORT = "ptxas.txt"


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
    return plan.extension if is_there(plan.extension) else _carry_out(plan)


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
    missing = [plan for plan in plans if not is_there(plan.extension)]
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
    if not is_there(extension):
        with cache.lock(final):
            if not is_there(extension):
                with cache.unfinished(final) as directory:
                    if not prebuilt.unpack(archive, directory):
                        return None
                    finish(directory, final, extension.name)
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
            f"{place_of(self.stage.name, self.target).name}-{cache.digest([self.key, *sources.parts()])}"
        )

    @property
    def extension(self) -> Path:
        return self.directory(self.sources) / prebuilt.EXTENSION


def _plan(stage: Stage, target: Target, options: Mapping[str, OptionValue]) -> _Plan:
    # Without g++ this raises before nvcc is fetched.
    flags = _kernel_flags(stage, target, options)
    nvcc = target.nvcc()
    binding = Snapshot.of(_binding_sources())
    key = key_of(target, nvcc, [*flags, stage.computes, str(stage.kernel)], binding)
    base = place_of(stage.name, target)
    dependencies = base.with_name(f"{base.name}-{key}.dependencies")
    sources = Snapshot.of([*source_files(stage.path), *read_paths(dependencies)])
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
    if only is None or is_there(whole.extension):
        return whole
    return _plan(stage, target, {**options, **stage.needed_options([only])})


def _carry_out(first: _Plan) -> Path:
    stage = first.stage

    def make() -> Path:
        plan = _plan(stage, first.target, first.options)  # another process may have made it meanwhile
        if is_there(plan.extension):
            return plan.extension
        bindings = _bindings(stage.computes, plan.target)
        with cache.unfinished(plan.extension.parent) as directory:
            used = _compile_kernel(plan, directory)
            after = refuse_moved(plan.sources, [*source_files(stage.path), *used])
            _link_extension(stage.name, plan.target, bindings, directory)
            extension = finish(directory, plan.directory(after), prebuilt.EXTENSION)
        cache.write_text(plan.dependencies, "\n".join(map(str, after.files)))
        housekeeping.tidy_now_and_then()
        return extension

    with cache.lock(first.dependencies):
        return until_settled(stage.name, make)


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
                refuse_moved(plan.sources, [*source_files(plan.stage.path), *used])
                host.keep(directory, ptx, shared)
        else:
            used = [*source_files(plan.stage.path), *read]
        commands = plan.target.machine_code(plan.nvcc, plan.flags, ptx)
        embedding = [] if commands or read is None else _embedding(plan, ptx)
        messages = "".join(
            compile_with(one, directory, name, "does not compile") for one in commands or embedding
        )
        if commands:
            (directory / PTXAS_REPORT).write_text(messages)
            remarks.write(remarks.parse(messages, ptx.read_text()), directory)
    return used


def _compile_whole(plan: _Plan, directory: Path, kept: Path) -> list[Path]:
    """Compiles the host's part and the PTX; leaves the PTX in ``kept``."""
    flags = plan.target.kernel_flags(plan.flags)
    command = [str(plan.nvcc.path), *flags, "-c", str(plan.stage.kernel), "-o", "kernel.o"]
    keep = ("--keep", "--keep-dir", str(kept))
    return compile_source(command, directory, plan.stage.name, directory / "rule", plan.nvcc, keep)


def _compile_device(plan: _Plan, directory: Path, ptx: Path, host: HostPart) -> list[Path] | None:
    """Compiles the PTX alone, to go into the host's part; returns the shared headers that are read. None if
    there is no such part, or the source does not compile so.
    """
    if not host.is_there():
        return None
    flags = plan.target.kernel_flags(plan.flags)
    command = [str(plan.nvcc.path), *flags, "-ptx", str(plan.stage.kernel), "-o", str(ptx)]
    try:
        compile_with(command, directory, plan.stage.name, "", (WITHOUT_SPECIAL_FUNCTIONS,), ptx.parent)
    except CompilerStopped:
        raise
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
    key = [key_of(plan.target, plan.nvcc, flags), stage.computes, stage.kernel.name]
    shared = Snapshot.of(source_files(include)).parts()
    return HostPart.of(key, stage.path, source_files(stage.path), shared)


def _shared_headers(plan: _Plan, used: Sequence[Path]) -> list[Path] | None:
    """Of the files that were read, those that all rungs share; None if some are neither shared nor the
    rung's.
    """
    own, shared = {*source_files(plan.stage.path)}, {*source_files(include_directory())}
    return [path for path in used if path in shared] if {*used} <= own | shared else None


def _binding_sources() -> list[Path]:
    return source_files(include_directory() / "ladder")


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
        key = cache.digest([*compilers(nvcc), *flags, *sources.parts()])
        final = housekeeping.builds() / f"{name}-{key}"
        result = final / "binding.o"
        if not is_there(result):
            with cache.lock(final):
                if not is_there(result):
                    with cache.unfinished(final) as directory:
                        command = [str(nvcc.path), *flags, "-c", str(source), "-o", "binding.o"]
                        run(command, directory, "the binding", "does not compile")
                        refuse_moved(sources, _binding_sources())
                        finish(directory, final, "binding.o")
        return result

    return until_settled("the binding", make)


def _link_extension(name: str, target: Target, bindings: Sequence[Path], directory: Path) -> None:
    command = [*target.linker(), "-shared", "kernel.o", *map(str, bindings), *target.link_inputs()]
    run([*command, *target.shared_flags(), "-o", prebuilt.EXTENSION], directory, name, "does not link")
    target.check(directory / prebuilt.EXTENSION, name)
