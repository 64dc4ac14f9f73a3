"""Video instructions: differences of the bytes and halves of words."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from ptx_kernels import run_forms, run_instruction

from ladder.run.emulator import FaultError


def parts(word: int, bits: int, is_signed: bool) -> list[int]:
    fields = [word >> shift & (1 << bits) - 1 for shift in range(0, 32, bits)]
    return [f - (1 << bits) if is_signed and f >> (bits - 1) else f for f in fields]


@pytest.mark.parametrize(("opcode", "bits"), [("vabsdiff2", 16), ("vabsdiff4", 8)])
def test_absolute_differences(opcode: str, bits: int) -> None:
    rng = np.random.default_rng(bits)
    edges = np.array([0, 0xFFFFFFFF, 0x80808080, 0x7F7F7F7F, 0x80007FFF, 0x00FF0100], np.uint32)
    a, b = (np.concatenate([rng.permutation(edges), rng.integers(0, 2**32, 90, np.uint32)]) for _ in "ab")
    c = rng.integers(0, 2**32, a.size, np.uint32)
    forms = {
        (ta, tb, add): f"{opcode}.u32.{ta}.{tb}{add} %d, %a, %b, %c;"
        for ta, tb, add in itertools.product(("u32", "s32"), ("u32", "s32"), ("", ".add"))
    }
    got = run_forms(forms, {"a": ("u32", a), "b": ("u32", b), "c": ("u32", c)}, {"d": "u32"})
    for (ta, tb, add), made in got.items():
        for i, (x, y, z) in enumerate(zip(a.tolist(), b.tolist(), c.tolist(), strict=True)):
            pairs = zip(parts(x, bits, ta == "s32"), parts(y, bits, tb == "s32"), strict=True)
            differences = [abs(p - q) for p, q in pairs]
            if add:
                expected = z + sum(differences)
            else:
                expected = sum((d % 2**bits) << (bits * j) for j, d in enumerate(differences))
            assert int(made["d"][i]) == expected % 2**32, (ta, tb, add, x, y)


def test_saturation_is_refused() -> None:
    a = np.zeros(32, np.uint32)
    with pytest.raises(FaultError, match=r"not supported: vabsdiff4\.u32\.u32\.u32\.sat"):
        run_instruction("vabsdiff4.u32.u32.u32.sat %d, %a, %a, %a;", {"a": ("u32", a)}, {"d": "u32"})
