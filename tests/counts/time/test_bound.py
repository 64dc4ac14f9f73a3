"""The bound: arithmetic by hand on a GPU of our own, and the messages for wrong input."""

from pathlib import Path

import pytest
from rungs import named

from ladder.counts.time import bound_of, count_stage, gpu_names, load_gpu, require_clock
from ladder.counts.time.work import LaunchWork, instruction_amounts, launch_work
from ladder.errors import LadderError, UnsupportedProblem
from ladder.operations import Problem
from ladder.stages import discover

#: Two multiprocessors at 1 GHz: a cycle is a nanosecond.
SMALL = """
name = "small"
arch = "sm_80"
multiprocessors = 2
clock_mhz = 1000
dram_gb_per_s = 1
l2_mb = 0
source = "this test"
[rates.issue]
per_clock = 4
source = "this test"
[rates.shared]
per_clock = 1
source = "this test"
[rates.f16]
per_clock = 100
source = "this test"
[rates."mma f32 f16"]
per_clock = 50
source = "this test"
"""
NO_COUNTS = dict.fromkeys(
    ("wavefronts_ld", "wavefronts_st", "wavefronts_gmma", "global_sectors_ld", "global_sectors_st",
     "tma_sectors_ld", "tma_sectors_st"), 0
)  # fmt: skip


def small(folder: Path, text: str = SMALL):
    path = folder / "small.toml"
    path.write_text(text)
    return load_gpu(str(path))


def work(blocks: int = 2, **amounts: float) -> LaunchWork:
    return LaunchWork("kernel", (blocks, 1, 1), (32, 1, 1), amounts)


def test_the_slowest_unit_bounds(tmp_path: Path) -> None:
    bound = bound_of(small(tmp_path), [work(issue=4000, shared=6000)])
    assert {one.unit.name: one.ms for one in bound.units} == {"issue": 0.0005, "shared memory and L1": 0.003}
    assert (bound.ms, bound.bounding.name) == (0.003, "shared memory and L1")


def test_kinds_of_products_share_the_tensor_cores(tmp_path: Path) -> None:
    amounts = {"wgmma f32 f16": 1000.0, "mma f32 f16": 1000.0}
    ((_, tensor, *_),) = [bound_of(small(tmp_path), [work(**amounts)]).units[::-1]]
    assert tensor.ms == pytest.approx((1000 / 100 + 1000 / 50) / 2 * 1e-6)


def test_a_lower_clock_and_few_blocks_take_longer(tmp_path: Path) -> None:
    gpu = small(tmp_path)
    assert bound_of(gpu, [work(shared=1000)], clock_mhz=500).ms == 2 * bound_of(gpu, [work(shared=1000)]).ms
    assert bound_of(gpu, [work(1, shared=1000)]).ms == 0.001


def test_the_next_whole_number_of_equal_items(tmp_path: Path) -> None:
    gpu = small(tmp_path)
    three = LaunchWork("k", (3, 1, 1), (32, 1, 1), {"shared": 3000}, items={"shared": (3, 1000)})
    assert bound_of(gpu, [three]).ms == 0.002
    assert bound_of(gpu, [work(3, shared=3000)]).ms == 0.0015


def test_launches_follow_one_another(tmp_path: Path) -> None:
    gpu, launches = small(tmp_path), [work(shared=2000), work(issue=8000)]
    bound = bound_of(gpu, launches)
    assert bound.ms == bound_of(gpu, launches[:1]).ms + bound_of(gpu, launches[1:]).ms == 0.002


def test_dram_takes_what_the_l2_cannot_keep(tmp_path: Path) -> None:
    gpu = small(tmp_path, SMALL.replace("l2_mb = 0", "l2_mb = 1"))
    bound = bound_of(gpu, [work(issue=1)], read_bytes=2**20 + 5000, written_bytes=1000)
    assert (bound.ms, bound.bounding.name) == (0.005, "DRAM")


def test_lines_by_their_share(tmp_path: Path) -> None:
    rows = [
        {"ptx": "@%p1 ld.shared.f32 %f1, [%r1];", "kernel_file": "k.cu", "own_line": line, "executed": 1,
         "threads": 32, **NO_COUNTS, "wavefronts_ld": wavefronts}
        for line, wavefronts in ((7, 1), (9, 3))
    ]  # fmt: skip
    bound = bound_of(small(tmp_path), [launch_work("k", (1, 1, 1), (32, 1, 1), rows)])
    assert bound.shares() == {("k.cu", 9): 0.75, ("k.cu", 7): 0.25}


@pytest.mark.parametrize(
    ("opcode", "kind", "amount"),
    [
        ("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", "mma f32 f16", 4096),
        ("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16", "mma f16 f16", 4096),
        ("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", "m16n8k8 f32 tf32", 2048),
        ("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32", "m16n8k32 s32 s8", 8192),
        ("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16", "wgmma f32 f16", 65536),
        ("wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32", "wmma f32 f16", 8192),
        ("ex2.approx.ftz.f32", "exponential", 32),
        ("fma.rn.ftz.f32", "fma", 32),
        ("sub.f32", "add", 32),
        ("max.f32", "minimum", 32),
        ("shfl.sync.bfly.b32", "shuffle", 1),
    ],
)
def test_work_of_instructions(opcode: str, kind: str, amount: float) -> None:
    """By the PTX manual's shapes: 2 m n k operations, of wgmma a quarter per warp."""
    found = instruction_amounts(opcode, {"threads": 32, **NO_COUNTS})
    assert found == {kind: amount, "issue": 1}


def test_products_and_sums_may_be_fused() -> None:
    rows = [
        {"ptx": f"{opcode} %f1, %f2, %f3;", "kernel_file": "k.cu", "own_line": 1, "executed": 1,
         "threads": 32, **NO_COUNTS}
        for opcode in ("mul.f32", "mul.f32", "add.f32", "fma.rn.f32")
    ]  # fmt: skip
    found = launch_work("k", (1, 1, 1), (32, 1, 1), rows).amounts
    assert found == {"fma": 96, "issue": 3}


def test_integers_are_not_counted() -> None:
    assert instruction_amounts("add.s32", {"threads": 32, **NO_COUNTS}) == {}


def test_every_gpu_is_complete() -> None:
    assert gpu_names() == ["a100", "h100", "h200", "l4", "rtx4090", "rtx5090", "t4"]
    for name in gpu_names():
        gpu = load_gpu(name)
        for kind in ("wgmma f32 f16", "fma", "exponential", "shuffle", "l1", "l2_read", "l2_write"):
            assert gpu.rate(kind) is not None, (name, kind)
        assert all(rate.source for rate in gpu.rates.values())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("clock_mhz = 1000", "clock_mhz = 0"), "clock_mhz is 0; it must be positive"),
        (("multiprocessors = 2", 'multiprocessors = "2"'), "multiprocessors is '2', not int"),
        (("[rates.issue]\nper_clock = 4", "[rates.issue]"), "the rate 'issue' has no per_clock and source"),
        (("[rates.shared]", "[rates.other]"), "it has no rate 'shared'"),
        (('arch = "sm_80"', 'arch = "ampere"'), "arch is 'ampere'; it is like sm_90"),
        (('name = "small"', "name ="), "is not TOML"),
    ],
)
def test_a_wrong_file(tmp_path: Path, change: tuple[str, str], message: str) -> None:
    with pytest.raises(LadderError, match=message.replace("(", r"\(")):
        small(tmp_path, SMALL.replace(*change))


def test_an_unknown_gpu() -> None:
    with pytest.raises(LadderError, match="no GPU 'h10'; known are a100, h100") as raised:
        load_gpu("h10")
    assert raised.value.hint.startswith("Did you mean h100?")
    with pytest.raises(LadderError, match=r"nothing\.toml cannot be read: No such file"):
        load_gpu("nothing.toml")


@pytest.mark.parametrize("clock", [0, -1, float("nan"), float("inf")])
def test_no_clock(clock: float) -> None:
    with pytest.raises(LadderError, match=r"a clock of .* MHz is none"):
        require_clock(clock)


def test_no_launches() -> None:
    with pytest.raises(LadderError, match="has launched no kernel"):
        bound_of(load_gpu("h100"), [])


def test_a_rung_that_the_gpu_cannot_run() -> None:
    problem = Problem(1, 1, 64, 64, 64)
    with pytest.raises(UnsupportedProblem, match=f"{named('v7')} runs on sm_90a alone, not on sm_80"):
        count_stage(discover()["v7"], problem, load_gpu("a100"))
    with pytest.raises(UnsupportedProblem, match=f"{named('v7')} runs on sm_90a alone, not on sm_120"):
        count_stage(discover()["v7"], problem, load_gpu("rtx5090"))


def test_the_virtual_gpu_that_counts() -> None:
    rungs = discover()
    assert load_gpu("rtx5090").arch_of(rungs[named("v2")]) == "sm_90"
    assert load_gpu("t4").arch_of(rungs[named("v2")]) == "sm_75"
    assert load_gpu("h200").arch_of(rungs[named("v7")]) == "sm_90a"
