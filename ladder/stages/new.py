"""``ladder new``: a new rung, made from an existing one."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ladder.common import cache, files
from ladder.errors import LadderError, StageError
from ladder.stages.discovery import discover
from ladder.stages.places import OWN_STAGES, exercises_root, own_folder
from ladder.stages.reading import read_stage
from ladder.stages.stage import Stage

_LONGEST_NAME = 60  # it becomes part of build directories' names


def new_stage(name: str, origin: str, folder: Path | None = None) -> Stage:
    """Copies the source of the stage ``origin`` into ``folder``/``name`` for the user to change.

    The default ``folder`` is the nearest my_rungs/, or a new one in the working directory. The copy gets its
    own ``stage.toml``, which puts it above ``origin``; origin's lesson and tests are not copied.

    Raises :class:`StageError` if the name is invalid or taken, or the origin unknown; :class:`LadderError` if
    the folder cannot be written.
    """
    ladder = discover()
    source = ladder[origin]
    _check_name(name, {stage.name: stage.path for stage in ladder})
    if name in ladder.broken:
        raise StageError(f"there is a stage {name} already", "Choose another name.")
    if name in ladder.aside or (exercises_root() / name).is_dir():
        raise StageError(f"{name} is an exercise", f"Choose another name, or: ladder exercise start {name}")
    if folder is None:
        folder = own_folder(OWN_STAGES) or Path.cwd() / OWN_STAGES
    final = files.expanded(folder) / name
    if final.exists():
        raise StageError(f"{final} is there already", "Choose another name, or move that folder away.")
    toml = stage_toml(source, f"{name}, from {source.name}", f"What is new in {name}: say it here")
    kernel = re.sub(rf"\b{re.escape(source.name)}\b", name, source.kernel.read_text(encoding="utf-8"))
    try:
        with cache.new_directory(final) as directory:
            copy_sources(source.path, directory)
            (directory / "kernel.cu").write_text(kernel, encoding="utf-8")
            (directory / "stage.toml").write_text(toml, encoding="utf-8")
    except (OSError, cache.CacheError) as error:
        reason = error.message if isinstance(error, cache.CacheError) else str(error)
        raise LadderError(reason, "Name a folder that can be written: --folder DIR") from error
    return read_stage(final)


def copy_sources(origin: Path, target: Path) -> None:
    """Copies a stage's sources, as writable files, into the empty folder ``target``."""
    for path in sorted(origin.rglob("*")):
        place = path.relative_to(origin)
        is_hidden = any(part[0] in "._" for part in place.parts)
        if path.is_file() and not is_hidden and path.suffix not in (".py", ".md"):
            (target / place).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target / place)


def _check_name(name: str, taken: dict[str, Path]) -> None:
    if not re.fullmatch(r"[A-Za-z]\w*", name, re.ASCII) or name == "include":
        raise StageError(
            f"{name!r} cannot be the name of a stage",
            "A letter, then letters, digits and underscores: for example my_attention.",
        )
    if len(name) > _LONGEST_NAME:
        raise StageError(f"{name} has more than {_LONGEST_NAME} characters", "Choose a shorter name.")
    if name in taken:
        raise StageError(f"there is a stage {name} already, in {taken[name]}", "Choose another name.")


def stage_toml(origin: Stage, title: str, idea: str) -> str:
    """The stage.toml of a stage above ``origin`` that supports the same problems."""
    table = {
        "title": title,
        "idea": idea,
        "before": origin.name,
        "computes": origin.computes,
        **_gpu(origin),
        "dtypes": origin.dtypes,
        **({"head_dims": origin.head_dims} if origin.head_dims else {}),
        **({"takes": origin.takes} if origin.takes else {}),
        **({"needs": origin.needs} if origin.needs else {}),
        **({"most_rows": origin.most_rows} if origin.most_rows else {}),
        **({} if origin.deterministic else {"deterministic": False}),
    }
    return _toml(table) + (f"\n[options]\n{_toml(origin.options)}" if origin.options else "")


def _gpu(origin: Stage) -> dict[str, str]:
    if origin.only_arch:
        return {"arch": origin.only_arch.removeprefix("sm_")}
    return {"min_compute_capability": "{}.{}".format(*origin.min_compute_capability)}


def _toml(table: Mapping[str, Any]) -> str:
    """Writes strings, numbers and lists of them as TOML, where they look the same as in JSON."""
    return "".join(f"{key} = {json.dumps(value)}\n" for key, value in table.items())
