"""Judges exercises on rungs: build, faults, outputs, races, counts, with an explanation of what is wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ladder.common.isolation import ProcessEnded
from ladder.common.progress import Steps, steps
from ladder.common.wording import said
from ladder.common.words import numbers
from ladder.compile import confined
from ladder.course.exercises.deadlocks import deadlock_lines
from ladder.course.exercises.definition import BLOCK_BARRIERS, OTHERS, Case, Exercise
from ladder.course.exercises.markers import own_lines
from ladder.course.exercises.verdict import Remark, Verdict, counter_words
from ladder.errors import BuildError, ExecutionError, LadderError, UnspecifiedOutput, UnsupportedProblem
from ladder.run.emulator import COUNTERS, FaultError, instruction_limit, retold
from ladder.stages import include_directory

if TYPE_CHECKING:
    from ladder.operations import AnyProblem
    from ladder.run.emulator import Fault, Finding
    from ladder.run.evaluation import Evaluation
    from ladder.stages import Stage

#: Exercises are small: a warp that runs this long is in an endless loop.
MOST_INSTRUCTIONS = 4_000_000


def judge(exercise: Exercise, stage: Stage) -> Verdict:
    """Builds ``stage`` and tries it on the exercise's problems, on the emulator."""
    from ladder.run.backends import shared_minute

    with (
        steps(
            said("Checking {name}:", name=stage.name), len(exercise.cases) + 1, elsewhere=False
        ) as progress,
        instruction_limit(MOST_INSTRUCTIONS),
        confined(stage.path, include_directory()),
        shared_minute(),
    ):
        verdict = _judge(exercise, stage, progress)
    verdict.own_lines = own_place(stage.path)
    return verdict


def for_its_cases(exercise: Exercise, stage: Stage) -> Stage:
    """The stage with options that compile only what the exercise's cases need."""
    return stage.narrowed([case.problem for case in exercise.cases])


def _judge(exercise: Exercise, stage: Stage, progress: Steps) -> Verdict:
    """Reports one problem at a time: a wrong kernel's counts, or more wrong outputs, add no information."""
    verdict = Verdict(exercise)
    evaluations = _evaluate_cases(exercise, stage, verdict, progress)
    if verdict.findings:
        return verdict
    for case, evaluation in evaluations:
        if not evaluation.passed:
            with progress.step(said("what is wrong")):
                # The output first: a wrong address looks like a race, but no barrier fixes it.
                verdict.findings.append(_wrong_output(exercise, stage, case, evaluation))
                verdict.findings += _sanitized(stage, [case.problem])
            return verdict
    with progress.step(said("races and other faults")):
        verdict.findings += _sanitized(stage, [case.problem for case in exercise.cases])
    if not verdict.findings:
        verdict.findings += [remark for case in exercise.cases for remark in _order(stage, case)][:1]
    if not verdict.findings:
        _judge_counts(stage, evaluations, verdict)
    return verdict


def _evaluate_cases(
    exercise: Exercise, stage: Stage, verdict: Verdict, progress: Steps
) -> list[tuple[Case, Evaluation]]:
    """Evaluates the cases and adds right, wrong and failed ones to ``verdict``; returns those that
    finished.
    """
    from ladder.run.evaluation import evaluate

    evaluations: list[tuple[Case, Evaluation]] = []
    for case in exercise.cases:
        name = str(case.problem)
        try:
            with progress.step(name):
                evaluation = evaluate(stage, case.problem, backend="emulator", thoroughly=True)
        except BuildError as error:
            verdict.findings.append(Remark("build", error.message))
            return evaluations
        except (ExecutionError, UnsupportedProblem) as error:
            verdict.wrong.append(name)
            verdict.was_ended |= isinstance(error, ProcessEnded)
            if not verdict.findings:
                verdict.findings += _failure(stage, case.problem, error)
            if isinstance(error, ProcessEnded) or _kind_of(error) == "instruction limit":
                return evaluations  # the other cases would take just as long
            continue
        evaluations.append((case, evaluation))
        verdict.protections = evaluation.execution.protections
        (verdict.right if evaluation.passed else verdict.wrong).append(name)
    return evaluations


def _kind_of(error: LadderError) -> str:
    """The kind of the fault that ended a launch; "" for another error."""
    return error.fault.kind if isinstance(error, FaultError) else ""


def _judge_counts(stage: Stage, evaluations: Sequence[tuple[Case, Evaluation]], verdict: Verdict) -> None:
    """Compares counts with their limits, up to the first case that exceeds one."""
    for case, evaluation in evaluations:
        verdict.findings += _counts(stage, case, evaluation)
        if verdict.findings:
            return
        verdict.keep_largest({name: evaluation.row[name] for name in COUNTERS}, str(case.problem))


def _sanitized(stage: Stage, problems: Sequence[AnyProblem]) -> list[Remark]:
    """The sanitizer's first finding about an access or a barrier, as a list of one remark or none."""
    from ladder.run.evaluation import check_stage

    for problem in problems:
        for found in check_stage(stage, [problem]):
            if found.who is not None:
                return [access_remark(found, str(problem), _check_command(stage, problem))]
    return []


def _check_command(stage: Stage, problem: AnyProblem) -> str:
    return f"ladder check {stage.name} {problem.command_options}"


def access_remark(found: Finding, on: str, command: str, kind: str = "sanitizer") -> Remark:
    """Turns a finding about an access, a barrier or a host call into a remark that starts with the source."""
    places = []
    if found.host_place:
        file, _, line = found.host_place.rpartition(":")
        places.append(_quoted(Path(file), int(line)))
    for party in (found.who, found.other):
        if party is not None:
            places.append(_quoted(Path(party.kernel_file), party.own_line))
    what = retold(found.kind)
    if places:
        between = said(" and at ").join(dict.fromkeys(places))
        text = said("On {on}: {what}, at {places}", on=on, what=what, places=between)
    else:
        text = said("On {on}: {what}", on=on, what=what)
    text += f"\n{retold(found.message)}\n{retold(found.advice)}"
    return Remark(kind, text, (command,), found, on)


def _quoted(path: Path, line: int) -> str:
    """The place and its source: ``kernel.cu:12  wait(turn);``."""
    lines = path.read_text(errors="replace").splitlines() if path.is_file() else []
    text = lines[line - 1].strip() if 0 < line <= len(lines) else ""
    return f"{path.name}:{line}  {text}"


def _failure(stage: Stage, problem: AnyProblem, error: LadderError) -> list[Remark]:
    """What ended the run, and before it the sanitizer's finding where that is rather the cause."""
    from ladder.run.emulator import ADVICE

    if isinstance(error, UnspecifiedOutput):
        return [*_sanitized(stage, [problem]), _fault(stage, problem, error)]
    if not isinstance(error, FaultError) or error.fault.kind != "deadlock":
        return [_fault(stage, problem, error)]
    causes = _sanitized(stage, [problem])
    itself = next((one.access for one in causes if one.access and _is_same(one.access, error.fault)), None)
    otherwise = said(
        "Which threads should arrive there? Check that they reach that line, once for each wait."
    )
    if itself and itself.advice != ADVICE[itself.kind]:
        otherwise = retold(itself.advice)
    lines = [*deadlock_lines(str(problem), error.fault.message, _quoter(stage), otherwise)]
    if own := own_place(stage.path):
        lines.append(said("Your lines are {place}.", place=own))
    ended = Remark("deadlock", "\n".join(lines), (_check_command(stage, problem),), on=str(problem))
    return [ended] if itself else [*causes, ended]


def _quoter(stage: Stage) -> Callable[[str], str]:
    """Adds its source to a place such as ``kernel.cu:12`` in the stage's files."""

    def quoted(place: str) -> str:
        file, _, line = place.rpartition(":")
        return _quoted(stage.source(file), int(line))

    return quoted


def own_place(folder: Path) -> str:
    """The lines between the markers of a working copy, such as ``kernel.cu:12-15``; "" without markers."""
    sources = (path for suffix in ("cu", "h", "cuh") for path in sorted(folder.rglob(f"*.{suffix}")))
    return next((f"{path.name}:{own}" for path in sources if (own := own_lines(path))), "")


def _is_same(found: Finding, fault: Fault) -> bool:
    """Whether the finding is the fault itself. After the colon come places, which differ between runs."""
    return found.message.partition(":")[0] == fault.message.partition(":")[0]


def _fault(stage: Stage, problem: AnyProblem, error: LadderError) -> Remark:
    """Describes the fault that ended a kernel, in the sanitizer's words if it knows faults of that kind."""
    from ladder.run.emulator import ADVICE, Finding, Party

    command = _check_command(stage, problem)
    if not isinstance(error, FaultError):
        text = said("On {on}:", on=problem) + f"\n{retold(error.message)}"
        return Remark("fault", text, (command,), on=str(problem))
    fault = error.fault
    if fault.kind not in ADVICE:
        text = said("On {on}: {what}", on=problem, what=retold(fault.kind))
        if fault.own_line:
            text += said(", at {place}", place=_quoted(Path(fault.kernel_file), fault.own_line))
        text += f"\n{retold(fault.message)}"
        return Remark("fault", text, (command,), on=str(problem))
    who = Party(
        block=fault.block,
        warp=fault.warp if fault.warp >= 0 else None,
        lanes=(fault.lane,) if fault.lane >= 0 else (),
        file=fault.file,
        line=fault.line,
        kernel_file=fault.kernel_file,
        kernel_line=fault.kernel_line,
        own_line=fault.own_line,
        opcode=fault.opcode,
        ptx_line=fault.ptx_line,
    )
    element = "" if fault.address is None else said("address {address:#x}", address=fault.address)
    found = Finding(fault.kind, fault.message, fault.kernel, 1, who, None, element)
    return access_remark(found, str(problem), command, "fault")


def _wrong_output(exercise: Exercise, stage: Stage, case: Case, evaluation: Evaluation) -> Remark:
    from ladder.course.exercises.probes import probe
    from ladder.operations import Problem, operation_of

    execution = evaluation.execution
    problem = stage.accept(case.problem)
    operation = operation_of(problem)
    sentences = operation.diagnose(problem, execution.outputs, evaluation.reference, exercise.owner)
    is_finite = all(bool(tensor.isfinite().all()) for tensor in execution.outputs.values())
    if exercise.owner == "fragments" and isinstance(problem, Problem) and is_finite:
        # A capped logit is not that of its query and key alone.
        keys = "lse" in evaluation.reference.wrong(execution.outputs) and problem.softcap is None
        sentences += probe(stage, problem, keys=keys)
    text = "\n".join([said("On {on}:", on=case.problem), *sentences])
    command = f"ladder run {stage.name} {case.problem.command_options}"
    return Remark("output", text, (command,), on=str(case.problem))


def _order(stage: Stage, case: Case) -> Iterator[Remark]:
    """What is wrong with the order of work items, if it is part of the task."""
    from ladder.run.evaluation import rows_of_first_block

    if case.first_block is None:
        return
    count = case.first_block.multiprocessors
    by_head = rows_of_first_block(stage, case.problem, count)
    rows = "; ".join(f"rows {numbers(rows)} of head {head}" for head, rows in by_head.items())
    if rows != case.first_block.rows:
        text = said(
            "On {on}: right, but in another order than the task's. On a GPU of {count} multiprocessors "
            "block 0 computes {rows}; it should compute {wanted}.",
            on=case.problem,
            count=count,
            rows=rows or said("nothing"),
            wanted=case.first_block.rows,
        )
        yield Remark("order", text, on=str(case.problem))


def _counts(stage: Stage, case: Case, evaluation: Evaluation) -> Iterator[Remark]:
    for column, least in case.at_least.items():
        value = evaluation.row[column]
        if value is not None and value < least:
            text = cheap_text(str(case.problem), column, value, least)
            text += f"\n{said(case.reason)}"
            yield Remark("counts", text.strip(), on=str(case.problem))
    for column, most in case.at_most.items():
        barriers = _block_barriers(evaluation) if column == BLOCK_BARRIERS else {}
        value = sum(barriers.values()) if column == BLOCK_BARRIERS else evaluation.row[column]
        if value is not None and value <= most:
            continue
        text = dear_text(str(case.problem), column, value, most, case.reason)
        if column == BLOCK_BARRIERS:
            text += "\n" + said("They are at {places}.", places=_places(barriers))
            yield Remark("counts", text, on=str(case.problem))
            continue
        line = _line_with_most(column, evaluation)
        commands = [f"ladder lines {stage.name} {case.problem.command_options}"]
        if line is not None:
            place, share = line
            text += "\n" + said("Most, {share:,}, are at {place}", share=share, place=place)
            if column.startswith("conflicts"):
                number = place.split()[0].removeprefix("kernel.cu:")
                options = f"{stage.name}:{number} {case.problem.command_options}"
                commands.insert(0, f"ladder explain {options} --picture conflicts.png")
        yield Remark("counts", text, tuple(commands), on=str(case.problem))


def cheap_text(on: str, column: str, value: int, least: int) -> str:
    """Says that ``on`` counts less than ``least`` in a column of the table: part of the task is not done."""
    return said(
        "On {on}: right, but not what the task says: {value:,} {what}, which has at least {least:,}.",
        on=on,
        value=value,
        what=counter_words(column),
        least=least,
    )


def dear_text(on: str, column: str, value: int | None, most: int, reason: str) -> str:
    """Says that ``on`` counts more than ``most`` in a column of the table, and why fewer suffice; None is an
    unknown count.
    """
    text = said(
        "On {on}: right, but more expensive than needed: {count} {what}, at most {most:,}.",
        on=on,
        count=said("an unknown number of") if value is None else f"{value:,}",
        what=counter_words(column),
        most=most,
    )
    return f"{text}\n{said(reason)}" if reason else text


def _block_barriers(evaluation: Evaluation) -> dict[tuple[str, int], int]:
    """Counts, by the kernel's file and line, how often warps arrived at a barrier of their block."""
    found: dict[tuple[str, int], int] = {}
    for launch in evaluation.execution.launches:
        rows = launch.instructions()
        rows = rows[rows["ptx"].str.contains(r"\b(?:bar|barrier)\.(?!warp)", regex=True)]
        lines = zip(rows["kernel_file"], rows["kernel_line"], rows["executed"], strict=True)
        for file, line, executed in lines:
            place = (Path(file).name, int(line))
            found[place] = found.get(place, 0) + int(executed)
    return found


def _places(lines: Iterable[tuple[str, int]]) -> str:
    """``kernel.cu:41, 57``, file by file."""
    by_file: dict[str, list[int]] = {}
    for file, line in sorted(lines):
        by_file.setdefault(file, []).append(line)
    return ", ".join(f"{file}:{numbers(found)}" for file, found in by_file.items())


def _line_with_most(column: str, evaluation: Evaluation) -> tuple[str, int] | None:
    """Returns the kernel's line with the highest count, including headers' functions, and that count."""
    found: dict[tuple[str, int], int] = {}
    for launch in evaluation.execution.launches:
        rows = launch.lines()
        rows = rows[rows["kernel_file"].str.contains(rf"/(?:kernel\.cu|{OTHERS}/\w+\.h)$")]
        places = zip(rows["kernel_file"], rows["own_line"], strict=True)
        for place, count in zip(places, rows.get(column, ()), strict=False):
            found[place] = found.get(place, 0) + _known(count)
    place, most = max(found.items(), key=lambda one: (one[1], one[0]), default=(("", 0), 0))
    return (_quoted(Path(place[0]), int(place[1])), most) if most else None


def _known(count: object) -> int:
    """The count, or 0 if it is unknown."""
    import pandas as pd

    return 0 if pd.isna(count) else int(str(count))  # type: ignore[call-overload]
