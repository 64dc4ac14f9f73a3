"""Tiles in registers as matrices, against the matrices that the kernels load and compute."""

import io

import numpy as np
import pytest

from ladder.common.terminal import SafeConsole
from ladder.debugger import How, Matrix, NoValue, debug_stage, matrices
from ladder.debugger.tables import matrix_table, variables_tables
from ladder.operations import get_operation
from ladder.stages import discover


def stopped_at(
    name: str, line: str, text: str, fragment: str = ""
) -> tuple[list[Matrix], dict[str, np.ndarray]]:
    """The matrices of an expression where warp 1 first reaches the line with this text, and the inputs."""
    operation, stage = get_operation("attention"), discover()[name]
    problem = stage.accept(operation.parse("1,1,64,64,64"))
    source = stage.kernel.read_text().splitlines()
    number = next(at for at, one in enumerate(source, 1) if line in one)
    with debug_stage(stage, problem, How()) as session:
        session.add_breakpoint("", number, "warp == 1")
        assert session.go().why == "breakpoint"
        found = session.ask("evaluate", text=text, focus=session.focus)
        drawn = operation.make_inputs(problem)
        inputs = {key: np.asarray(one[0, 0]) for key, one in drawn.items() if one is not None}
        return matrices(text, found["type"], found["values"], fragment, "f16"), inputs


def test_fragments_of_operand_a_are_rows_of_q() -> None:
    found, inputs = stopped_at("v2", "mma_m16n8k16<T>(part[0]", "q_rmem", "a")
    assert [one.title for one in found][:1] == ["q_rmem[0]: operand A of mma.m16n8k16"]
    whole = np.hstack([np.array(one.elements, dtype=np.float64) for one in found])
    assert (whole == inputs["q"][16:32].astype(np.float64)).all()


def test_a_tile_of_the_library_is_the_product() -> None:
    found, inputs = stopped_at("v7", "softmax(s, o, rows", "s")
    s = np.array(found[0].elements, dtype=np.float64)
    q, k = (inputs[name].astype(np.float64) for name in "qk")
    assert np.abs(s[:, : len(k)] - (q @ k.T)[16:32]).max() < 1e-4
    assert found[0].lanes[0][:4] == [0, 0, 1, 1] and found[0].lanes[9][8:10] == [4, 4]


def test_the_numbers_of_a_matrix_are_not_cut_in_a_narrow_terminal() -> None:
    numbers = [[-1.2345e-07 * (8 * row + column + 1) for column in range(8)] for row in range(2)]
    matrix = Matrix("o", numbers, [[column // 2 for column in range(8)]] * 2)
    console = SafeConsole(record=True, width=70, quiet=False, file=io.StringIO())
    console.print(matrix_table(matrix, 70), matrix_table(matrix, 70, 2))
    words = console.export_text().split()
    for row, of_row in enumerate(numbers):
        for column, number in enumerate(of_row):
            assert words.count(f"{number:.4g}") == (2 if column < 2 else 1), (row, column)


def test_a_number_is_no_tile() -> None:
    with pytest.raises(NoValue, match="x is int, no tile"):
        matrices("x", "int", [1] * 32)
    with pytest.raises(NoValue, match="3 registers in a row; accumulators takes 4"):
        matrices("x", "float[3]", [[0.0] * 3] * 32, "c")


@pytest.mark.parametrize(
    ("value", "text"), [([True, False], "[true, false]"), ([float("nan"), 1.0], "[nan, 1]")]
)
def test_arrays_of_words_are_shown_as_they_are(value, text):
    """Their brackets are no markup."""
    console = SafeConsole(width=80, file=io.StringIO())
    console.print(variables_tables([{"name": "s", "type": "", "values": [value] * 32, "reasons": {}}], 0))
    assert text in console.file.getvalue()
