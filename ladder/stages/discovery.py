"""Discovers the rungs: the folders in stages/, in the directories named by LADDER_STAGES, and in my_rungs/.

A broken folder is set aside with its error, so that it does not affect the others.
"""

from __future__ import annotations

import difflib
import functools
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from ladder.common import files
from ladder.errors import InvalidProblem, LadderError, StageError, UnsupportedProblem
from ladder.operations import DEFAULT_OPERATION, DTYPES, OPERATIONS, AnyProblem, get_operation

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

P = TypeVar("P", bound=AnyProblem)
OptionValue = int | str | bool

#: The virtual GPUs of the emulator.
ARCHITECTURES = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_90a")
DEFAULT_ARCH = "sm_80"


def require_arch(arch: str, named: str = "arch") -> None:
    """Raises :class:`InvalidProblem` unless ``arch`` is a virtual GPU; ``named`` is the value's source."""
    if arch not in ARCHITECTURES:
        raise InvalidProblem(f"{named} {arch!r} is none of {', '.join(ARCHITECTURES)}")


#: The directories of the user's own rungs and of the exercises being worked on. They are found without being
#: named, in the working directory or the nearest directory above it.
OWN_STAGES = "my_rungs"
OWN_EXERCISES = "my_exercises"


@dataclass(frozen=True)
class Stage:
    """One rung, as its stage.toml describes it."""

    name: str
    path: Path
    title: str
    idea: str
    before: str | None
    min_compute_capability: tuple[int, int]
    dtypes: tuple[str, ...]
    #: Empty if the problem has no head dim.
    head_dims: tuple[int, ...] = ()
    #: The operation.
    computes: str = DEFAULT_OPERATION
    options: Mapping[str, tuple[OptionValue, ...]] = field(default_factory=dict)
    #: Features of problems (:attr:`ladder.operations.AnyProblem.features`) that it supports, and that it
    #: requires.
    takes: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    #: ``sm_90a`` if it uses features that only that architecture has.
    only_arch: str | None = None
    #: Whether its outputs are bit-identical for every order of blocks and warps.
    deterministic: bool = True

    @property
    def kernel(self) -> Path:
        return self.path / "kernel.cu"

    def source(self, file: str) -> Path:
        """Finds a header like the compiler: in the rung's folder, or else among the shared ones."""
        own = self.path / file
        return own if own.is_file() else include_directory() / file

    @property
    def default_arch(self) -> str:
        """The virtual GPU to count on by default: its only one, or the larger of sm_80 and its minimum."""
        if self.only_arch:
            return self.only_arch
        minimum = "sm_{}{}".format(*self.min_compute_capability)
        return max(DEFAULT_ARCH, minimum, key=arch_number)

    def arch(self, wanted: str | None) -> str:
        """The architecture to build for in order to run on ``wanted``.

        Raises :class:`UnsupportedProblem` if it cannot run there.
        """
        if wanted is None:
            return self.default_arch
        if self.only_arch:
            if arch_number(wanted) != arch_number(self.only_arch):
                raise UnsupportedProblem(f"{self.name} runs on {self.only_arch} alone, not on {wanted}")
            return self.only_arch
        major, minor = self.min_compute_capability
        if arch_number(wanted) < 10 * major + minor:
            raise UnsupportedProblem(
                f"{self.name} needs compute capability {major}.{minor} or higher, not {wanted}"
            )
        return wanted

    def accept(self, problem: P) -> P:
        """Returns the problem, with the rung's first dtype if it does not specify one.

        Raises :class:`UnsupportedProblem`, saying what the rung supports.
        """
        if problem.operation != self.computes:
            raise UnsupportedProblem(f"{self.name} computes {self.computes}, not {problem.operation}")
        if problem.dtype is None:
            problem = replace(problem, dtype=self.dtypes[0])  # type: ignore[type-var]
        if problem.dtype not in self.dtypes:
            raise UnsupportedProblem(f"{self.name} takes {_list(self.dtypes)}, not {problem.dtype}")
        head_dim = getattr(problem, "head_dim", None)
        if head_dim is not None and head_dim not in self.head_dims:
            raise UnsupportedProblem(f"{self.name} takes d = {_list(self.head_dims)}, not {head_dim}")
        self._check_features(problem.features)
        return problem

    def suits(self, problem: AnyProblem) -> bool:
        """Whether :meth:`accept` accepts it."""
        try:
            self.accept(problem)
        except UnsupportedProblem:
            return False
        return True

    def narrowed(self, problems: Sequence[AnyProblem]) -> Stage:
        """The rung with options that compile only what these problems need, in a fraction of the time; see
        ladder/dispatch.h. Raises :class:`UnsupportedProblem`.
        """
        accepted = [self.accept(problem) for problem in problems]
        head_dims = {getattr(problem, "head_dim", 0) for problem in accepted}
        dtypes = {DTYPES.index(problem.dtype or DTYPES[0]) for problem in accepted}
        needed: dict[str, tuple[OptionValue, ...]] = {
            "LADDER_HEAD_DIMS": (sum(head_dims),),
            "LADDER_DTYPES": (sum(1 << dtype for dtype in dtypes),),
        }
        return replace(self, options={**self.options, **needed})

    def _check_features(self, features: frozenset[str]) -> None:
        refused = sorted(features - {*self.takes, *self.needs})
        if refused:
            raise UnsupportedProblem(f"{self.name} takes no {_list(refused)}")
        missing = sorted({*self.needs} - features)
        if missing:
            raise UnsupportedProblem(f"{self.name} needs {_list(missing)}, which the problem does not have")

    def chosen_options(self, wanted: Mapping[str, str]) -> dict[str, OptionValue]:
        """Every option with its value: the one that ``wanted`` gives as text, or the default."""
        chosen = {name: values[0] for name, values in self.options.items()}
        for name, text in wanted.items():
            if name not in self.options:
                raise UnsupportedProblem(
                    f"{self.name} has no option {name}; it has {_list(self.options) or 'none'}"
                )
            matching = [value for value in self.options[name] if _option_text(value) == str(text)]
            if not matching:
                values = _list(_option_text(value) for value in self.options[name])
                raise UnsupportedProblem(f"{self.name}: option {name} is {values}, not {text}")
            chosen[name] = matching[0]
        return chosen


@dataclass(frozen=True)
class Ladder:
    """All rungs by operation, lowest first, and the broken folders. ``aside`` holds exercises being worked
    on, which can be named but are not part of a comparison of all rungs.
    """

    stages: tuple[Stage, ...]
    broken: Mapping[str, StageError]
    aside: Mapping[str, Stage | StageError] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Stage]:
        return iter(self.stages)

    def computing(self, operation: str) -> tuple[Stage, ...]:
        """The rungs of one operation, lowest first."""
        return tuple(stage for stage in self.stages if stage.computes == operation)

    def __getitem__(self, name: str) -> Stage:
        """The rung of that name. Raises its :class:`StageError` if it is broken, and one if there is none."""
        for stage in self.stages:
            if stage.name == name:
                return stage
        if name in self.broken:
            raise self.broken[name]
        found = self.aside.get(name)
        if isinstance(found, Stage):
            return found
        if found is not None:
            raise found
        names = [*(stage.name for stage in self.stages), *self.aside]
        near = difflib.get_close_matches(name, names, n=1) or [n for n in names if n.startswith(name)]
        raise StageError(
            f"there is no stage {name!r}" + (f"; did you mean {near[0]}?" if near else ""),
            f"Stages: {', '.join(names)}",
        )


def stage_and_options(spec: str) -> tuple[Stage, dict[str, OptionValue]]:
    """Parses ``v6_lean`` or ``v6_lean:ROWS=32,KEYS=64`` into the stage, and every option with its value.

    Raises :class:`LadderError` for an unknown stage or option.
    """
    name, _, options = spec.partition(":")
    stage = discover()[name]
    return stage, stage.chosen_options(parse_options(options))


def root() -> Path:
    """The project's own rungs: the repository's in an editable install, else the copy in the wheel.

    LADDER_STAGES_ROOT replaces them by another folder, such as one with mutants of the rungs.
    """
    if instead := os.environ.get("LADDER_STAGES_ROOT"):
        return Path(instead)
    package = Path(__file__).resolve().parent.parent
    candidates = (package.parent / "stages", package / "_stages")
    for candidate in candidates:
        if (candidate / "include" / "ladder" / "problem.h").is_file():
            return candidate
    raise LadderError(
        f"the stages are in neither {candidates[0]} nor {candidates[1]}",
        "Install the package again: make compare",
    )


def exercises_root() -> Path:
    """The project's exercises: the repository's in an editable install, else the copy in the wheel."""
    package = Path(__file__).resolve().parent.parent
    candidates = (package.parent / "exercises", package / "_exercises")
    for candidate in candidates:
        if candidate.is_dir() and next(candidate.glob("*/exercise.toml"), None):
            return candidate
    raise LadderError(
        f"the exercises are in neither {candidates[0]} nor {candidates[1]}",
        "Install the package again: make compare",
    )


def examples_root() -> Path | None:
    """The project's examples, kernels of other operations: the repository's, or the copy in the wheel."""
    package = Path(__file__).resolve().parent.parent
    candidates = (package.parent / "examples", package / "_examples")
    return next((candidate for candidate in candidates if candidate.is_dir()), None)


def include_directory() -> Path:
    """The directory of the headers that all rungs share."""
    return root() / "include"


def discover() -> Ladder:
    """Reads all stage folders: the project's own, its examples, those of LADDER_STAGES (separated like PATH)
    and those in my_rungs/. The exercises in my_exercises/ go to ``aside``.
    """
    stages: dict[str, Stage] = {}
    broken: dict[str, StageError] = {}
    own = own_folder(OWN_STAGES)
    for folder in _folders():
        try:
            if folder.parent == own:
                require_own(folder)
            if folder.name in stages:
                raise StageError(
                    f"{folder} has the name of the stage in {stages[folder.name].path}", "Rename it."
                )
            stages[folder.name] = read_stage(folder)
        except StageError as error:
            broken[folder.name if folder.name not in stages else str(folder)] = error
    if own is not None and not _is_users(own):
        broken[str(own)] = _of_somebody_else(own)
    misplaced = {}
    for stage in stages.values():
        try:
            _check_before(stage, stages, broken)
        except StageError as error:
            misplaced[stage.name] = error
    broken.update(misplaced)
    sound = {name: stage for name, stage in stages.items() if name not in broken}
    order = sorted(
        sound.values(),
        key=lambda stage: (OPERATIONS.index(stage.computes), _depth(stage, sound), stage.name),
    )
    return Ladder(tuple(order), broken, _exercises(sound))


def own_folder(name: str) -> Path | None:
    """Finds the folder of that name in the working directory or the nearest directory above it."""
    try:
        here = Path.cwd()
    except FileNotFoundError:  # the working directory has been deleted
        return None
    return next((folder / name for folder in (here, *here.parents) if (folder / name).is_dir()), None)


def require_own(folder: Path) -> None:
    """Raises :class:`StageError` unless the user owns the folder: its code would run without being named."""
    if not _is_users(folder):
        raise _of_somebody_else(folder)


def _is_users(folder: Path) -> bool:
    return folder.stat().st_uid == os.getuid()


def _of_somebody_else(folder: Path) -> StageError:
    return StageError(
        f"{folder} belongs to somebody else, and what is in it was not run",
        "Copy it into a folder of yours, or name it: rungs by LADDER_STAGES, exercises by --folder.",
    )


def _exercises(stages: Mapping[str, Stage]) -> dict[str, Stage | StageError]:
    found: dict[str, Stage | StageError] = {}
    directory = own_folder(OWN_EXERCISES)
    for folder in _stage_folders(directory) if directory else ():
        if folder.name not in stages:
            try:
                require_own(folder.parent)
                found[folder.name] = read_stage(folder)
            except StageError as error:
                found[folder.name] = error
    return found


def _folders() -> Iterator[Path]:
    seen = set()
    for folder in _all_folders():
        if folder not in seen:
            seen.add(folder)
            yield folder


def _all_folders() -> Iterator[Path]:
    yield from _stage_folders(root())
    if (examples := examples_root()) is not None:
        yield from _stage_folders(examples)
    for entry in os.environ.get("LADDER_STAGES", "").split(os.pathsep):
        if not entry:
            continue
        directory = files.expanded(entry)
        if not directory.is_dir():
            raise StageError(
                f"LADDER_STAGES names {entry}, which is no directory", "It is a folder of stage folders."
            )
        if (directory / "stage.toml").exists() or (directory / "kernel.cu").exists():
            yield directory
        else:
            yield from _stage_folders(directory)
    own = own_folder(OWN_STAGES)
    if own is not None and _is_users(own):
        yield from _stage_folders(own)


def _stage_folders(directory: Path) -> Iterator[Path]:
    try:
        folders = sorted(directory.iterdir())
    except OSError as error:
        raise StageError(f"{directory} cannot be read: {error.strerror}") from error
    for folder in folders:
        if (
            folder.is_dir()
            and folder.name != "include"
            and folder.name[0] not in "._"
            and _holds_files(folder)
        ):
            yield folder


def _holds_files(folder: Path) -> bool:
    try:
        return any(entry.name[0] not in "._" for entry in folder.iterdir())
    except OSError:
        return True  # reading the stage says why not


def read_stage(folder: Path) -> Stage:
    """Reads the stage in ``folder``. Raises :class:`StageError`."""
    name = folder.name
    if not re.fullmatch(r"[A-Za-z]\w*", name):
        raise StageError(f"the folder {folder} is no stage name", "Use letters, digits and underscores.")
    _require_readable(folder, os.R_OK | os.X_OK)
    for needed in ("kernel.cu", "stage.toml"):
        if not (folder / needed).is_file():
            raise StageError(
                f"stage {name} has no {needed}", f"Put one into {folder}; another stage's is a good start."
            )
        _require_readable(folder / needed, os.R_OK)
    try:
        table = _parsed((folder / "stage.toml").read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise StageError(f"{folder / 'stage.toml'} is not TOML: {error}") from error
    except OSError as error:
        raise StageError(f"{folder / 'stage.toml'} cannot be read: {error.strerror}") from error
    return _StageTable(name, folder, table).stage()


def _require_readable(path: Path, mode: int) -> None:
    if not os.access(path, mode):
        raise StageError(f"{path} cannot be read: permission denied")


@functools.lru_cache(maxsize=128)
def _parsed(text: str) -> Mapping[str, Any]:
    """Parses TOML; commands read the same stage.toml many times."""
    return tomllib.loads(text)


class _StageTable:
    """The parsed stage.toml of one folder; each value is checked as it is taken out."""

    def __init__(self, name: str, folder: Path, table: Mapping[str, Any]) -> None:
        self._name = name
        self._folder = folder
        self._table = table

    def stage(self) -> Stage:
        stage = Stage(
            name=self._name,
            path=self._folder,
            title=self._text("title"),
            idea=self._text("idea"),
            before=self._text("before") if "before" in self._table else None,
            min_compute_capability=self._compute_capability(),
            only_arch=self._only_arch(),
            dtypes=self._list_of("dtypes", str, DTYPES),
            head_dims=self._head_dims(),
            computes=self._computes(),
            takes=self._names("takes"),
            needs=self._names("needs"),
            options=self._options(),
            deterministic=self._flag("deterministic", otherwise=True),
        )
        known = {"arch", *Stage.__dataclass_fields__} - {"name", "path", "only_arch"}
        unknown = [key for key in self._table if key not in known]
        if unknown:
            raise self._error(f"has an unknown key {unknown[0]}; known are {_list(sorted(known))}")
        return stage

    def _error(self, what: str) -> StageError:
        return StageError(f"{self._folder / 'stage.toml'} {what}")

    def _get(self, key: str) -> Any:
        if key not in self._table:
            raise self._error(f"has no {key}")
        return self._table[key]

    def _text(self, key: str) -> str:
        value = self._get(key)
        if not isinstance(value, str) or not value.strip():
            raise self._error(f"has {key} = {value!r}; it must be a text")
        return value

    def _computes(self) -> str:
        if "computes" not in self._table:
            return DEFAULT_OPERATION
        value = self._text("computes")
        if value not in OPERATIONS:
            raise self._error(f"has computes = {value!r}; it must be one of {_list(OPERATIONS)}")
        return value

    def _flag(self, key: str, *, otherwise: bool) -> bool:
        value = self._table.get(key, otherwise)
        if not isinstance(value, bool):
            raise self._error(f"has {key} = {value!r}; it must be true or false")
        return value

    def _head_dims(self) -> tuple[int, ...]:
        fields = get_operation(self._computes()).problem.__dataclass_fields__  # type: ignore[attr-defined]
        return self._list_of("head_dims", int, None) if "head_dim" in fields else ()

    def _names(self, key: str) -> tuple[str, ...]:
        return self._list_of(key, str, None) if key in self._table else ()

    def _only_arch(self) -> str | None:
        """Converts ``arch = "90a"`` to ``sm_90a``."""
        if "arch" not in self._table:
            return None
        value, specific = self._table["arch"], [arch for arch in ARCHITECTURES if arch.endswith("a")]
        if f"sm_{value}" not in specific:
            known = _list(f'"{arch.removeprefix("sm_")}"' for arch in specific)
            raise self._error(f"has arch = {value!r}; known is {known}")
        return f"sm_{value}"

    def _compute_capability(self) -> tuple[int, int]:
        if arch := self._only_arch():
            return divmod(arch_number(arch), 10)
        value = self._get("min_compute_capability")
        match = re.fullmatch(r"(\d+)\.(\d)", str(value))
        if match is None or f"sm_{match[1]}{match[2]}" not in ARCHITECTURES:
            known = _list(f'"{arch_number(arch) / 10}"' for arch in ARCHITECTURES if not arch.endswith("a"))
            raise self._error(f"has min_compute_capability = {value!r}; it must be one of {known}")
        return int(match[1]), int(match[2])

    def _list_of(self, key: str, kind: type, allowed: Iterable[Any] | None) -> tuple[Any, ...]:
        value = self._get(key)
        allowed = None if allowed is None else tuple(allowed)
        sound = isinstance(value, list) and value and all(type(item) is kind for item in value)
        if not sound or (allowed is not None and not set(value) <= set(allowed)):
            what = f"some of {_list(allowed)}" if allowed else f"{kind.__name__} values"
            raise self._error(f"has {key} = {value!r}; it must be a list of {what}")
        return tuple(value)

    def _options(self) -> dict[str, tuple[OptionValue, ...]]:
        options = self._table.get("options", {})
        if not isinstance(options, dict):
            raise self._error(f"has options = {options!r}; it must be a table")
        for name, values in options.items():
            if not re.fullmatch(r"[A-Z][A-Z0-9_]*", name):
                raise self._error(f"has an option {name}; an option is a macro, in capitals")
            if (
                not isinstance(values, list)
                or not values
                or not all(isinstance(v, int | str) for v in values)
            ):
                raise self._error(
                    f"has option {name} = {values!r}; it must be a list of values, the default first"
                )
        return {name: tuple(values) for name, values in options.items()}


def _check_before(stage: Stage, stages: Mapping[str, Stage], broken: Mapping[str, StageError]) -> None:
    """Raises :class:`StageError` for a ``before`` that names no stage or leads back to the stage itself."""
    seen = {stage.name}
    below = stage.before
    while below is not None and below in stages:
        if below in seen:
            raise StageError(f"{stage.path / 'stage.toml'}: before = {stage.before!r} goes in a circle")
        seen.add(below)
        below = stages[below].before
    if stage.before is not None and stage.before not in stages and stage.before not in broken:
        raise StageError(f"{stage.path / 'stage.toml'}: before = {stage.before!r} is no stage")


def _depth(stage: Stage, stages: Mapping[str, Stage]) -> int:
    """The number of valid rungs below the stage."""
    below = stages.get(stage.before or "")
    return 0 if below is None else 1 + _depth(below, stages)


def format_options(options: Mapping[str, object]) -> str:
    """Formats options as ``NAME=VALUE,...``."""
    return ",".join(f"{name}={value}" for name, value in options.items())


def parse_options(text: str) -> dict[str, str]:
    """Parses :func:`format_options`'s format. Raises :class:`InvalidProblem` if an option has no value."""
    pairs = [option.partition("=") for option in text.split(",") if option]
    for name, equals, _ in pairs:
        if not name:
            raise InvalidProblem(f"option {text!r} has no name", "It is NAME=VALUE.")
        if not equals:
            raise InvalidProblem(f"option {name} has no value", "It is NAME=VALUE.")
    return {name: value for name, _, value in pairs}


def arch_number(arch: str) -> int:
    """The architecture's number: 80 for ``sm_80``, 90 for both ``sm_90`` and ``sm_90a``."""
    return int(arch.removeprefix("sm_").removesuffix("a"))


def _option_text(value: OptionValue) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)


def _list(values: Iterable[object]) -> str:
    return ", ".join(str(value) for value in values)
