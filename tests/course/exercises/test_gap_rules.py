"""What a program's gap may hold: nothing that changes lines outside of it."""

from __future__ import annotations

import pytest

from ladder.course.exercises import check_gap, exercises, get_exercise, read_answers, solution_text
from ladder.course.exercises.gap_rules import broken_rule

DIRECTIVE = "A preprocessor line"


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("#define if(...) if (false)", DIRECTIVE),
        ("const int i = 0;\n  # undef kThreads", DIRECTIVE),
        ("%:define y x", DIRECTIVE),
        ("int i; \\\n", ""),
        ("#\\\ndefine y x", DIRECTIVE),
        ("#pragma unroll\nfor (;;) { break; }", ""),
        ('const char *name = "#define {";', ""),
        ("/* { */ // {", ""),
        ("y[0] = '{'; // }", ""),
        ('auto text = R"x(\n#define y\n{)x";', ""),
        ("} int other() {", "that was opened outside"),
        ("%> int other() <%", "that was opened outside"),
        ("if (i < n) {", "not closed there"),
        ("y[i] = 1; /* the rest", "has to end between them"),
        ("", ""),
    ],
)
def test_rules(text: str, rule: str) -> None:
    found = broken_rule(text)
    assert rule in found and bool(rule) == bool(found)


def test_main_does_not_return_before_it_has_compared() -> None:
    kernel = "__global__ void k() {\n} // int main() {\n"
    for text in ("return 0;", "if (x) goto right;"):
        assert "must not return" in broken_rule(text, kernel + "int main() {\n  if (x) {\n  }\n")
        for before in ("__global__ void k() {\n", kernel + "int main() {\n}\nvoid f() {\n"):
            assert not broken_rule(text, before)


def test_no_known_answer_to_a_program_breaks_a_rule() -> None:
    programs = [one for one in exercises() if one.rung is None]
    texts = [text for one in programs for text in (one.gap.skeleton, solution_text(one))]
    texts += [
        answer.text for one in programs for answer in (*read_answers(one).right, *read_answers(one).wrong)
    ]
    assert [text for text in texts if broken_rule(text)] == []


def test_a_macro_that_switches_the_comparison_off_is_refused() -> None:
    verdict = check_gap(get_exercise("cuda_map"), "#define if(...) if (false)")
    [remark] = verdict.findings
    assert remark.kind == "gap" and DIRECTIVE in remark.text


def test_a_program_that_writes_less_than_half_of_its_output_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As it would be if something else wrote the result."""
    from ladder.course.exercises import programs
    from ladder.course.exercises.reference_counts import ReferenceCounts

    known = ReferenceCounts("program.cu 256", {"global_sectors_st": 66})
    monkeypatch.setattr(programs, "reference_counts", lambda exercise: known)
    exercise = get_exercise("cuda_map")
    verdict = check_gap(exercise, solution_text(exercise))
    assert "32 global sectors of stores, which has at least 33" in verdict.findings[0].text
    known.counts["global_sectors_st"] = 65  # type: ignore[index]
    assert check_gap(exercise, solution_text(exercise)).passed
