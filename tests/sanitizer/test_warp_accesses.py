"""Lanes that are checked together are found guilty of the same as lanes that are checked one by one."""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np

from ladder.run.emulator import Finding, Module

_BYTES = 4096
_LANES = 32
_KERNELS = 150

#: With `uneven`, every other lane begins a later epoch. That orders nothing, but such lanes are checked one
#: by one.
_KERNEL = """
.version 8.8
.target sm_80
.address_size 64
.visible .entry kernel(.param .u64 data, .param .u32 uneven) {{
  .reg .pred %p; .reg .b32 %tid, %lane, %warp, %o, %a, %t, %u, %v, %r<4>; .reg .b64 %g, %at; .reg .b16 %h;
  .shared .align 64 .b8 memory[{bytes}];
  mov.u32 %tid, %tid.x;
  and.b32 %lane, %tid, 31;
  shr.u32 %warp, %tid, 5;
  ld.param.u64 %g, [data];
  ld.param.u32 %u, [uneven];
  and.b32 %t, %u, %lane;
  setp.ne.u32 %p, %t, 0;
  @%p membar.cta;
{body}
  ret;
}}
"""

_REGISTERS = {"u16": "%h", "u32": "%v", "v2.u32": "{%v, %v}", "v4.u32": "{%v, %v, %v, %v}"}
_SIZES = {"u16": 2, "u32": 4, "v2.u32": 8, "v4.u32": 16}


@dataclass
class _Writer:
    """Writes random accesses, most of them of whole rows or of one place, and what may order them."""

    pick: random.Random
    last: str = ""  # what %o was computed for

    def address(self, size: int) -> list[str]:
        """Puts an offset into %o: a multiple of the size, within the array."""
        first = self.pick.choice((0, 0, 64, 512, size, 1024))
        by_thread = {
            "a row": ("%tid", size),
            "the warp's place": ("%warp", 64),
            "the lane's place": ("%lane", size),
            "every other one": ("%tid", 2 * size),
            "the first place": ("%tid", 0),
        }
        index, stride = by_thread[self.pick.choice((*by_thread, "a row", "a row"))]
        lines = [f"mov.u32 %t, {index};"]
        if self.pick.random() < 0.2:
            lines.append(f"xor.b32 %t, %t, {self.pick.choice((1, 16, 32))};")
        if self.pick.random() < 0.2:
            lines.append(f"shr.u32 %t, %t, {self.pick.choice((1, 3, 4))};")
        return [
            *lines,
            f"mad.lo.u32 %o, %t, {stride}, {first};",
            f"and.b32 %o, %o, {(_BYTES - 1) & -size};",
        ]

    def access(self, kind: str, loads: bool, space: str) -> list[str]:
        again = self.last == kind and self.pick.random() < 0.4
        self.last = kind
        return [*([] if again else self.address(_SIZES[kind])), *self.at_offset(kind, loads, space)]

    def at_offset(self, kind: str, loads: bool, space: str) -> list[str]:
        lines = []
        if space == "shared":
            lines += ["mov.u32 %a, memory;", "add.u32 %a, %a, %o;"]
        else:
            lines += ["cvt.u64.u32 %at, %o;", "add.u64 %at, %at, %g;"]
        address = "[%a]" if space == "shared" else "[%at]"
        guard = ""
        if self.pick.random() < 0.1:
            lines.append(f"setp.{self.pick.choice(('lt', 'ge'))}.u32 %p, %lane, {self.pick.choice((3, 16))};")
            guard = "@%p "
        if loads:
            return [*lines, f"{guard}ld.{space}.{kind} {_REGISTERS[kind].replace('%v', '%r0')}, {address};"]
        lines += [self.pick.choice(("mov.u32 %v, %tid;", "mov.u32 %v, 0;")), "cvt.u16.u32 %h, %v;"]
        return [*lines, f"{guard}st.{space}.{kind} {address}, {_REGISTERS[kind]};"]

    def warp_barrier(self) -> list[str]:
        """Of the whole warp, or of each of its two parts."""
        first = self.pick.choice((4, 20, _LANES))
        mask = (1 << first) - 1
        lines = [f"setp.lt.u32 %p, %lane, {first};", f"@%p bar.warp.sync {mask};"]
        return lines if first == _LANES else [*lines, f"@!%p bar.warp.sync {mask ^ 0xFFFFFFFF};"]

    def body(self) -> list[str]:
        kinds = self.pick.sample(sorted(_SIZES), self.pick.choice((1, 1, 2)))
        space = self.pick.choice(("shared", "shared", "global"))
        threads = 4 * _LANES
        lines = []
        for first in range(0, _BYTES, threads * _SIZES[kinds[0]]):  # so that everything has a value
            lines.append(f"mad.lo.u32 %o, %tid, {_SIZES[kinds[0]]}, {first};")
            lines += self.at_offset(kinds[0], False, space)
        often = self.pick.choice((0.2, 0.5, 1))
        for _ in range(self.pick.randrange(1, 20)):
            order = self.pick.random()
            if order < often:
                lines.append("bar.sync 0;")
            elif order < often + 0.2:
                lines += self.warp_barrier()
            lines += self.access(self.pick.choice(kinds), self.pick.random() < 0.5, space)
        return lines


def _text(seed: int) -> str:
    lines = _Writer(random.Random(seed)).body()
    return _KERNEL.format(bytes=_BYTES, body="\n".join(f"  {line}" for line in lines))


def _findings(module: Module, grid: int, uneven: bool, memory: np.ndarray) -> list[Finding]:
    memory[:] = 1
    return list(module.launch("kernel", grid, 4 * _LANES, [memory, int(uneven)], check=True).findings)


def test_lanes_checked_together_are_found_guilty_of_the_same() -> None:
    whole = np.empty(_BYTES + 64, np.uint8)
    begin = -whole.ctypes.data % 64
    memory = whole[begin : begin + _BYTES]
    different, clean = [], 0
    for seed in range(_KERNELS):
        module = Module(_text(seed))
        together = _findings(module, 1 + seed % 2, False, memory)
        clean += not together
        if together != _findings(module, 1 + seed % 2, True, memory):
            different.append(seed)
    assert different == []
    assert 0 < clean < _KERNELS / 2


def test_a_race_with_reads_at_one_place_names_the_last() -> None:
    body = """
  mov.u32 %a, memory;
  setp.eq.u32 %p, %tid, 0;
  @%p st.shared.u32 [%a], 1;
  bar.sync 0;
  setp.ge.u32 %p, %lane, 3;
  @%p ld.shared.u32 %r0, [%a];
  ld.shared.u32 %r1, [%a];
  setp.eq.u32 %p, %tid, 0;
  @%p st.shared.u32 [%a], 2;"""
    text = _KERNEL.format(bytes=_BYTES, body=body)
    (race,) = Module(text).launch("kernel", 1, _LANES, [0, 0], check=True).findings
    assert race.kind == "race in a warp"
    assert race.other is not None
    # Lane 3 was the first to read, and has read again since.
    assert race.other.lanes == (3,)
    assert text.splitlines()[race.other.ptx_line - 1] == "  ld.shared.u32 %r1, [%a];"
