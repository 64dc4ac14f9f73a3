"""Products of a warpgroup: every width, operation, element type and swizzle, against float64."""

from __future__ import annotations

import functools
import itertools
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from tile_programs import CPP_TYPES, Kernel, compile_flags, compile_ptx

from ladder.compile import toolchain
from ladder.operations import TORCH_DTYPES
from ladder.run.emulator import Module

OPERATIONS = {"mma_AB": "AB", "mma_ABt": "Ab", "mma_AtB": "aB", "mma_AtBt": "ab"}
#: The destination's widths, among the multiples of 16 that wgmma offers, that the library supports.
WIDTHS = (32, 48, 64, 80, 96, 112, 128, 144, 160, 176, 192, 256)
#: Depths with different layouts: rows of 32, 64 and 128 bytes, one and two column blocks.
DEPTHS = (16, 32, 48, 64, 128)


@dataclass(frozen=True)
class Product:
    """dst (64 x n) = op(a) op(b) + c, and the same without c, over k."""

    operation: str
    place: str
    dtype: str
    n: int
    k: int

    def __str__(self) -> str:
        return f"{self.operation}-{self.dtype}-{self.place}-64x{self.n}x{self.k}"

    @property
    def kernel(self) -> Kernel:
        a, b = OPERATIONS[self.operation]
        element = CPP_TYPES[self.dtype]
        in_registers = "true" if self.place == "registers" else "false"
        function = f"warpgroup_products<'{a}', '{b}', {in_registers}, {element}, {self.n}, {self.k}>"
        factor = f"const {element} *"
        return Kernel(function, (factor, factor, "const float *", "float *"))


FORMS = [
    (operation, place, dtype)
    for operation, place, dtype in itertools.product(OPERATIONS, ("shared", "registers"), ("f16", "bf16"))
    if place == "shared" or operation in ("mma_AB", "mma_ABt")
]
#: Every width with three forms; the depths take turns.
PRODUCTS = [
    Product(*FORMS[(5 * w + 4 * i) % len(FORMS)], n, DEPTHS[(w + 2 * i) % len(DEPTHS)])
    for w, n in enumerate(WIDTHS)
    for i in range(3)
]


@functools.cache
def module() -> Module:
    lines = ['#include "hopper_kernels.h"', "using namespace tests;", *(p.kernel.source for p in PRODUCTS)]
    header = Path(__file__).with_name("hopper_kernels.h").read_text()
    return Module(compile_ptx(f"{chr(10).join(lines)}\n// {hash_of(header)}\n", "sm_90a"), "sm_90a")


def hash_of(text: str) -> str:
    """A hash that is put into sources, so that a changed test header causes recompilation."""
    from ladder.common import cache

    return cache.digest([text])


@pytest.mark.parametrize("product", PRODUCTS, ids=str)
def test_products(product: Product) -> None:
    t = TORCH_DTYPES[product.dtype]
    n, k = product.n, product.k
    generator = torch.Generator().manual_seed(1)

    def whole(*shape: int) -> torch.Tensor:
        return torch.randint(-4, 5, shape, generator=generator).float()

    # With integers, every sum is exact. A product with an identity shows the other factor element by element.
    for a, b, c in (
        (whole(64, k), whole(k, n), whole(64, n)),
        (whole(64, k), torch.eye(k, n), torch.zeros(64, n)),
        (torch.eye(64, k), whole(k, n), torch.zeros(64, n)),
    ):
        left = a if product.operation in ("mma_AB", "mma_ABt") else a.T.contiguous()
        right = b if product.operation in ("mma_AB", "mma_AtB") else b.T.contiguous()
        out = torch.full((2, 64, n), torch.nan)
        arguments = (left.to(t), right.to(t), c, out)
        smem_bytes = 2048 + (64 + n) * k * 2
        launch = module().launch(product.kernel.name, 1, 128, arguments, smem_bytes)
        assert torch.equal(out, torch.stack([a @ b + c, a @ b]))
        assert launch.totals()["conflicts"] == 0


PARTS = """
extern "C" __global__ void parts(const __half *in, float *out) {
  int bytes = 0;
  auto &tile = next_tile<SharedTile<__half, 128, 128>>(bytes);
  warpgroup::load(tile, GlobalMatrix<const __half, 128>{in, 128});
  fence_async_proxy();
  warpgroup::sync();
  const auto a = part<64, 64>(tile, 64, 64);
  const auto b = part<64, 32>(tile, 16, 32);
  const auto b_t = part<32, 64>(tile, 48, 64);
  RegTile<float, 16, 32> sum;
  const auto put = [&](int product) {
    warpgroup::mma_wait(sum);
    warpgroup::store(GlobalMatrix<float, 32>{out + product * 64 * 32, 64}, sum);
  };
  warpgroup::mma_AB(sum, a, b), put(0);
  warpgroup::mma_ABt(sum, a, b_t), put(1);
  warpgroup::mma_AtB(sum, a, b), put(2);
  warpgroup::mma_AtBt(sum, a, b_t), put(3);
}
"""


def test_operands_may_be_parts_of_tiles() -> None:
    source = f'#include "hopper_kernels.h"\nusing namespace tests;\n{PARTS}'
    x = torch.randint(-4, 5, (128, 128), generator=torch.Generator().manual_seed(1)).float()
    out = torch.full((4, 64, 32), torch.nan)
    parts = Module(compile_ptx(source, "sm_90a"), "sm_90a")
    launch = parts.launch("parts", 1, 128, (x.half(), out), 128 * 128 * 2)
    a, b, b_t = x[64:, 64:], x[16:80, 32:64], x[48:80, 64:]
    assert torch.equal(out, torch.stack([a @ b, a @ b_t.T, a.T @ b, a.T @ b_t.T]))
    assert launch.totals()["conflicts"] == 0


TILES = """
#include "hopper_kernels.h"
using namespace tests;
using D = RegTile<float, 16, 64>;
using A = SharedTile<__half, 64, 32>;
using ARegisters = RegTile<__half, 16, 32>;
using B = SharedTile<__half, 64, 32>;
"""

#: Declarations, the wrong call, and the required message.
WRONG = [
    (
        "D d; RegTile<__half, 64, 32> b;",
        "mma_ABt(d, a, b)",
        "b is given in registers, expected in shared memory",
    ),
    (
        "RegTile<float, 64, 64> d; B &b = a;",
        "mma_ABt(d, a, b)",
        "expected a destination of 16 rows, a warp's part",
    ),
    ("D d; B &b = a;", "mma_AtBt(d, a_rmem, b)", "in registers a must be in row layout and not transposed"),
    (
        "D d; RegTile<__half, 64, 32> w; B &b = a;",
        "mma_ABt(d, w, b)",
        "expected a of 64 rows in shared memory, or of 16",
    ),
    ("D d; B &b = a;", "mma_AB(d, a, b)", "expected dst m x n, a m x k, b k x n"),
    (
        "RegTile<float, 16, 16> d; SharedTile<__half, 16, 32> b;",
        "mma_ABt(d, a, b)",
        "expected a destination of 32, 48",
    ),
    ("D d; SharedTile<__nv_bfloat16, 64, 32> b;", "mma_ABt(d, a, b)", "given an fp16 and a bf16 operand"),
]


@pytest.mark.parametrize(("declared", "call", "message"), WRONG, ids=[wrong[2] for wrong in WRONG])
def test_a_wrong_operand_does_not_compile(tmp_path: Path, declared: str, call: str, message: str) -> None:
    body = f"__shared__ A a; ARegisters a_rmem; {declared} warpgroup::{call};"
    source = tmp_path / "wrong.cu"
    source.write_text(f"{TILES}__global__ void wrong() {{ {body} }}\n")
    command = [
        str(toolchain.pinned_nvcc().path),
        *compile_flags("sm_90a"),
        "-ptx",
        str(source),
        "-o",
        "/dev/null",
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode != 0
    assert message in " ".join(done.stderr.split())
