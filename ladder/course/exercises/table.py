"""Tables of exercise.toml and answers.toml, read with one clear error for each mistake."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ladder.errors import LadderError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


class ExerciseError(LadderError):
    """The exercise does not exist, or its files do not fit its rung or each other."""


def read_table(path: Path) -> Table:
    """Reads the whole file. Raises :class:`ExerciseError` if it cannot be read or is not TOML."""
    try:
        return Table(path, "", tomllib.loads(path.read_text(encoding="utf-8")))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ExerciseError(f"{path} is not TOML: {error}") from error
    except OSError as error:
        raise ExerciseError(f"{path} cannot be read: {error.strerror}") from error


class Table:
    """A table of a TOML file; each value is checked as it is taken out."""

    def __init__(self, path: Path, place: str, values: Mapping[str, Any]) -> None:
        self._path = path
        self._place = place
        self._values = dict(values)

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def error(self, what: str) -> ExerciseError:
        return ExerciseError(f"{self._path}{self._place}: {what}")

    def take(self, key: str, kind: type, *default: Any) -> Any:
        if key not in self._values:
            if not default:
                raise self.error(f"there is no {key}")
            return default[0]
        value = self._values.pop(key)
        if type(value) is not kind:
            raise self.error(f"{key} = {value!r} is no {kind.__name__}")
        return value

    def text(self, key: str, *default: str) -> str:
        return str(self.take(key, str, *default))

    def texts(self, key: str) -> tuple[str, ...]:
        values = self.take(key, list)
        if not all(isinstance(value, str) for value in values):
            raise self.error(f"{key} = {values!r} is no list of texts")
        return tuple(value.strip() for value in values)

    def table(self, key: str, *default: dict[str, Any]) -> Table:
        return Table(self._path, f", {key}", self.take(key, dict, *default))

    def tables(self, key: str, *default: list[Any]) -> Iterator[Table]:
        for number, value in enumerate(self.take(key, list, *default), start=1):
            yield Table(self._path, f", {key} {number}", value)

    def finish(self) -> None:
        """Raises :class:`ExerciseError` for any key that was not taken."""
        if self._values:
            raise self.error(f"unknown key {next(iter(self._values))}")
