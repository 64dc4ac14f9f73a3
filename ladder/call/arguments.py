"""What a call of attention takes besides its tensors, described once: names, types and defaults.

The operators' schemas are made from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, get_type_hints

from ladder.call.runs import AUTO, Choice
from ladder.stages import parse_options


class Choices(NamedTuple):
    """The arguments of :func:`ladder.attention` that are no tensors, in types that operators support.

    ``options`` is ``NAME=VALUE,...``. ``backward`` and ``deterministic`` are used only by autograd.
    """

    is_causal: bool = False
    scale: float | None = None
    enable_gqa: bool = False
    stage: str = AUTO
    arch: str = ""
    options: str = ""
    backward: str = AUTO
    deterministic: bool = False
    window_size: tuple[int, int] = (-1, -1)
    softcap: float | None = None

    @property
    def of_forward(self) -> Choice:
        """The stage of the forward pass."""
        return Choice(self.stage, self.arch, tuple(parse_options(self.options).items()))

    @property
    def of_gradients(self) -> Choice:
        """The stage of the gradients."""
        return Choice(self.backward, self.arch, deterministic=self.deterministic)


_TYPES = {bool: "bool", str: "str", float | None: "float?", tuple[int, int]: "int[]"}


class Arguments:
    """The :class:`Choices` that an operator takes, in its order. An operator of gradients calls the rung that
    computes them ``stage``.
    """

    def __init__(self, *names: str, of_gradients: bool = False) -> None:
        self._names, self._of_gradients = names, of_gradients

    @property
    def schema(self) -> str:
        """As in the schema of an operator, with defaults."""
        types = get_type_hints(Choices)
        return ", ".join(
            f"{_TYPES[types[name]]} {'stage' if self._of_gradients and name == 'backward' else name}"
            f"={_word(Choices._field_defaults[name])}"
            for name in self._names
        )

    def read(self, given: Sequence[Any]) -> tuple[Choices, Any]:
        """The choices, and the argument that follows them; None if there is none. Torch leaves out the last
        arguments of an operator that have their defaults.
        """
        words = dict(zip(self._names, given, strict=False))
        if "window_size" in words:
            words["window_size"] = tuple(words["window_size"])
        return Choices(**words), (*given[len(self._names) :], None)[0]

    def values(self, choices: Choices) -> tuple[Any, ...]:
        """What the operator is given."""
        return tuple(getattr(choices, name) for name in self._names)


def _word(default: Any) -> str:
    return str([*default]) if isinstance(default, tuple) else repr(default)
