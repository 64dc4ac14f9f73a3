"""What the sanitizer says of tensor memory: a clean kernel, and the same with one line missing or wrong."""

from __future__ import annotations

import numpy as np
import pytest

from ladder.run.emulator import Finding, Module

ARCH, THREADS = "sm_100a", 128
N = 16
#: bf16, f32 results, 128 x N x 16, both operands K-major.
FORM = 1 << 4 | 1 << 7 | 1 << 10 | N >> 3 << 17 | 128 >> 4 << 24


def operand(offset: int) -> int:
    """Rows of 16 elements without swizzle: 8 rows of 16 bytes, then the other halves of these rows."""
    begin = 1024  # where a block's shared memory begins
    return (begin + offset) >> 4 | (128 >> 4) << 16 | (256 >> 4) << 32 | 1 << 46


A, B, BYTES = 0, 4096, 5120

WAIT = """
{name}:
  mbarrier.try_wait.parity.shared::cta.b64 %p1, [mbar], {parity};
  @!%p1 bra {name};
"""
LOAD = "tcgen05.ld.sync.aligned.32x32b.x16.b32 {" + ", ".join(f"%r{20 + i}" for i in range(16)) + "}, [%r4];"
STORE = "tcgen05.st.sync.aligned.32x32b.x8.b32 [%r5], {" + ", ".join(f"%r{20 + i}" for i in range(8)) + "};"

#: Lines by name, so that a test can leave one out or replace it.
LINES = {
    "begin": f"""
.version 8.8
.target {ARCH}
.address_size 64
.visible .entry k(.param .u64 p0)
{{
  .reg .pred %p<10>;
  .reg .b32 %r<100>;
  .reg .b64 %rd<10>;
  .shared .align 1024 .b8 smem[{BYTES}];
  .shared .align 8 .b64 mbar;
  .shared .align 4 .b32 address;
  ld.param.u64 %rd0, [p0];
  mov.u32 %r0, %tid.x;
  setp.ne.u32 %p0, %r0, 0;
  setp.ge.u32 %p2, %r0, 32;
  setp.eq.u32 %p4, %r0, %r0;
  @%p2 bra others;
  tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [address], 64;
  tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;
others:
  @%p0 bra filled;
  mbarrier.init.shared::cta.b64 [mbar], 1;
filled:
  mov.u32 %r6, smem;
  mad.lo.u32 %r6, %r0, {BYTES // THREADS}, %r6;
""",
    "fill": "\n".join(f"  st.shared.b32 [%r6+{i}], 0;" for i in range(0, BYTES // THREADS, 4)),
    "proxy": "  fence.proxy.async.shared::cta;",
    "begin sync": "  bar.sync 0;",
    "addresses": f"""
  ld.shared.b32 %r1, [address];
  and.b32 %r2, %r0, 96;
  shl.b32 %r2, %r2, 16;
  add.u32 %r4, %r1, %r2;
  add.u32 %r5, %r4, 32;
  add.u32 %r7, %r1, 32;
  mov.u64 %rd1, {operand(A)};
  mov.u64 %rd2, {operand(B)};
  @%p0 bra issued;
""",
    "product 1": f"  tcgen05.mma.cta_group::1.kind::f16 [%r1], %rd1, %rd2, {FORM}, !%p4;",
    "commit 1": "  tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [mbar];\nissued:",
    "wait 1": WAIT.format(name="wait1", parity=0),
    "after 1": "  tcgen05.fence::after_thread_sync;",
    "load 1": "  " + LOAD,
    "wait ld 1": "  tcgen05.wait::ld.sync.aligned;",
    "store": "  " + STORE,
    "wait st": "  tcgen05.wait::st.sync.aligned;",
    "before": "  tcgen05.fence::before_thread_sync;",
    "sync": "  bar.sync 0;",
    "issue": "  @%p0 bra issued2;",
    "after": "  tcgen05.fence::after_thread_sync;",
    "product 2": f"  tcgen05.mma.cta_group::1.kind::f16 [%r1], [%r7], %rd2, {FORM}, %p4;",
    "commit 2": "  tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [mbar];\nissued2:",
    "early": "",
    "wait 2": WAIT.format(name="wait2", parity=1),
    "after 2": "  tcgen05.fence::after_thread_sync;",
    "load 2": "  " + LOAD,
    "wait ld 2": "  tcgen05.wait::ld.sync.aligned;",
    "refill": "",
    "end": "  bar.sync 0;\n  @%p2 bra freed;",
    "dealloc": "  tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r1, 64;",
    "return": """
freed:
  mul.wide.u32 %rd3, %r0, 4;
  add.u64 %rd4, %rd0, %rd3;
  st.global.b32 [%rd4], %r20;
  ret;
}
""",
}
REFILL = f"""
  @%p0 bra refilled;
  st.shared.b32 [smem+{B}], 1;
refilled:
"""


def findings(changes: dict[str, str]) -> list[Finding]:
    text = "\n".join((LINES | changes).values())
    out = np.zeros(THREADS, np.uint32)
    return list(Module(text, ARCH).launch("k", 1, THREADS, [out], check=True).findings)


def test_a_correct_kernel_is_clean() -> None:
    assert findings({}) == []
    assert findings({"refill": REFILL}) == []


QUARTERLESS = LINES["addresses"].replace("add.u32 %r4, %r1, %r2;", "mov.u32 %r4, %r1;")
BY_A_WARP = LINES["product 1"].replace("tcgen05", "@!%p2 tcgen05")


@pytest.mark.parametrize(
    ("changes", "kind", "message"),
    [
        (
            {"wait 1": ""},
            "tensor memory not waited for",
            "reads columns 0-15 of tensor memory while a tcgen05.mma",
        ),
        ({"commit 1": "issued:", "wait 1": ""}, "tensor memory not waited for", "may be in flight"),
        ({"after 1": ""}, "tcgen05 fence", "tcgen05.fence::after_thread_sync is missing"),
        ({"after 2": ""}, "tcgen05 fence", "reads columns 0-15"),
        ({"wait ld 1": ""}, "tensor memory not waited for", "while a tcgen05.ld that reads them"),
        (
            {"wait st": ""},
            "tensor memory not waited for",
            "reads columns 32-39 of tensor memory while a tcgen05.st",
        ),
        ({"before": ""}, "tcgen05 fence", "tcgen05.fence::before_thread_sync is missing"),
        ({"after": ""}, "tcgen05 fence", "which a tcgen05.st writes"),
        (
            {"product 1": LINES["product 1"].replace("!%p4", "%p4")},
            "uninitialised read",
            "reads column 0 of tensor memory, which was never written",
        ),
        (
            {"addresses": QUARTERLESS},
            "tensor memory lanes",
            "a warp whose number is 1 modulo 4 has lanes 32-63",
        ),
        ({"dealloc": ""}, "leak", "without tcgen05.dealloc"),
        (
            {"wait ld 2": ""},
            "tensor memory not waited for",
            "frees columns 0-63 of tensor memory while a tcgen05.ld",
        ),
        ({"proxy": ""}, "proxy fence", ""),
        ({"early": REFILL}, "read not waited for", ""),
    ],
    ids=lambda value: ", ".join(value) if isinstance(value, dict) else None,
)
def test_one_line_missing_or_wrong(changes: dict[str, str], kind: str, message: str) -> None:
    found = findings(changes)
    assert any(one.kind == kind and message in one.message for one in found), found


def test_a_product_is_issued_by_one_lane() -> None:
    """Each lane issues its own; the commit is lane 0's."""
    before = LINES["addresses"].replace("  @%p0 bra issued;\n", "  @%p2 bra issued;\n")
    commit = LINES["commit 1"].replace("tcgen05.commit", "@!%p0 tcgen05.commit")
    found = findings({"addresses": before, "product 1": BY_A_WARP, "commit 1": commit})
    assert any(one.kind == "election" and "32 lanes" in one.message for one in found)
