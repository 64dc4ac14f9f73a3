"""Verdicts kept in the cache, under a digest of everything that they depend on: a second run is instant."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TypeVar

from ladder.common import cache
from ladder.errors import CacheError


@dataclass(frozen=True)
class Kept:
    """What can be kept. ``is_lasting`` is false if another run may come to something else."""

    is_lasting: bool


T = TypeVar("T", bound=Kept)


def kept(kind: type[T], key: str, judge: Callable[[], T]) -> T:
    """The verdict under this key; of several processes and threads that want it, one makes it."""
    path = cache.root() / "class" / f"{key}.json"
    if (found := _read(kind, key)) is not None:
        return found
    with cache.lock(path):
        if (found := _read(kind, key)) is None:
            found = judge()
            if found.is_lasting:
                with suppress(CacheError):  # it is judged again next time
                    cache.write_text(path, json.dumps(asdict(found)))
    return found


def _read(kind: type[T], key: str) -> T | None:
    found = cache.read_json(cache.root() / "class" / f"{key}.json")
    try:
        return kind(**found) if isinstance(found, dict) else None
    except TypeError:  # damaged
        return None
