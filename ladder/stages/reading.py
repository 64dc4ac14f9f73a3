"""Reads a rung's stage.toml."""

from __future__ import annotations

import functools
import os
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ladder.errors import StageError
from ladder.operations import DEFAULT_OPERATION, DTYPES, OPERATIONS, get_operation
from ladder.stages.stage import ARCHITECTURES, OptionValue, Stage, arch_number, listed

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


#: What every rung's folder has.
STAGE_FILES = ("kernel.cu", "stage.toml")


def read_stage(folder: Path) -> Stage:
    """Reads the stage in ``folder``. Raises :class:`StageError`."""
    name = folder.name
    if not re.fullmatch(r"[A-Za-z]\w*", name):
        raise StageError(f"the folder {folder} is no stage name", "Use letters, digits and underscores.")
    _require_readable(folder, os.R_OK | os.X_OK)
    for needed in STAGE_FILES:
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
            most_rows=self._most_rows(),
            options=self._options(),
            deterministic=self._flag("deterministic", otherwise=True),
            timed=self._flag("timed", otherwise=True),
        )
        known = {"arch", *Stage.__dataclass_fields__} - {"name", "path", "only_arch"}
        unknown = [key for key in self._table if key not in known]
        if unknown:
            raise self._error(f"has an unknown key {unknown[0]}; known are {listed(sorted(known))}")
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
            raise self._error(f"has computes = {value!r}; it must be one of {listed(OPERATIONS)}")
        return value

    def _flag(self, key: str, *, otherwise: bool) -> bool:
        value = self._table.get(key, otherwise)
        if not isinstance(value, bool):
            raise self._error(f"has {key} = {value!r}; it must be true or false")
        return value

    def _head_dims(self) -> tuple[int, ...]:
        fields = get_operation(self._computes()).problem.__dataclass_fields__  # type: ignore[attr-defined]
        return self._list_of("head_dims", int, None) if "head_dim" in fields else ()

    def _most_rows(self) -> int:
        value = self._table.get("most_rows", 0)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise self._error(f"has most_rows = {value!r}; it must be a whole number")
        return value

    def _names(self, key: str) -> tuple[str, ...]:
        return self._list_of(key, str, None) if key in self._table else ()

    def _only_arch(self) -> str | None:
        """Converts ``arch = "90a"`` to ``sm_90a``."""
        if "arch" not in self._table:
            return None
        value, specific = self._table["arch"], [arch for arch in ARCHITECTURES if arch.endswith("a")]
        if f"sm_{value}" not in specific:
            known = listed(f'"{arch.removeprefix("sm_")}"' for arch in specific)
            raise self._error(f"has arch = {value!r}; known is {known}")
        return f"sm_{value}"

    def _compute_capability(self) -> tuple[int, int]:
        if arch := self._only_arch():
            return divmod(arch_number(arch), 10)
        value = self._get("min_compute_capability")
        match = re.fullmatch(r"(\d+)\.(\d)", str(value))
        if match is None or f"sm_{match[1]}{match[2]}" not in ARCHITECTURES:
            known = listed(f'"{arch_number(arch) / 10}"' for arch in ARCHITECTURES if not arch.endswith("a"))
            raise self._error(f"has min_compute_capability = {value!r}; it must be one of {known}")
        return int(match[1]), int(match[2])

    def _list_of(self, key: str, kind: type, allowed: Iterable[Any] | None) -> tuple[Any, ...]:
        value = self._get(key)
        allowed = None if allowed is None else tuple(allowed)
        sound = isinstance(value, list) and value and all(type(item) is kind for item in value)
        if not sound or (allowed is not None and not set(value) <= set(allowed)):
            what = f"some of {listed(allowed)}" if allowed else f"{kind.__name__} values"
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
