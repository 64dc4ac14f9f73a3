"""The operation after HSTU's attention: a layer norm of each row, times a gate; and its gradients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from ladder.errors import InvalidProblem, UnsupportedProblem
from ladder.operations.base import Output, Reference, largest, torch_dtypes
from ladder.operations.sized import SizedOperation, SizedProblem, U

if TYPE_CHECKING:
    from torch import Tensor

#: Added to the variance. Attention's outputs are divided by the sequence length, so their variance may be as
#: small as torch's default.
NORM_GATE_EPSILON = 1e-6
#: Kernels take a multiple of this number of columns, up to a largest one.
_COLS_STEP, _MOST_COLS = 64, 2048
#: The columns that benchmarks measure: heads times their dimension.
_BENCH_COLS = (128, 256, 512, 1024, 2048)


def norm_gate_takes_cols(cols: int) -> bool:
    """Whether the kernels of this operation and of its gradients take rows of ``cols`` elements."""
    return cols % _COLS_STEP == 0 and 0 < cols <= _MOST_COLS


@dataclass(frozen=True)
class NormGateProblem(SizedProblem):
    """x and gate (R, C), weight and bias (C) in fp32 -> y (R, C)."""

    operation: ClassVar[str] = "norm_gate"
    letters = {"rows": "R", "cols": "C"}
    kinds = {"normal": 1.0, "large": 10.0, "small": 0.01}

    rows: int
    cols: int

    @property
    def flops(self) -> float:
        """9 R C: a layer norm's 8, and the gate."""
        return 9.0 * self.rows * self.cols


@dataclass(frozen=True)
class NormGateBackwardProblem(NormGateProblem):
    """With d_y (R, C) -> dx and d_gate (R, C), d_weight and d_bias (C)."""

    operation: ClassVar[str] = "norm_gate_backward"

    @property
    def flops(self) -> float:
        """22 R C: the norm again, 9 products, 5 sums over rows or columns."""
        return 22.0 * self.rows * self.cols


@dataclass(frozen=True)
class _Norm:
    """xh and r = 1 / sqrt(variance + epsilon) of each row, in float64, and how far fp32 is off.

    The mean of C values errs by C u mean |x|, a difference from it by that and a rounding more. The
    variance's relative error is twice a difference's and C u; the root halves it (rsqrt: 2 u).
    """

    xh: Tensor
    scale: Tensor
    xh_error: Tensor
    scale_error: Tensor  #: relative

    @classmethod
    def of(cls, x: Tensor) -> _Norm:
        cols = x.shape[1]
        centred = x - x.mean(-1, keepdim=True)
        scale = (centred.square().mean(-1, keepdim=True) + NORM_GATE_EPSILON).rsqrt()
        difference = U * (cols * x.abs().mean(-1, keepdim=True) + x.abs()) * scale
        relative = U * (cols + 8) + difference.amax(-1, keepdim=True)
        xh = centred * scale
        return cls(xh, scale, difference + relative * xh.abs(), relative)


def _doubles(inputs: Mapping[str, Any], *names: str) -> list[Tensor]:
    return [inputs[name].double() for name in names]


class NormGate(SizedOperation):
    """y = ((x - mean) / sqrt(variance + 1e-6) * weight + bias) * gate, mean and variance of each row."""

    title = "norm and gate"
    problem: type[NormGateProblem] = NormGateProblem
    output_names: tuple[str, ...] = ("y",)
    strided: tuple[str, ...] = ("x", "gate", "weight", "bias")
    axes = {"rows": (17, 1, 130), "cols": (64, 128, 192)}
    edges = {"rows": (15, 16, 31, 33, 63, 65, 127, 128, 129)}
    default_problem = NormGateProblem(1024, 128)
    default_gpu_problem = NormGateProblem(65536, 512)
    check_problems: Sequence[NormGateProblem] = (default_problem, NormGateProblem(100, 64))
    calibration_problems: Sequence[NormGateProblem] = (default_problem,)
    bench_problems: Sequence[NormGateProblem] = tuple(
        NormGateProblem(65536, cols, dtype="bf16") for cols in _BENCH_COLS
    )

    def input_shapes(self, problem: NormGateProblem) -> dict[str, tuple[int, ...]]:
        of_rows = (problem.rows, problem.cols)
        return {"x": of_rows, "gate": of_rows, "weight": (problem.cols,), "bias": (problem.cols,)}

    def make_inputs(self, problem: Any, device: str = "cpu") -> dict[str, Any]:
        """Draws standard normal inputs, times the factor of their kind; weight and bias stay fp32."""
        drawn = super().make_inputs(replace(problem, dtype=None), device)
        dtype = torch_dtypes()[problem.dtype or "f32"]
        return {name: x if x.dim() == 1 else x.to(dtype) for name, x in drawn.items()}

    def outputs(self, problem: NormGateProblem) -> Sequence[Output]:
        return (Output("y", (problem.rows, problem.cols), problem.dtype or "f32"),)

    def reference(self, problem: NormGateProblem, inputs: Mapping[str, Any]) -> Reference:
        """Two products and a sum in fp32, and the last rounding, on top of the norm's own error."""
        x, gate, weight, bias = _doubles(inputs, "x", "gate", "weight", "bias")
        norm = _Norm.of(x)
        scaled = norm.xh * weight
        y = (scaled + bias) * gate
        error = (norm.xh_error * weight.abs() + 2 * U * scaled.abs() + U * (scaled + bias).abs()) * gate.abs()
        return Reference(
            {"y": y}, {"y": largest(error + (problem.rounding + U) * y.abs()) + problem.underflow}
        )


class NormGateBackward(NormGate):
    """The gradients of :class:`NormGate`'s y for a d_y (R, C)."""

    title = "norm and gate's gradients"
    problem = NormGateBackwardProblem
    output_names = ("dx", "d_gate", "d_weight", "d_bias")
    strided = (*NormGate.strided, "d_y")
    default_problem = NormGateBackwardProblem(1024, 128)
    default_gpu_problem = NormGateBackwardProblem(65536, 512)
    check_problems = (default_problem, NormGateBackwardProblem(100, 64))
    calibration_problems = (default_problem,)
    bench_problems = tuple(NormGateBackwardProblem(65536, cols, dtype="bf16") for cols in _BENCH_COLS)

    def input_shapes(self, problem: NormGateProblem) -> dict[str, tuple[int, ...]]:
        return {**super().input_shapes(problem), "d_y": (problem.rows, problem.cols)}

    def outputs(self, problem: NormGateProblem) -> Sequence[Output]:
        dtype, of_rows = problem.dtype or "f32", (problem.rows, problem.cols)
        of_cols = [Output(name, (problem.cols,), "f32") for name in ("d_weight", "d_bias")]
        return [Output("dx", of_rows, dtype), Output("d_gate", of_rows, dtype), *of_cols]

    def reference(self, problem: NormGateProblem, inputs: Mapping[str, Any]) -> Reference:
        """A sum of n values errs by n u times the sum of their sizes; each product and difference rounds
        once, and what has xh in it errs by its error, too."""
        x, gate, weight, bias, d_y = _doubles(inputs, "x", "gate", "weight", "bias", "d_y")
        norm = _Norm.of(x)
        normed = norm.xh * weight + bias
        gated = d_y * gate
        g = gated * weight
        mean_g, mean_gx = g.mean(-1, keepdim=True), (g * norm.xh).mean(-1, keepdim=True)
        exact = {
            "dx": norm.scale * (g - mean_g - norm.xh * mean_gx),
            "d_gate": d_y * normed,
            "d_weight": (gated * norm.xh).sum(0),
            "d_bias": gated.sum(0),
        }
        of_xh, rows, cols = norm.xh_error, problem.rows, problem.cols
        of_sums = (cols + 4) * U * (g.abs().mean(-1, keepdim=True) + g.abs())
        of_product = (g * norm.xh).abs()
        of_mean = ((cols + 4) * U * of_product + g.abs() * of_xh).mean(-1, keepdim=True)
        of_last = of_xh * mean_gx.abs() + norm.xh.abs() * of_mean + 2 * U * (norm.xh * mean_gx).abs()
        errors = {
            "dx": norm.scale * (of_sums + of_last) + (norm.scale_error + 2 * U) * exact["dx"].abs(),
            "d_gate": d_y.abs()
            * (of_xh * weight.abs() + 3 * U * (norm.xh * weight).abs() + U * normed.abs()),
            "d_weight": (gated.abs() * of_xh + (rows + 3) * U * (gated * norm.xh).abs()).sum(0),
            "d_bias": ((rows + 2) * U * gated.abs()).sum(0),
        }
        for name in ("dx", "d_gate"):
            errors[name] = errors[name] + (problem.rounding + U) * exact[name].abs() + problem.underflow
        return Reference(exact, {name: largest(error) for name, error in errors.items()})


def norm_gate_problem_of_tensors(x: Any, gate: Any, weight: Any, bias: Any) -> NormGateProblem:
    """The problem of these tensors. Raises :class:`InvalidProblem` if they do not go together, and
    :class:`UnsupportedProblem` for a dtype or a number of columns that no kernel takes.
    """
    import torch

    tensors = {"x": x, "gate": gate, "weight": weight, "bias": bias}
    for name, tensor in tensors.items():
        _check_plain(name, tensor, x)
    if x.dim() != 2:
        raise InvalidProblem(f"x has {x.dim()} dimensions; it must have 2: (rows, columns)")
    dtypes = {one: name for name, one in torch_dtypes().items() if name in ("f16", "bf16")}
    if x.dtype not in dtypes:
        raise UnsupportedProblem(f"x is {x.dtype}; it must be one of {', '.join(map(str, dtypes))}")
    rows, cols = x.shape
    for name, shape, dtype in (
        ("gate", (rows, cols), x.dtype),
        ("weight", (cols,), torch.float32),
        ("bias", (cols,), torch.float32),
    ):
        if tensors[name].shape != shape:
            raise InvalidProblem(f"{name} is {tuple(tensors[name].shape)}; of this x it must be {shape}")
        if tensors[name].dtype != dtype:
            raise InvalidProblem(
                f"{name} is {tensors[name].dtype}; it must be {dtype}", f"Pass {name}.to({dtype})."
            )
    if not norm_gate_takes_cols(cols):
        raise UnsupportedProblem(
            f"x has {cols} columns; it must have a multiple of {_COLS_STEP}, at most {_MOST_COLS:,}",
            "torch.nn.functional.layer_norm takes any number.",
        )
    return NormGateProblem(rows, cols, dtype=dtypes[x.dtype])


def _check_plain(name: str, tensor: Any, x: Any) -> None:
    """Raises :class:`InvalidProblem` unless it is a dense tensor in the memory of the device that has x."""
    import torch

    from ladder.operations.addresses import require_memory

    if not isinstance(tensor, torch.Tensor):
        raise InvalidProblem(f"{name} is a {type(tensor).__name__}; it must be a torch.Tensor")
    if tensor.layout != torch.strided:
        raise InvalidProblem(f"{name} is {tensor.layout}; it must be dense", f"Pass {name}.to_dense().")
    if tensor.device.type not in ("cpu", "cuda"):
        raise InvalidProblem(f"{name} is on {tensor.device}; it must be on the CPU or a CUDA GPU")
    if tensor.device != x.device:
        raise InvalidProblem(f"{name} is on {tensor.device} and x on {x.device}; all must be on one device")
    require_memory(name, tensor)


FORWARD = NormGate()
BACKWARD = NormGateBackward()
