"""The four matrix products: operands in registers and in shared memory, against float64."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import pytest
import torch
from tile_programs import CPP_TYPES, Kernel, Unit, compiled
from tile_results import Result, check

from ladder.operations import TORCH_DTYPES

OPERATIONS = {"mma_AB": "AB", "mma_ABt": "Ab", "mma_AtB": "aB", "mma_AtBt": "ab"}
PLACES = ("registers", "shared")


@dataclass(frozen=True)
class Product:
    """dst (m x n) = op(a) op(b) + c, and the same without c, over k."""

    operation: str
    place_a: str
    place_b: str
    dtype: str
    m: int
    n: int
    k: int

    def __str__(self) -> str:
        sizes = f"{self.m}x{self.n}x{self.k}"
        return f"{self.operation}-{self.dtype}-{self.place_a}-{self.place_b}-{sizes}"

    @property
    def kernel(self) -> Kernel:
        a, b = OPERATIONS[self.operation]
        element = CPP_TYPES[self.dtype]
        places = f"Place::{self.place_a}, Place::{self.place_b}"
        function = f"mma<'{a}', '{b}', {places}, {element}, {self.m}, {self.n}, {self.k}>"
        factor = f"const {element} *"
        return Kernel(function, (factor, factor, "const float *", "float *"))


def pairwise() -> list[Product]:
    """Every size of the result with every operation once; the other parameters take turns."""
    products = []
    rest = list(itertools.product(PLACES, PLACES, TORCH_DTYPES_16))
    depths = (16, 32, 48, 64, 128)
    for r, c, o in itertools.product(range(4), range(8), range(4)):
        if (r + c + o) % 2:
            continue
        place_a, place_b, dtype = rest[(r * 3 + c + 2 * o + c // 4) % len(rest)]
        depth = depths[(r + 2 * c + o) % len(depths)]
        operation = list(OPERATIONS)[o]
        products.append(Product(operation, place_a, place_b, dtype, 16 * (r + 1), 16 * (c + 1), depth))
    return products


TORCH_DTYPES_16 = ("f16", "bf16")
PAIRWISE = pairwise()
SMALL = [product for product in PAIRWISE if product.m * product.n * product.k <= 32 * 64 * 32]
FULL = [
    Product(o, a, b, d, m, n, k)
    for m, n, k in itertools.product((16, 32, 48, 64), range(16, 129, 16), (16, 48, 128))
    for o, a, b, d in itertools.product(OPERATIONS, PLACES, PLACES, TORCH_DTYPES_16)
]


def run(product: Product, unit: Unit, optimised: bool) -> None:
    t = TORCH_DTYPES[product.dtype]
    m, n, k = product.m, product.n, product.k
    module = compiled(unit, "sm_80", optimised)
    generator = torch.Generator().manual_seed(1)

    def whole(*shape: int) -> torch.Tensor:
        return torch.randint(-4, 5, shape, generator=generator).float()

    # With integers, every sum is exact. A product with an identity shows the other factor element by element.
    cases = {
        "whole numbers": (whole(m, k), whole(k, n), whole(m, n), 0),
        "a times the identity": (whole(m, k), torch.eye(k, n), torch.zeros(m, n), 0),
        "the identity times b": (torch.eye(m, k), whole(k, n), torch.zeros(m, n), 0),
        "normal numbers": (*(torch.randn(s, generator=generator) for s in ((m, k), (k, n), (m, n))), 3e-5),
    }
    for name, (a, b, c, tolerance) in cases.items():
        a, b = a.to(t), b.to(t)
        product_alone = a.double() @ b.double()
        expected = torch.stack([product_alone + c.double(), product_alone])
        left = a if product.operation in ("mma_AB", "mma_ABt") else a.T.contiguous()
        right = b if product.operation in ("mma_AB", "mma_AtB") else b.T.contiguous()
        out = torch.full((2, m, n), torch.nan)
        smem_bytes = (m + n) * k * t.itemsize
        launch = module.launch(product.kernel.name, 1, 32, (left, right, c, out), smem_bytes)
        if tolerance:
            assert float((out.double() - expected).abs().max()) < tolerance
        else:
            with_c, without = (
                Result(f"{name}, {c}", e.float()) for c, e in zip(("c", "no c"), expected, strict=True)
            )
            check([with_c, without], out, str(product))
        assert launch.totals()["conflicts"] == 0
        assert launch.totals()["mma_instructions"] == 2 * m * n * k // (16 * 8 * 16)


def unit_of(product: Product, among: list[Product]) -> Unit:
    """The kernels that are compiled together with it: those of the same operation."""
    return tuple(p.kernel for p in among if p.operation == product.operation)


@pytest.mark.parametrize("product", PAIRWISE, ids=str)
def test_products(product: Product) -> None:
    run(product, unit_of(product, PAIRWISE), optimised=False)


@pytest.mark.parametrize("product", SMALL, ids=str)
def test_products_optimised(product: Product) -> None:
    run(product, unit_of(product, SMALL), optimised=True)


@pytest.mark.full
@pytest.mark.parametrize("product", FULL, ids=str)
def test_products_everywhere(product: Product) -> None:
    same = (product.operation, product.m, product.n)
    unit = tuple(p.kernel for p in FULL if (p.operation, p.m, p.n) == same)
    run(product, unit, optimised=True)
