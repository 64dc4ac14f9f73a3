"""Every operation, and the harness with operations other than attention."""

import json

import pytest
import torch

from ladder.cli import main
from ladder.errors import InvalidProblem, UnsupportedProblem
from ladder.operations import OPERATIONS, Problem, get_operation, operation_of
from ladder.operations.row_softmax import RowSoftmaxProblem
from ladder.run.evaluation import columns, evaluate
from ladder.stages import discover


def problems():
    for name in OPERATIONS:
        operation = get_operation(name)
        yield operation.default_problem
        yield from operation.check_problems
        yield from operation.matrix(("f16", "f32"), (64,))[:40]


@pytest.mark.parametrize("name", OPERATIONS)
def test_what_an_operation_says_of_itself_agrees(name):
    operation = get_operation(name)
    assert operation.name == name == operation.problem.operation
    for problem in (operation.default_problem, operation.default_gpu_problem, *operation.check_problems):
        assert operation_of(problem) is operation
        assert list(operation.row(problem)) == list(operation.columns)
        outputs = [one.name for one in operation.outputs(problem)]
        assert outputs == [name for name in operation.output_names if name in outputs]
        assert outputs[0] == operation.output_names[0]
        assert operation.needed_bytes(problem) > 0
        parsed = operation.parse(operation.size_of(problem))
        assert operation.size_of(parsed) == operation.size_of(problem)
    assert set(columns(operation)) >= {"stage", "error", "error_bound", "passed", "conflicts", "tflops"}


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_reference_is_of_the_outputs_and_refuses_wrong_ones(name):
    operation = get_operation(name)
    problem = operation.matrix(("f16",), (32,))[0]
    reference = operation.reference(problem, operation.make_inputs(problem))
    shapes = {one.name: one.shape for one in operation.outputs(problem)}
    assert {name: tuple(tensor.shape) for name, tensor in reference.outputs.items()} == shapes
    assert all(0 < bound < 1 for bound in reference.bounds.values())
    assert reference.passed(reference.errors(reference.outputs))
    for name in shapes:
        wrong = dict(reference.outputs)
        wrong[name] = wrong[name] + 2 * reference.bounds[name]
        assert not reference.passed(reference.errors(wrong)), name
        wrong[name] = torch.full_like(wrong[name], torch.nan)
        assert not reference.passed(reference.errors(wrong)), name
        wrong = {name: tensor.float() for name, tensor in wrong.items()}
        assert operation.diagnose(problem, wrong, reference, "thread")


@pytest.mark.parametrize("problem", [*problems()], ids=str)
def test_a_problem_is_the_same_after_its_text(problem):
    text = problem.text
    assert type(problem).from_text(text) == problem and not set(" \"':/") & set(text)


def test_a_text_of_no_problem_is_an_error():
    with pytest.raises(InvalidProblem, match="no problem of row_softmax"):
        RowSoftmaxProblem.from_text("rows=3&columns=4")


def test_softmax_in_float64_is_torchs():
    operation = get_operation("row_softmax")
    problem = RowSoftmaxProblem(5, 32, dtype="f16", inputs="large")
    x = operation.make_inputs(problem)["x"]
    y = operation.reference(problem, {"x": x}).outputs["y"]
    assert torch.equal(y, torch.softmax(x.double(), -1)) and x.abs().max() > 100


def test_a_stage_takes_problems_of_its_operation_alone():
    stage = discover()["row_softmax"]
    assert stage.computes == "row_softmax" and stage.head_dims == ()
    with pytest.raises(UnsupportedProblem, match="row_softmax computes row_softmax, not attention"):
        evaluate("row_softmax", Problem(1, 1, 16, 16, 32), backend="emulator")
    with pytest.raises(UnsupportedProblem, match="cols must be one of 32, 64, 128, not 48"):
        evaluate("row_softmax", RowSoftmaxProblem(16, 48), backend="emulator")


def test_a_table_holds_stages_that_compute_the_same(capsys):
    words = ["compare", "row_softmax", "--backend", "emulator", "--problem", "64,32", "--json", "-"]
    assert main(words) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert list(row) == list(columns(get_operation("row_softmax")))
    assert (row["R"], row["C"], row["dtype"], row["passed"]) == (64, 32, "f16", True)
    # 64 rows of 64 bytes are 128 sectors; a warp reads half a sector of a row at a time.
    assert row["global_sectors_ld"] == row["global_sectors_st"] == 2 * 128 and row["conflicts"] == 0


def test_an_option_of_another_operation_is_refused(capsys):
    assert main(["run", "row_softmax", "--backend", "emulator", "--causal"]) == 2
    assert "row_softmax has no --causal" in capsys.readouterr().err


def test_commands_take_a_stage_of_any_operation(capsys):
    problem = ["--problem", "100,64", "--backend", "emulator"]
    assert main(["check", "row_softmax", *problem]) == 0
    assert main(["lines", "row_softmax", *problem]) == 0
    assert "no access to shared memory" in capsys.readouterr().out


def test_other_references_are_what_torch_computes():
    """Compares in float64, where they agree except for the last few bits."""

    def both(name, **sizes):
        operation = get_operation(name)
        problem = operation.problem(**sizes, dtype="f16")
        inputs = operation.make_inputs(problem)
        exact = operation.reference(problem, inputs).outputs[operation.output_names[0]]
        return {key: tensor.double() for key, tensor in inputs.items()}, exact

    x, y = both("layer_norm", rows=5, cols=64)
    assert torch.allclose(
        y, torch.nn.functional.layer_norm(x["x"], (64,), x["weight"], x["bias"]), atol=1e-12
    )

    x, y = both("linear_attention", heads=2, length=9, head_dim=32)
    for head, i in ((0, 0), (1, 8)):
        terms = (x["q"][head, i] @ x["k"][head, j] * x["v"][head, j] for j in range(i + 1))
        assert torch.allclose(y[head, i], sum(terms), atol=1e-12)

    x, y = both("rotary", heads=1, length=7, head_dim=64)
    angles = torch.arange(7.0, dtype=torch.float64)[:, None] * 10000 ** (-torch.arange(32) / 32)
    turned = torch.complex(*x["x"].chunk(2, -1)) * torch.exp(1j * angles)
    assert torch.allclose(y, torch.cat((turned.real, turned.imag), -1), atol=1e-6)
