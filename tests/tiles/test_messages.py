"""Wrong programs do not compile; messages say what was given, what is required, what call to insert."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from tile_programs import compile_flags

from ladder.compile import toolchain

PRELUDE = """
#include "kernels.h"
using namespace tests;
using F16Row = RegTile<__half, 32, 32>;
using F16Col = RegTile<__half, 32, 32, Layout::col>;
using BF16Row = RegTile<__nv_bfloat16, 32, 32>;
using F32Row = RegTile<float, 32, 32>;
using F32Col = RegTile<float, 32, 32, Layout::col>;
using F16Wide = RegTile<__half, 32, 64>;
using F16Smem = SharedTile<__half, 32, 32>;
using F32Smem = SharedTile<float, 32, 32>;
"""

#: Declarations, the wrong call, and the required message.
WRONG = [
    (
        "F32Row d; F16Row a, b;",
        "mma_AB(d, a, b, d)",
        "insert swap_layout(b_col, b) first, or call mma_ABt with its transpose",
    ),
    (
        "F32Row d; F16Col a, b;",
        "mma_AB(d, a, b, d)",
        "a is given in col layout, expected in row layout: insert swap_layout(a_row, a)",
    ),
    (
        "F32Row d; F16Row a; F16Col b;",
        "mma_ABt(d, a, b, d)",
        "mma_ABt: b is given in col layout, expected in row layout: insert swap_layout(b_row, b)",
    ),
    (
        "F32Row d; F16Row a; F16Col b;",
        "mma_AtB(d, a, b, d)",
        "mma_AtB: a is given in row layout, expected in col layout: insert swap_layout(a_col, a)",
    ),
    (
        "F32Row d; F16Col a, b;",
        "mma_AtBt(d, a, b, d)",
        "mma_AtBt: b is given in col layout, expected in row layout",
    ),
    (
        "F32Row d, a; F16Col b;",
        "mma_AB(d, a, b, d)",
        "given an fp32 operand, expected fp16 or bf16 for the tensor cores: insert copy(tile_16, tile)",
    ),
    (
        "F32Row d; BF16Row a; F16Col b;",
        "mma_AB(d, a, b, d)",
        "given an fp16 and a bf16 operand, expected the same: insert copy(other, tile)",
    ),
    (
        "F16Row d, a; F16Col b;",
        "mma_AB(d, a, b, d)",
        "destination and c must be fp32 in row layout",
    ),
    (
        "F32Row d; F16Wide a; F16Col b;",
        "mma_AB(d, a, b, d)",
        "expected dst m x n, a m x k, b k x n",
    ),
    (
        "F32Row d; F16Row a, b;",
        "mma_AB(d, a, b)",
        "insert swap_layout(b_col, b) first, or call mma_ABt with its transpose",
    ),
    (
        "F32Col a; F32Col::ColVec v;",
        "row_max_in_lane(v, a)",
        "given a col-layout tile, whose rows are distributed over other lanes, expected a row-layout one",
    ),
    (
        "F16Row a; F16Row::ColVec v;",
        "row_sum_in_lane(v, a, v)",
        "whose parts of rows would be rounded, expected fp32: insert copy(tile_fp32, tile) first",
    ),
    (
        "F16Row a; F16Col b;",
        "add(a, a, b)",
        "given a row-layout and a col-layout tile, expected the same layout: insert swap_layout(other, tile)",
    ),
    (
        "F16Row a; F16Wide b;",
        "add(a, a, b)",
        "given tiles of different sizes, expected the same rows and cols",
    ),
    (
        "F16Row a; F16Row::ColVec v;",
        "add(a, a, v)",
        "given a tile and a vector, expected two of a kind: sub_row",
    ),
    (
        "F16Row a; F16Row::RowVec v;",
        "mul_row(a, a, v)",
        "insert copy(col_vec, vector) first, or call the _col form",
    ),
    (
        "F16Row a; F16Row::ColVec v;",
        "mul_col(a, a, v)",
        "insert copy(row_vec, vector) first, or call the _row form",
    ),
    (
        "F16Wide a; F16Wide::RowVec v;",
        "mul_row(a, a, v)",
        "takes a vector with one value per row of the tile (its ColVec)",
    ),
    (
        "F16Row::RowVec a; F16Row::ColVec b;",
        "max(a, a, b)",
        "insert copy(other, vector) first",
    ),
    (
        "F32Col a; __shared__ SharedVec<float, 32> v;",
        "sub_col(a, a, v)",
        "expected a row-layout tile: insert load(row_vec, vector), and call the operation with row_vec",
    ),
    (
        "F32Row a; __shared__ SharedVec<float, 16> v;",
        "sub_col(a, a, v)",
        "given a shared vector with fewer entries than the tile has columns",
    ),
    (
        "F16Row a; F16Row::RowVec v;",
        "row_sum(v, a)",
        "expected the tile's ColVec as destination",
    ),
    (
        "F32Row a; F32Col b;",
        "copy(a, b)",
        "insert swap_layout(other, tile) first",
    ),
    (
        "F32Row a, b;",
        "copy_apart(a, b)",
        "given an fp32 tile, expected a 16-bit one: call copy(dst, src)",
    ),
    (
        "F16Row a, b;",
        "swap_layout(a, b)",
        "given two tiles of the same layout, expected two different ones: insert copy(dst, src)",
    ),
    (
        "F16Row a;",
        "columns<16>(a, 0)",
        "expected a row-layout tile of 16 rows",
    ),
    (
        "RegTile<float, 16, 32> a;",
        "columns<64>(a, 0)",
        "columns: the tile has fewer columns than requested",
    ),
    (
        "F16Row a; F32Col b;",
        "swap_layout(a, b)",
        "given tiles of different element types, expected the same: insert copy(same_type, tile)",
    ),
    (
        "F16Row a; __shared__ F32Smem b;",
        "load(a, b)",
        "given a register and a shared tile of different element types",
    ),
    (
        "F16Wide a; __shared__ F16Smem b;",
        "load(a, b)",
        "given a register and a shared tile of different widths, expected the same cols",
    ),
    (
        "F32Row a; GlobalMatrix<const __half, 32> b{};",
        "load(a, b)",
        "given a tile and a global matrix of different element types",
    ),
    (
        "F16Wide a; GlobalMatrix<const __half, 32> b{};",
        "load(a, b)",
        "given a tile and a global matrix of different widths",
    ),
    (
        "F16Row a; __shared__ F16Smem b;",
        "group<2>::load(a, b)",
        "as many rows as the warps' register tiles together",
    ),
    (
        "",
        "RegTile<float, 8, 16>{}",
        "a register tile's sides are multiples of 16",
    ),
    (
        "",
        "SharedTile<float, 16, 8>{}",
        "a shared tile's sides are multiples of 16",
    ),
    (
        "__shared__ F16Smem a;",
        "zero(a)",
        "argument types are: (F16Smem)",
    ),
    (
        "F16Row::ColVec a;",
        "tril(a, a)",
        "argument types are: (tiles::RegVec<__half, 32, tiles::Along::lines>",
    ),
    (
        "F16Row a; __shared__ SharedVec<__half, 32> b;",
        "load(a, b)",
        "argument types are: (F16Row, tiles::SharedVec<__half, 32>)",
    ),
    (
        "RegTile<float, 16, 80> s;",
        "keep_bits(s, s, [](int) { return 1ull; })",
        "expected bits(row)(first_col), a word per 64 columns",
    ),
]


@pytest.fixture(scope="module")
def messages(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The compiler's messages about each of the wrong programs, which are compiled together."""
    path = tmp_path_factory.mktemp("wrong") / "wrong.cu"
    source = PRELUDE
    for number, (declarations, call, _) in enumerate(WRONG):
        source += f"__global__ void wrong_{number}() {{ {declarations} {call}; }}\n"
    path.write_text(source)
    command = [str(toolchain.pinned_nvcc().path), *compile_flags("sm_80"), "-ptx", str(path)]
    command += ["-o", str(path.with_suffix(".ptx")), "-Xcudafe", "--error_limit=1000"]
    result = subprocess.run(command, capture_output=True, text=True, cwd=path.parent)
    assert result.returncode != 0
    first_line = source.count("\n", 0, source.index("__global__")) + 1
    return _by_program(result.stderr, path, first_line)


def _by_program(text: str, path: Path, first_line: int) -> list[str]:
    """Groups errors by program, of which each is one line: the last place in wrong.cu that an error names."""
    found = [""] * len(WRONG)
    for error in re.split(r"\n(?=\S+\(\d+\): error)", text):
        name = re.escape(path.name)
        lines = re.findall(rf"at line (\d+) of \S*{name}", error)
        lines = lines or re.findall(rf"{name}\((\d+)\): error", error)
        if lines:
            found[int(lines[-1]) - first_line] += error + "\n"
    return found


@pytest.mark.parametrize(
    "number", range(len(WRONG)), ids=[f"{call} {i}" for i, (_, call, _) in enumerate(WRONG)]
)
def test_message(messages: list[str], number: int) -> None:
    _, call, expected = WRONG[number]
    assert expected in messages[number], f"{call}: {messages[number] or 'compiles'}"
    assert messages[number].count(": error") == 1, "one mistake, one message"


def test_the_note_shows_what_was_given(messages: list[str]) -> None:
    assert "with D=F32Row, A=F16Row, B=F16Row" in messages[0]
