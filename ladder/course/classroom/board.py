"""A leaderboard of rungs that a class hands in, by what they count: no GPU, and no luck, is needed.

A wrong rung has no rank. The verdict is that on an exercise: right outputs, in two orders of blocks and
warps, and nothing for the sanitizer to find.
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from ladder.common import cache, files, processes
from ladder.common.isolation import ProcessEnded
from ladder.common.progress import Steps, steps
from ladder.course.classroom.kept import Kept, kept
from ladder.course.classroom.students import Submission, SubmissionError, submissions
from ladder.course.exercises import harness_key
from ladder.errors import LadderError
from ladder.operations import AnyProblem
from ladder.stages import Stage, read_stage

if TYPE_CHECKING:
    from ladder.run.emulator import Launch

#: The GPU that the least times are for.
GPU = "h100"
_ENDINGS = (".cu", ".cuh", ".h", ".hpp", ".inl", ".inc")


@dataclass(frozen=True)
class Entry:
    """A student's rung. ``counts`` are those on ``problem``, in the order of :attr:`COUNTS`, None where they
    are unknown. ``rank`` is 0 if it is ``refused``, which says why.
    """

    #: Wavefronts and conflicts of all kinds of shared-memory accesses; sectors from and to global memory; the
    #: least time on :data:`GPU` by these counts (:func:`ladder.counts.time.bound_of`).
    COUNTS: ClassVar = ("wavefronts", "instructions", "conflicts", "sectors", "time_ns")

    student: str
    computes: str = ""
    problem: str = ""
    counts: Mapping[str, int | None] = field(default_factory=lambda: dict.fromkeys(Entry.COUNTS))
    refused: str = ""
    rank: int = 0


@dataclass(frozen=True)
class _Judged(Kept):
    computes: str
    problem: str
    counts: Mapping[str, int | None]
    refused: str


@processes.ended_by_signals()
def rank(folder: Path, by: str = "wavefronts", jobs: int = 0) -> list[Entry]:
    """Judges the rung in each student's folder and ranks those that are right, per operation and problem, by
    a count of :attr:`Entry.COUNTS`, the smallest first. Refused rungs come last.

    Raises :class:`SubmissionError` if ``folder`` holds no folders.
    """
    class_ = submissions(folder)
    with (
        steps("Judging", len(class_)) as progress,
        processes.Pool(max_workers=jobs or os.cpu_count()) as pool,
    ):
        entries = [*pool.map(lambda submission: _entry(submission, progress), class_)]
    right = [_unranked(entry, by) for entry in entries]
    return [*_ranked([entry for entry in right if not entry.refused], by), *(e for e in right if e.refused)]


def _unranked(entry: Entry, by: str) -> Entry:
    """The entry, refused if it is right and its count is unknown."""
    if not entry.refused and entry.counts[by] is None:
        return dataclasses.replace(entry, refused=f"the emulator cannot count all of its {by}")
    return entry


def _ranked(entries: Sequence[Entry], by: str) -> Iterator[Entry]:
    """Gives equal counts equal ranks."""

    def group(entry: Entry) -> tuple[str, str]:
        return entry.computes, entry.problem

    ordered = sorted(entries, key=lambda entry: (*group(entry), entry.counts[by] or 0, entry.student))
    for entry in ordered:
        better = [
            o for o in ordered if group(o) == group(entry) and (o.counts[by] or 0) < (entry.counts[by] or 0)
        ]
        yield dataclasses.replace(entry, rank=1 + len(better))


def _entry(submission: Submission, progress: Steps) -> Entry:
    with progress.step(submission.student):
        try:
            sources = _sources(submission)
            rung = _rung(submission, sources)
        except LadderError as error:
            return Entry(submission.student, refused=error.message)
        parts = [part for item in sorted(sources.items()) for part in item]
        key = cache.digest([harness_key(rung.default_arch), "board", *Entry.COUNTS, *parts])
        found = kept(_Judged, key, lambda: _judge(rung))
    text = found.refused.replace(str(rung.path), submission.student)
    return Entry(submission.student, found.computes, found.problem, found.counts, text)


def _sources(submission: Submission) -> dict[str, bytes]:
    """The rung's files by name, its headers among them. Raises :class:`SubmissionError`."""
    submission.handed_in()
    paths = [path for path in files.walk(submission.folder) if path.suffix in _ENDINGS]
    found = {str(path.relative_to(submission.folder)): submission.read(path) for path in sorted(paths)}
    for name in ("kernel.cu", "stage.toml"):
        found[name] = submission.read(submission.folder / name)
    return found


def _rung(submission: Submission, sources: Mapping[str, bytes]) -> Stage:
    """The rung, copied into a folder with a name that a stage may have. Raises :class:`StageError`."""
    digest = cache.digest(part for item in sorted(sources.items()) for part in item)
    folder = cache.made_of(cache.root() / "class" / digest / "rung", sources)
    try:
        return read_stage(folder)
    except LadderError as error:
        raise SubmissionError(error.message.replace(str(folder), submission.student)) from error


def _judge(rung: Stage) -> _Judged:
    from ladder.run.evaluation import check_stage, evaluate, evaluate_all, usual_problems

    problem, *others = problems = usual_problems(rung)
    counts: dict[str, int | None] = dict.fromkeys(Entry.COUNTS)
    refused, is_lasting = "", True
    try:
        rung = _narrowed(rung, problems)
        first = evaluate(rung, problem, backend="emulator", thoroughly=True)
        refused = first.text
        launches = first.execution.launches
        executed = sum(int(launch.instructions()["executed"].sum()) for launch in launches)
        counts = _counts(first.row, executed, _least_ns(problem, launches))
        for found in () if refused else evaluate_all(rung, others, backend="emulator", thoroughly=True):
            refused = refused or (f"on {found.problem}: {found.text}" if found.text else "")
        for fault in () if refused else check_stage(rung):
            refused = refused or f"{fault.kind}: {fault.message}"
    except LadderError as error:
        refused, is_lasting = error.message, not isinstance(error, ProcessEnded)
    return _Judged(is_lasting, rung.computes, str(problem), counts, refused)


def _narrowed(rung: Stage, problems: Sequence[AnyProblem]) -> Stage:
    """The rung with the dtype and the head dims of these problems alone, which compiles in less time.

    Raises :class:`UnsupportedProblem` if it takes none of them.
    """
    head_dims = {getattr(rung.accept(one), "head_dim", None) for one in problems}
    kept = tuple(dim for dim in rung.head_dims if dim in head_dims)
    return dataclasses.replace(rung.narrowed(problems), head_dims=kept)


def _least_ns(problem: AnyProblem, launches: Sequence[Launch]) -> int:
    """The least time of these launches, rounded up."""
    from ladder.counts.time import bound_of, least_bytes, load_gpu, work_of_launch

    read, written = least_bytes(problem)
    works = [work_of_launch(launch) for launch in launches]
    return math.ceil(bound_of(load_gpu(GPU), works, read_bytes=read, written_bytes=written).ms * 1e6)


def _counts(row: Mapping[str, object], executed: int, least_ns: int) -> dict[str, int | None]:
    columns = {
        "wavefronts": ("wavefronts_ld", "wavefronts_st", "wavefronts_gmma"),
        "conflicts": ("conflicts", "conflicts_gmma"),
        "sectors": ("global_sectors_ld", "global_sectors_st", "tma_sectors_ld", "tma_sectors_st"),
    }
    sums = {name: _sum([row[column] for column in of]) for name, of in columns.items()}
    counts = {**sums, "instructions": executed, "time_ns": least_ns}
    return {name: counts[name] for name in Entry.COUNTS}


def _sum(values: Sequence[object]) -> int | None:
    return None if None in values else sum(int(str(value)) for value in values)
