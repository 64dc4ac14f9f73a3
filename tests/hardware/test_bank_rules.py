"""Every rule of the bank model is necessary: with any one changed, the model no longer agrees with the H200's
counts for the patterns in ``tests/data/h200/bank_patterns.csv``.

The changed models are compiled from the emulator's own source, all in one go.
"""

from __future__ import annotations

import ctypes
import functools
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pytest

ROOT = Path(__file__).parents[2]
PATTERNS = ROOT / "tests" / "data" / "h200" / "bank_patterns.csv"
MODEL = ROOT / "emulator" / "machine"

#: Rules of the model: the text that implements each, and its replacement.
CHANGES: dict[str, tuple[str, str]] = {
    "a word is given to all lanes at once": (
        "deduplicate(distinct.data(), count), banks)",
        "count, banks)",
    ),
    "an access of 4 bytes is one pass over 32 lanes": (
        "wavefronts = pass_wavefronts(words.data(), 32, 32);",
        "wavefronts = pass_wavefronts(words.data(), 16, 32) + pass_wavefronts(words.data() + 16, 16, 32);",
    ),
    "a bank is 4 bytes wide": ("words[lane] = addresses[lane] >> 2;", "words[lane] = addresses[lane] >> 3;"),
    "8 bytes a lane take two passes": ("bytes == 8 ? 16 : 8", "bytes == 8 ? 32 : 8"),
    "16 bytes a lane take four passes": ("bytes == 8 ? 16 : 8", "bytes == 8 ? 16 : 16"),
    "a pass without lanes is left out": (
        "if (lanes == 0)\n      continue;\n    const Units units",
        "const Units units",
    ),
    "loads merge when lane ^ 1 agrees": ("partners_agree(addresses, active, 1) || ", ""),
    "loads merge when lane ^ 2 agrees": (" || partners_agree(addresses, active, 2)", ""),
    "loads do not merge for lane ^ 4": (
        "partners_agree(addresses, active, 2);",
        "partners_agree(addresses, active, 2) || partners_agree(addresses, active, 4);",
    ),
    "an inactive partner agrees": ("(active >> lane) & (active >> partner) & 1", "(active >> lane) & 1"),
    "stores never merge": (
        "addresses, active, bytes, store_pass_lanes(bytes)",
        "addresses, active, bytes, load_pass_lanes(addresses, active, bytes)",
    ),
    "eight rows a pass of a matrix access": ("kMatrixPassLanes = 8", "kMatrixPassLanes = 16"),
    "a matrix access has eight rows a tile": ("matrices >= 4 ? kAllLanes :", "matrices >= 1 ? kAllLanes :"),
    "conflicts are wavefronts beyond one a pass": (
        "cost.conflicts = cost.wavefronts - cost.passes;\n  cost.ideal = "
        "ideal_wavefronts(gather(addresses, active, shift), bytes);",
        "cost.ideal = ideal_wavefronts(gather(addresses, active, shift), bytes);\n"
        "  cost.conflicts = cost.wavefronts - cost.ideal;",
    ),
    "atomics on one word follow each other": (
        "const Units words = gather(addresses, active, 2);\n  const unsigned wavefronts = largest_bank(",
        "Units words = gather(addresses, active, 2);\n"
        "  words.count = deduplicate(words.unit.data(), words.count);\n"
        "  const unsigned wavefronts = largest_bank(",
    ),
    "a compare-and-swap takes twice the wavefronts": ("cost.wavefronts *= 2;", ""),
    "conflicts of a compare-and-swap are those of an addition": (
        "cost.wavefronts *= 2;",
        "cost.conflicts = (cost.wavefronts *= 2) - 1;",
    ),
    "copies of 16 bytes are not counted": (
        "shared_async_copy16(const LaneAddresses &, std::uint32_t) {",
        "shared_async_copy16(const LaneAddresses &addresses, std::uint32_t active) {\n"
        "  if (active)\n    return shared_store(addresses, active, 16);",
    ),
}

SHIM = """
extern "C" void cost_{number}(int op, unsigned width, const unsigned *addresses, unsigned active,
                              unsigned *out) {{
  using namespace {name};
  LaneAddresses lanes;
  for (int lane = 0; lane < 32; ++lane)
    lanes[lane] = addresses[lane];
  const SharedCost cost = op == 5 ? shared_async_copy16(lanes, active)
                                  : SharedCostCache::compute(SharedCostCache::Op(op), lanes, active, width);
  out[0] = cost.wavefronts;
  out[1] = cost.conflicts;
}}
"""
OPS = {"ld": 0, "st": 1, "ldsm": 2, "stsm": 2, "atomadd": 3, "atomcas": 4, "cpa": 5}


@dataclass(frozen=True)
class Pattern:
    """One warp's access and what the GPU counted for it."""

    access: str
    op: int
    width: int
    addresses: ctypes.Array[ctypes.c_uint]
    active: int
    measured: tuple[int, int]


@functools.cache
def patterns() -> tuple[Pattern, ...]:
    """All patterns that the model covers, that is all but copies of 4 and 8 bytes."""
    found = []
    for _, row in pd.read_csv(PATTERNS, dtype={"active_mask": str}).iterrows():
        access = str(row["access"])
        if access in ("cpa4", "cpa8"):
            continue
        match = re.fullmatch(r"(atomadd|atomcas|ldsm|stsm|ld|st|cpa)(\d*)t?", access)
        assert match is not None
        wavefronts = int(row["wavefronts_ld"] + row["wavefronts_st"] + row["wavefronts_atom"])
        addresses = (ctypes.c_uint * 32)(*map(int, str(row["byte_addresses"]).split()))
        found.append(
            Pattern(
                access, OPS[match[1]], int(match[2] or 4), addresses, int(row["active_mask"], 16),
                (wavefronts, int(row["conflicts"])),
            )
        )  # fmt: skip
    return tuple(found)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """A library with the model (0) and each changed one (1, 2, ...), each in its own namespace."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("g++ is not there")
    header = (MODEL / "bank_model.h").read_text().replace("#pragma once", "")
    source = (MODEL / "bank_model.cpp").read_text().replace('#include "machine/bank_model.h"', "")
    includes = "\n".join(re.findall(r"#include <.*>", header + source))
    text = includes
    for number, (old, new) in enumerate([("", ""), *CHANGES.values()]):
        assert not old or source.count(old) == 1, f"the model has changed: {old!r} is not in it once"
        name = f"model_{number}"
        body = re.sub(r"#include <.*>", "", header + source.replace(old, new, 1))
        text += body.replace("ladder::machine", name) + SHIM.format(number=number, name=name)
    directory = tmp_path_factory.mktemp("models")
    (directory / "models.cpp").write_text(text)
    library = directory / "models.so"
    words = [compiler, "-std=c++20", "-O1", "-w", "-shared", "-fPIC", "models.cpp", "-o", str(library)]
    subprocess.run(words, cwd=directory, check=True)
    return ctypes.CDLL(str(library))


def disagreements(models: ctypes.CDLL, number: int) -> list[str]:
    """The accesses for which a model disagrees with the GPU."""
    cost = getattr(models, f"cost_{number}")
    out = (ctypes.c_uint * 2)()
    wrong = []
    for pattern in patterns():
        cost(pattern.op, pattern.width, pattern.addresses, pattern.active, out)
        if tuple(out) != pattern.measured:
            wrong.append(pattern.access)
    return wrong


def test_the_model_agrees_with_the_gpu(models: ctypes.CDLL) -> None:
    assert disagreements(models, 0) == []


@pytest.mark.parametrize("rule", CHANGES)
def test_a_changed_rule_is_noticed(models: ctypes.CDLL, rule: str) -> None:
    assert disagreements(models, 1 + list(CHANGES).index(rule))
