"""The check is never wrong: it refuses every wrong answer, in the right words, and accepts the right ones.

The answers are in exercises/<name>/answers.toml; each exercise's skeleton is a wrong one, too. By default,
one wrong answer of some that compile in seconds is tried; EXERCISE_SEED selects others. To try all of them:
pytest -m full tests/course/exercises.
"""

from __future__ import annotations

import os
import random
import re
from collections import Counter
from pathlib import Path

import pytest
from exercise_cost import is_quick
from rungs import named

from ladder.common import cache
from ladder.course.exercises import (
    Exercise,
    ExerciseError,
    Verdict,
    WrongAnswer,
    exercises,
    fill_gap,
    judge_folder,
    read_answers,
    solution_text,
    write_working_copy,
)
from ladder.operations import DecodingProblem
from ladder.operations.hstu.problem import HstuProblem
from tools.bench.gaps import gap_mutants, judge_gap
from tools.bench.mutants import equivalent

EXERCISES = exercises()
#: A fixed folder, so that builds can be reused by later runs.
BUILD = Path(__file__).parents[3] / "build" / "answers"
SEED = os.environ.get("EXERCISE_SEED", "0")
SOME = sorted(random.Random(SEED).sample([*filter(is_quick, EXERCISES)], 8), key=lambda one: one.name)

#: Rows and columns of the scores that a block of some rungs processes at once, by head dimension.
FOUR_WARPS = {32: (64, 64), 64: (64, 48), 128: (64, 32)}
SIXTEEN_WARPS = {32: (256, 64), 64: (256, 48), 128: (256, 32)}
THREE_WARPGROUPS = {32: (192, 128), 64: (192, 128)}
WARPS_WITH_KEYS = {32: (64, 128), 64: (64, 128), 128: (32, 64)}
WARPGROUPS_WITH_KEYS = {64: (128, 128), 128: (64, 128)}
#: The same by rung.
TILES = {
    named("v1"): {32: (128, 32), 64: (128, 32), 128: (64, 16)},
    named("v1b"): {32: (64, 32), 64: (64, 32), 128: (32, 16)},
    named("v2"): FOUR_WARPS,
    named("v3"): FOUR_WARPS,
    named("v4"): SIXTEEN_WARPS,
    named("v5"): SIXTEEN_WARPS,
    named("v6"): SIXTEEN_WARPS,
    named("v7"): THREE_WARPGROUPS,
    named("v8"): THREE_WARPGROUPS,
    named("v9"): THREE_WARPGROUPS,
    named("v10b"): THREE_WARPGROUPS,
    named("v11"): THREE_WARPGROUPS,
    named("v12"): THREE_WARPGROUPS,
    named("x1"): THREE_WARPGROUPS,
    named("x2"): THREE_WARPGROUPS,
    named("x3"): THREE_WARPGROUPS,
    named("x4"): {128: (192, 80)},
    named("h8"): {64: (128, 128), 128: (64, 128)},
    named("x2b"): {64: (128, 128)},
    named("x3b"): {64: (128, 128)},
    named("x4b"): {128: (64, 128)},
    named("b1"): WARPS_WITH_KEYS,
    named("b2"): WARPS_WITH_KEYS,
    named("b2b"): WARPS_WITH_KEYS,
    named("b3"): {32: (64, 128), 64: (64, 128), 128: (64, 128)},
    named("b4"): WARPGROUPS_WITH_KEYS,
    named("b4e"): WARPGROUPS_WITH_KEYS,
    named("b4g"): WARPGROUPS_WITH_KEYS,
    named("b5"): {128: (64, 128)},
    named("b5b"): {128: (64, 128)},
    named("b5d"): {128: (80, 128)},
    named("b5e"): {64: (128, 128), 128: (80, 128)},
    named("b5g"): {64: (128, 128)},
    named("b6"): {128: (80, 128)},
    named("h1"): {64: (128, 32)},
    named("h2"): {64: (128, 32)},
    named("h3"): {64: (128, 32)},
    named("h3b"): {64: (64, 128)},
    named("h4"): {64: (128, 32)},
    named("h5"): {64: (128, 64)},
    named("h6"): {64: (192, 128)},
    named("h7"): {64: (192, 128)},
    named("h7d"): {64: (192, 64), 128: (192, 64)},
    named("d1"): {64: (64, 64)},
    named("d2"): {64: (64, 64)},
    named("d3"): {64: (64, 64)},
    named("d4"): {64: (64, 64)},
    named("d5"): {64: (64, 64)},
    named("d6"): {64: (64, 128)},
}

#: A call that orders threads or copies, with the object and the arguments: K's wait is not V's.
ORDERING = re.compile(
    r"[\w.:]*\b(?:(?:\w*_)?(?:wait|release|acquire|threadfence|fence|sync|barrier|arrive|commit|publish)\w*"
    r"|pass|pass_on|atomicAdd)(?:<\w+>)?\([^()]*"
)


def verdict_on(exercise: Exercise, text: str) -> Verdict:
    """Checks ``text`` in the gap."""
    folder = BUILD / cache.digest([exercise.name, text]) / exercise.name
    folder.mkdir(parents=True, exist_ok=True)
    write_working_copy(exercise, folder, solved=False)
    fill_gap(exercise, folder, text)
    return judge_folder(exercise, folder)


def wrong_answers(exercise: Exercise) -> tuple[WrongAnswer, ...]:
    """The wrong answers, and the skeleton without expected messages."""
    return (WrongAnswer("the skeleton", exercise.gap.skeleton, ()), *read_answers(exercise).wrong)


def require_refusal(exercise: Exercise, answer: WrongAnswer) -> None:
    verdict = verdict_on(exercise, answer.text)
    said = "\n".join(finding.text for finding in verdict.findings)
    where = f"{exercise.name}, {answer.why} (EXERCISE_SEED={SEED}):\n{said}"
    assert not verdict.passed, where
    # The skeleton must compile, since students should not have to start by fixing it.
    assert answer.why != "the skeleton" or verdict.findings[0].kind != "build", where
    for piece in answer.says:
        assert piece in said, where


@pytest.mark.parametrize("exercise", SOME, ids=lambda one: one.name)
def test_a_wrong_answer_is_refused(exercise: Exercise) -> None:
    require_refusal(exercise, random.Random(SEED + exercise.name).choice(wrong_answers(exercise)))


@pytest.mark.full
@pytest.mark.parametrize(
    ("exercise", "number"),
    [(one, number) for one in EXERCISES for number in range(len(wrong_answers(one)))],
    ids=lambda part: getattr(part, "name", str(part)),
)
def test_every_wrong_answer_is_refused(exercise: Exercise, number: int) -> None:
    require_refusal(exercise, wrong_answers(exercise)[number])


@pytest.mark.full
@pytest.mark.parametrize(
    ("exercise", "number"),
    [(one, number) for one in EXERCISES for number in range(len(read_answers(one).right))],
    ids=lambda part: getattr(part, "name", str(part)),
)
def test_every_other_right_answer_is_accepted(exercise: Exercise, number: int) -> None:
    answer = read_answers(exercise).right[number]
    verdict = verdict_on(exercise, answer.text)
    assert verdict.passed, f"{exercise.name}, {answer.why}:\n{verdict.findings}"


@pytest.mark.full
@pytest.mark.parametrize("exercise", EXERCISES, ids=lambda one: one.name)
def test_wrong_answers_made_by_machine_are_refused(exercise: Exercise) -> None:
    """Except for equivalent mutants, which equivalent_mutants.toml lists."""
    outcomes = [judge_gap(mutant) for mutant in gap_mutants(exercise)]
    accepted = [one.mutant for one in outcomes if one.killed and not one.killed["check"]]
    assert [(one.name, one.new) for one in accepted if one.name not in equivalent()] == []


def test_answers_are_many_and_different() -> None:
    for exercise in EXERCISES:
        answers = read_answers(exercise)
        assert len(answers.wrong) >= 5, exercise.name
        assert answers.right, exercise.name
        texts = [solution_text(exercise), *(one.text for one in (*answers.wrong, *answers.right))]
        assert all(one.says for one in answers.wrong), exercise.name
        bare = ["".join(text.split()) for text in (exercise.gap.skeleton, *texts)]
        assert len(set(bare)) == len(bare), exercise.name


def test_every_wait_release_and_fence_of_a_solution_is_missing_in_a_wrong_answer() -> None:
    """Such an answer is often right by luck, so the check must find the race and not a wrong number."""
    for exercise in EXERCISES:
        calls, skeleton = ordering_calls(solution_text(exercise)), ordering_calls(exercise.gap.skeleton)
        wrong = [ordering_calls(one.text) for one in read_answers(exercise).wrong]
        for call, count in calls.items():
            lacks_it_alone = calls - skeleton == Counter({call: 1})
            assert lacks_it_alone or any(one[call] < count for one in wrong), f"{exercise.name}: {call})"


def ordering_calls(text: str) -> Counter[str]:
    """How often each call that orders threads or copies is made."""
    return Counter(match.group().strip() for match in ORDERING.finditer(re.sub("//.*", "", text)))


@pytest.mark.parametrize(
    "text, message",
    [
        ('[[wrong]]\nwhy = "a slip"\ntext = "x"\n', "wrong 1: there is no says"),
        (
            '[[right]]\nwhy = "a slip"\nchanges = [{ from = "nowhere", to = "" }]\n',
            "changes 1: 'nowhere' occurs 0 times in the solution, not once",
        ),
    ],
)
def test_a_faulty_answers_toml_says_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, message: str
) -> None:
    exercise = next(one for one in EXERCISES if one.rung is not None)
    solution = solution_text(exercise)
    monkeypatch.setattr("ladder.course.exercises.answers.solution_text", lambda of: solution)
    monkeypatch.setattr("ladder.course.exercises.definition.exercises_root", lambda: tmp_path)
    assert read_answers(exercise).wrong == ()
    path = tmp_path / exercise.name / "answers.toml"
    path.parent.mkdir()
    path.write_text(text)
    with pytest.raises(ExerciseError, match=rf"answers\.toml, {message}"):
        read_answers(exercise)


@pytest.mark.parametrize("exercise", EXERCISES, ids=lambda one: one.name)
def test_cases_fill_the_tiles_and_do_not(exercise: Exercise) -> None:
    """The cases must reveal kernels that are right only for full tiles, or only for partial ones."""
    if exercise.rung is None:
        assert len(exercise.runs) >= 2
        return
    remainders = []
    for case in exercise.cases:
        problem = case.problem
        rows, keys = TILES[exercise.rung][problem.head_dim]
        if isinstance(problem, HstuProblem):
            lengths = list(zip(problem.q_lens, problem.all_kv_lens, strict=True))
        elif isinstance(problem, DecodingProblem):  # few queries never fill a tile
            lengths = [(length, length) for length in problem.all_lengths]
        else:
            lengths = [(problem.q_len, problem.kv_len)]
        remainders += [(n % rows, m % keys) for n, m in lengths]
    assert (0, 0) in remainders
    assert any(row and key for row, key in remainders)
