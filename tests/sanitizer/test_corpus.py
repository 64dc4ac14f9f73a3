"""Planted faults are named by kind and line; kernels that only look wrong are not reported."""

import functools
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from corpus_runs import (
    CLEAN,
    CORPUS,
    FAULTS,
    HOPPER_CLEAN,
    HOPPER_FAULTS,
    Expected,
    Mutant,
    arch_of,
    build_corpus,
    case_names,
    expectations,
    is_caught,
    is_mutant_caught,
    lines_of,
    mutants,
    run_case,
    rungs_source,
)
from rungs import named

from ladder.run.emulator import ADVICE, Finding, ProgramResult

_REMARK = re.compile(r"remark\((\w+)\): (flag|order of additions|parity)")


@pytest.fixture(scope="module", autouse=True)
def _endless_loops_end_soon() -> Iterator[None]:
    """A sixteenth of the usual limit is enough for all cases that end."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LADDER_WARP_INSTRUCTION_LIMIT", str(1 << 24))
        yield


@functools.cache
def results_of(name: str) -> dict[str, ProgramResult]:
    source = CORPUS / f"{name}.cu"
    program = build_corpus(source)
    names = case_names(source)
    with ThreadPoolExecutor(2) as pool:
        arch = arch_of(source)
        results = pool.map(lambda case: run_case(program, case, arch), names)
        return dict(zip(names, results, strict=True))


def run_all(name: str) -> dict[str, list[Finding]]:
    return {case: list(result.findings) for case, result in results_of(name).items()}


def remarks_of(name: str, case: str) -> list[Finding]:
    return list(results_of(name)[case].remarks)


def findings_of(case: str) -> list[Finding]:
    """What is found in the case of that name, of a file of planted faults."""
    return next(run_all(name)[case] for name in FAULTS if case in case_names(CORPUS / f"{name}.cu"))


def missed(found: dict[str, list[Finding]], expected: dict[str, Expected]) -> list[str]:
    return [
        f"{case}: {expected[case]}, {found[case]}"
        for case in found
        if not is_caught(expected[case], found[case])
    ]


#: Kinds that only asynchronous programs have.
ASYNCHRONOUS = {
    "read not waited for",
    "product not waited for",
    "wgmma fence",
    "proxy fence",
    "swizzle",
    "election",
}
#: Kinds that only programs for sm_100a have: ``test_tensor_findings.py``.
TENSOR_MEMORY = {"tensor memory not waited for", "tcgen05 fence", "tensor memory lanes"}


@pytest.mark.parametrize("name", [*FAULTS, *HOPPER_FAULTS])
def test_every_planted_fault_is_caught(name: str) -> None:
    found, expected = run_all(name), expectations(CORPUS / f"{name}.cu")
    assert set(expected) == set(found)
    assert missed(found, expected) == []


def test_every_kind_is_planted() -> None:
    planted = [fault for name in FAULTS for fault in expectations(CORPUS / f"{name}.cu").values()]
    of_check = {"wrong result", "failure", "unordered additions", "undefined registers"}
    others = {"fault", "flag", "order of additions", "parity"} | of_check | ASYNCHRONOUS | TENSOR_MEMORY
    assert len(planted) >= 100 and {fault.kind for fault in planted} >= set(ADVICE) - others


def test_the_asynchronous_corpus_has_many_cases_of_each_kind() -> None:
    planted = [e for name in HOPPER_FAULTS for e in expectations(CORPUS / f"{name}.cu").values()]
    assert len(planted) >= 60
    assert {e.kind for e in planted} >= ASYNCHRONOUS
    assert sum(len(case_names(CORPUS / f"{name}.cu")) for name in HOPPER_CLEAN) >= 30


def test_no_two_cases_have_one_name() -> None:
    """results/sanitizer.csv knows them by it."""
    files = (*FAULTS, *CLEAN, *HOPPER_FAULTS, *HOPPER_CLEAN)
    names = [case for name in files for case in case_names(CORPUS / f"{name}.cu")]
    names += [mutant.name for mutant in mutants()]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("name", [*FAULTS, *HOPPER_FAULTS])
def test_only_a_program_that_forgets_to_free_leaks(name: str) -> None:
    """After a fault that breaks the device nothing can be freed."""
    expected = expectations(CORPUS / f"{name}.cu")
    leaks = {case for case, found in run_all(name).items() if any(one.kind == "leak" for one in found)}
    assert leaks <= {case for case, fault in expected.items() if fault.kind == "leak"}


def test_a_wrong_line_would_be_missed() -> None:
    case, expected = next(iter(expectations(CORPUS / f"{FAULTS[0]}.cu").items()))
    found = findings_of(case)
    assert is_caught(expected, found)
    assert not is_caught(Expected(expected.kind, expected.line + 1), found)
    assert not is_caught(Expected("leak", expected.line), found)


@pytest.mark.parametrize("name", [*CLEAN, *HOPPER_CLEAN])
def test_no_false_alarms(name: str) -> None:
    found = run_all(name)
    assert len(found) >= (15 if name in CLEAN else 10)
    assert {case: findings for case, findings in found.items() if findings} == {}


def test_a_race_names_both_parties() -> None:
    race = next(f for f in findings_of("no_barrier_after_fill") if f.kind == "race between warps")
    assert race.who and race.other and race.who.warp != race.other.warp
    assert race.element.startswith("tile + ") and race.count > 1 and race.advice
    between_blocks = next(f for f in findings_of("blocks_write_one_word") if f.kind == "race between blocks")
    assert between_blocks.who and between_blocks.other
    assert between_blocks.who.block != between_blocks.other.block


def test_a_call_that_failed_before_is_named_as_the_cause() -> None:
    found = findings_of("allocation_that_fails")[0]
    assert found.message.endswith(
        "a null pointer, after cudaMalloc of 35184372088832 bytes returned cudaErrorMemoryAllocation and the "
        "program went on"
    )
    assert found.advice.startswith("Check what cudaMalloc returns")


@pytest.mark.parametrize("name", CLEAN + HOPPER_CLEAN)
def test_what_is_no_fault_is_a_remark(name: str) -> None:
    """Equal bytes that many threads write to global memory; in shared memory, and between an atomic's lanes,
    nothing is said. And additions of floats that nothing orders.
    """
    source = CORPUS / f"{name}.cu"
    lines = source.read_text().splitlines()
    found = [(number, *words) for number, line in enumerate(lines, 1) for words in _REMARK.findall(line)]
    marked = {case: (kind, number) for number, case, kind in found}
    said = {case: remarks_of(name, case) for case in case_names(source)}
    assert {case for case in said if said[case]} == set(marked)
    for case, (kind, number) in marked.items():
        [remark] = said[case]
        assert remark.kind == kind and number in lines_of(remark)


def test_an_address_below_shared_memory_is_told_as_one() -> None:
    assert findings_of("before_shared_memory")[0].element == "4 bytes before shared memory"


@pytest.mark.parametrize(
    "case, start, end",
    [
        ("no_barrier_after_fill", "Put __syncthreads() between the two lines.", ""),
        ("no_syncwarp", "Put __syncwarp() between the two lines", ""),
        (
            "warps_write_one_word",
            "Two threads write the same bytes at this line: is the address right",
            "rounds.",
        ),
        (
            "lanes_write_one_word",
            "Two threads write the same bytes at this line: is the address right",
            "rounds.",
        ),
        ("histogram_without_atomics", "Two threads", "put __syncthreads() between the rounds."),
        ("volatile_is_no_syncwarp", "At this line a thread reads an element", "before the next round."),
    ],
)
def test_the_address_is_doubted_first_where_no_barrier_fits_between(case: str, start: str, end: str) -> None:
    races = [found for found in findings_of(case) if found.kind in ("race between warps", "race in a warp")]
    one_line = [race for race in races if race.who and race.other and race.who.line == race.other.line]
    advice = (one_line or races)[0].advice
    assert advice.startswith(start) and advice.endswith(end)


def test_two_writes_at_two_lines_and_one_line_through_two_helpers() -> None:
    race = next(f for f in findings_of("no_barrier_after_fill") if f.kind == "race between warps")
    two_writes = replace(
        race, message="writes 4 bytes of shared memory that another warp wrote, with no barrier"
    )
    assert two_writes.advice.startswith("Two threads write the same bytes: is the address right")
    assert two_writes.advice.endswith("put __syncthreads() between.")
    assert race.other is not None
    by_helpers = replace(race, who=replace(race.other, line=race.other.line + 1))
    assert by_helpers.advice == ADVICE[race.kind]


#: Most changes are of these rungs; the others are left to the nightly run.
MOST_CHANGED = (named("v1"), named("v2"))
CHANGED = [
    pytest.param(stage, marks=[] if stage in MOST_CHANGED else [pytest.mark.nightly])
    for stage in sorted({mutant.stage for mutant in mutants()})
]


@pytest.mark.parametrize("stage", CHANGED)
def test_a_rung_with_one_line_changed_is_caught(stage: str) -> None:
    program = build_corpus(rungs_source(stage))
    untouched = run_case(program, stage)
    assert untouched.exit_code == 0 and untouched.findings == ()

    def is_missed(mutant: Mutant) -> bool:
        result = run_case(program, mutant.name)
        return not is_mutant_caught(mutant, list(result.findings), result.exit_code)

    assert [mutant.name for mutant in mutants() if mutant.stage == stage and is_missed(mutant)] == []
