"""What torch may do to a call: transforms, modes, subclasses of tensors, autocast."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.autograd import forward_ad

from ladder.errors import UnsupportedProblem
from ladder.operations import require_memory, require_strided

#: Tensors of other types want to see torch's operators.
_PLAIN = frozenset((Tensor, torch.nn.Parameter))


def needs_operator(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    other: Tensor | None = None,
    names: tuple[str, str, str] = ("query", "key", "value"),
) -> bool:
    """Whether torch must see the call as an operator: under a transform or a dispatch mode, or because of
    tensors of another type. What is no tensor is left to the checks of the problem. ``other`` is one more
    that may have a derivative.

    Raises :class:`InvalidProblem` and :class:`UnsupportedProblem` for what no operator here takes.
    """
    is_plain = type(query) in _PLAIN and type(key) in _PLAIN and type(value) in _PLAIN
    if is_plain and not _is_transformed():
        return False
    if not all(isinstance(tensor, Tensor) for tensor in (query, key, value)):
        return False
    require_strided(**dict(zip(names, (query, key, value), strict=True)))
    _refuse_derivatives(query, key, value, *((other,) if isinstance(other, Tensor) else ()))
    return True


def _is_transformed() -> bool:
    """Whether a transform of torch.func, forward-mode AD, a dispatch mode or torch.jit.trace is active."""
    return (
        torch._C._functorch.peek_interpreter_stack() is not None
        or torch._C._len_torch_dispatch_stack() > 0
        or forward_ad._current_level >= 0
        or torch._C._get_tracing_state() is not None
    )


def is_batched(d_o: Tensor | None, d_lse: Tensor | None = None) -> bool:
    """Whether torch computes several gradients at once, as with ``is_grads_batched``: then these tensors have
    no memory that a kernel could read.
    """
    has_storage = torch._C._has_storage
    return (d_o is not None and not has_storage(d_o)) or (d_lse is not None and not has_storage(d_lse))


def gradients_need_operator(d_o: Tensor, d_lse: Tensor | None, saved: Sequence[Tensor]) -> bool:
    """Whether torch must see the gradients as an operator: it may differentiate them again, which the
    operator refuses, computes several at once, for which it calls the operator once per gradient, or traces.
    """
    query, key, value, *_ = saved
    return (
        torch.is_grad_enabled()
        or torch.compiler.is_compiling()
        or is_batched(d_o, d_lse)
        or needs_operator(query, key, value)
    )


def require_active(**tensors: Tensor | None) -> None:
    """Raises :class:`InvalidProblem` for tensors of a transform of torch.func that has ended: torch cannot
    call an operator on them.
    """
    if torch._C._functorch.peek_interpreter_stack() is None:
        for name, tensor in tensors.items():
            if tensor is not None and torch._C._functorch.is_functorch_wrapped_tensor(tensor):
                require_memory(name, tensor)


def _refuse_derivatives(*tensors: Tensor) -> None:
    if forward_ad._current_level >= 0 and any(map(_has_tangent, tensors)):
        raise UnsupportedProblem(
            "the ladder has no forward-mode derivatives (torch.func.jvp, torch.autograd.forward_ad)",
            "Take gradients by backward() or torch.autograd.grad(), or torch's own attention.",
        )
    transform = torch._C._functorch.peek_interpreter_stack()
    if transform is not None and transform.key() == torch._C._functorch.TransformType.Grad:
        raise UnsupportedProblem(
            "the ladder has no gradients through torch.func (grad, vjp, jacrev)",
            "Take them by backward() or torch.autograd.grad().",
        )


def _has_tangent(tensor: Tensor) -> bool:
    return forward_ad.unpack_dual(tensor).tangent is not None


def autocast(*tensors: Tensor) -> tuple[Tensor, ...]:
    """The tensors in autocast's dtype, if it is on where they are and they are floats of another one."""
    if not all(isinstance(tensor, Tensor) for tensor in tensors):
        return tensors  # refused with the problem
    kind = tensors[0].device.type
    if kind not in ("cpu", "cuda") or not torch.is_autocast_enabled(kind):
        return tensors
    dtype = torch.get_autocast_dtype(kind)
    return tuple(
        tensor.to(dtype) if tensor.dtype in (torch.float32, torch.float16, torch.bfloat16) else tensor
        for tensor in tensors
    )


def must_be_deterministic(asked: bool) -> bool:
    """Whether only a deterministic rung may compute gradients: if asked, or as torch is set. With torch's
    ``warn_only`` there is a warning instead.
    """
    if asked or not torch.are_deterministic_algorithms_enabled():
        return asked
    if not torch.is_deterministic_algorithms_warn_only_enabled():
        return True
    if not torch.compiler.is_compiling():
        warnings.warn(
            "gradients of the ladder's attention may differ between runs: pass deterministic=True",
            stacklevel=3,
        )
    return False
