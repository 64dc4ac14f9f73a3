"""The sanitizer's findings: each is one fault at one place, no matter how often it happened."""

from __future__ import annotations

import functools
import json
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ladder.run.emulator.situations import (
    ARRIVAL,
    BACK_EDGE,
    CONDITIONAL,
    IN_THE_LOOP,
    NEIGHBOUR,
    SAME_INDEX,
    arrival_after,
    conditional_barrier,
    has_a_loaded_index,
    has_barrier_between,
    is_in_a_loop_before,
    uses_a_neighbour,
)

#: The kind of remark that says that sums of floats depend on which thread comes first.
ORDER_OF_ADDITIONS = "order of additions"
#: How to fix each kind.
ADVICE = {
    "out of bounds": "Which index is too large, or negative? If the last block or the last tile may extend "
    "past the end, compare the index with the size before the access.",
    "misaligned": "An access of n bytes needs an address that is a multiple of n. If the index is right, "
    "align the row or use a narrower type.",
    "read only": "Write only to outputs. Read data that the kernel writes without __ldg and const "
    "__restrict__.",
    "uninitialised read": "Write the whole tile before any thread reads it, with zeros where there is no "
    "data.",
    "race between warps": "Put __syncthreads() between the two lines.",
    "race in a warp": "Put __syncwarp() between the two lines: the lanes of a warp do not run in step.",
    "race of equal values": "Put the barrier there anyway: with other data the result is wrong.",
    "flag": "Not a fault: the result is the same whichever write comes last. If one thread should write, "
    "let only that thread do it.",
    "parity": "Keep only bit 0 of the number of the phase: & 1. PTX allows the parities 0 and 1 only.",
    ORDER_OF_ADDITIONS: "Sums of floats depend on their order: two runs may differ in the last bits. If they "
    "must not, let the threads add in a fixed order, each after an acquire.",
    "unordered additions": "Let the threads add in a fixed order: acquire before the addition, and "
    "release only after it is complete: if TMA adds, after wait_group without .read. If the last bits may "
    "differ, say deterministic = false in stage.toml.",
    "undefined registers": "Wait for the product (wgmma.wait_group) before its registers are used; execute "
    "wgmma.fence before the first product that uses them.",
    "race between streams": "Put both into one stream, or make the later stream wait: cudaEventRecord on the "
    "earlier stream, cudaStreamWaitEvent on the later one.",
    "race with the host": "Call cudaStreamSynchronize or cudaDeviceSynchronize before the host accesses it.",
    "race between blocks": "Give each block its own part, or use atomics. To hand data over, use "
    "__threadfence() and an atomic flag, or a grid barrier.",
    "copy not waited for": "Wait first: cp.async.wait_group (or __pipeline_wait_prior), then a barrier.",
    "read not waited for": "Wait first: wgmma.wait_group before a buffer is released, "
    "cp.async.bulk.wait_group.read before it is written again.",
    "product not waited for": "Execute wgmma.wait_group for that product before its registers are used.",
    "wgmma fence": "Execute wgmma.fence before the product, after the last use of its registers. If there "
    "is one, the compiler has moved the use behind the fence: tie the registers to the fence with "
    'asm volatile("" : "+f"(x) :: "memory").',
    "proxy fence": "Execute fence.proxy.async in the threads that wrote, then the barrier.",
    "tensor memory not waited for": "Wait first: tcgen05.wait::ld or ::st in the warp that loads or stores, "
    "and for a product tcgen05.commit and the wait for its mbarrier.",
    "tcgen05 fence": "Execute tcgen05.fence::before_thread_sync after the wait and before the barrier or "
    "arrival, and tcgen05.fence::after_thread_sync in the other threads after their wait.",
    "tensor memory lanes": "Add 32 * (warp modulo 4) << 16 to the address: each warp has its quarter of the "
    "lanes.",
    "swizzle": "Give the tensor map and the matrix descriptor the same swizzle.",
    "election": "Let one lane issue it: elect.sync, or one thread of the block.",
    "barrier": "Let all threads reach the same barrier: move it out of the branch, or of a loop that "
    "some leave earlier.",
    "mask": "The mask must name exactly the lanes that execute the line.",
    "use after free": "Free the memory after its last use.",
    "host pointer": "Allocate it with cudaMalloc and copy the data there.",
    "host access": "Copy the data to the host with cudaMemcpy: on a GPU this line crashes.",
    "bad free": "Free each allocation once, with the function that matches its kind.",
    "leak": "Free it before the program ends.",
    "bad copy": "Check the size in bytes, and the order (destination first) and kind of the copy.",
    "bad launch": "Query the limits of the GPU with cudaDeviceGetAttribute, and opt in to large shared "
    "memory.",
    "unchecked error": "Check cudaGetLastError() after each launch.",
    "unwritten output": "Compare the grid with the size: which block should have written it?",
    "wrong result": "No access is at fault, so the arithmetic is: compare this element with the reference.",
    "fault": "See the message.",
    "failure": "The run did not finish; fix this first.",
}

#: Kinds that are remarks, not faults.
_REMARKS = frozenset({"flag", "parity", ORDER_OF_ADDITIONS})

#: Advice for races whose likeliest cause is not a missing barrier: at one line, or between two writes. A race
#: at one line may be a counter.
_SAME_LINE_WRITES = (
    "Two threads write the same bytes at this line: is the address right for each of them? If they add "
    "to one counter, use atomicAdd. Only if they should access it one after the other, put {barrier} between "
    "the rounds."
)
_SAME_LINE = (
    "Two threads use the same bytes at this line: is the address right for each of them? If they add to one "
    "counter, use atomicAdd. Only if they should access it one after the other, put {barrier} between the "
    "rounds."
)
_TWO_WRITES = (
    "Two threads write the same bytes: is the address right for each of them? Only if they should take "
    "turns, put {barrier} between."
)
#: Threads of a block hand data over in shared memory, so in global memory an index is likelier to be wrong.
_GLOBAL_RACE_ADVICE = (
    "Two threads use the same element of global memory: is the index right for each of them? Only if one "
    "hands it to the other, put {barrier} between the two lines."
)
_BETWEEN_WARPS = "The __syncthreads() that the warps need between the two lines orders the lanes, too."
_BARRIERS = {"race between warps": "__syncthreads()", "race in a warp": "__syncwarp()"}
_COPY_RACE_ADVICE = (
    "Is this buffer free? If it is, put a block barrier between its last use and the line that refills "
    "it, and another between its arrival and its first use."
)
_COPIED_BY_ANOTHER_ADVICE = (
    "Wait first: each thread for its own copies (cp.async.wait_group, or __pipeline_wait_prior), and then "
    "all at a block barrier, since other warps have copied what this one reads."
)
_LDMATRIX_ADVICE = (
    "Each lane gives ldmatrix the address of a row of 16 bytes, a multiple of 16: columns advance in steps "
    "of 8 elements of 16 bits, and offsets to an address count in bytes."
)
_WARPGROUP_ADVICE = (
    "All four warps of the warpgroup must execute this line with the same descriptors, and with registers "
    "that the block has available."
)
_MBARRIER_ADVICE = (
    "Compare the count of mbarrier.init and the expected bytes with what arrives in each phase. The thread "
    "that starts a phase must wait for the previous one."
)
_EARLY_ARRIVAL_ADVICE = (
    "The phase ended too early, or this arrival comes too early: does init count each warp that releases, "
    "and does each release once per load, after its wait for that load (wait_full)?"
)
_EARLY_LOAD_ADVICE = (
    "A load announces its bytes once per phase: let one thread issue it, after the wait until the buffer is "
    "empty (wait_empty)."
)
#: Warps wait at several named barriers: in a ring of turns, or for a release that waits for a turn.
_BARRIER_NUMBER = re.compile(r" at barrier (\d+)")
_TURN_ADVICE = (
    "These warps wait at different named barriers, so one of them is never completed. Each wait for a turn "
    "needs an arrival that passes the turn on, also for a tile that is not used: count both."
)
_MISSED_PHASE_ADVICE = (
    "Before a thread arrives for all that use the buffer, all of them must have seen the end of the phase: "
    "let each warp arrive, or put a barrier of these warps between their wait and the arrival."
)
_CLUSTER_ADVICE = (
    "Put a cluster barrier (arrive.release, wait.acquire) in between, or hand the memory over by an "
    "mbarrier. A block may exit only when no other block uses its shared memory."
)
_INIT_ADVICE = (
    "Execute fence.mbarrier_init.release.cluster after mbarrier.init, then a barrier of all threads that use "
    "it."
)
_REINIT_ADVICE = (
    "Initialise it once, by one thread: it advances from phase to phase by itself. Execute mbarrier.inval "
    "before its memory is used for something else."
)
_PLACES_ADVICE = (
    "A block may wait only for blocks that have started: let each take its number from an atomic counter "
    "when it starts, or launch no more blocks than fit."
)
_SPIN_ADVICE = (
    "Which thread writes what this loop waits for? It may itself wait for a thread in this loop: let it "
    "write before it waits."
)
_BEFORE_PRODUCT_ADVICE = (
    "A warp's wait covers its own part. Put a block barrier between the two lines, so that the product "
    "starts when all warps have written theirs."
)
_RELEASED_ADVICE = (
    "The buffer is filled again while a product still reads it. Before the copy is issued, wait until its "
    "consumers have released it (wait_empty); they release it when their product is complete."
)
_UNFILLED_ADVICE = (
    "The copy reads a buffer that is not written yet. Before it is issued, wait for the warps that write the "
    "buffer: for the phase of the mbarrier at which they arrive."
)
_REFILLED_ADVICE = (
    "The buffer is filled again before the last copy into it is complete. Before a copy is issued, wait "
    "until the consumers have released the buffer (wait_empty)."
)
_LOADED_ADVICE = "Wait first: every reader must wait for the mbarrier phase that the copy completes."
_EXPECTED_ADVICE = "Add the bytes of this copy to mbarrier.arrive.expect_tx of that phase."
_STORED_ADVICE = (
    "Wait first: cp.async.bulk.wait_group without .read, in the thread that issued it, then a barrier if "
    "other threads access the memory."
)
_SCOPE_ADVICE = (
    "Use atomics of the device's scope: atomicAdd instead of atomicAdd_block, cuda::thread_scope_device. "
    "Atomics of block scope are atomic only for the threads of one block."
)
_EARLY_ADVICE = (
    "Call cudaGridDependencySynchronize() before the first access to memory that the previous kernel uses."
)
_MAP_ADVICE = (
    "Change a tensor map only after the loads that use it are complete, or keep one for each load in flight."
)
_GLOBAL_PROXY_ADVICE = (
    "Execute fence.proxy.async.global between the write and the copy: in the thread that wrote, before it "
    "releases the flag or reaches the barrier, or in the thread that issues the copy, after it has waited."
)
_LDMATRIX_PROXY_ADVICE = (
    "Execute fence.proxy.async in the threads that read the tile by ldmatrix, before they release the buffer."
)
_AFTER_FAILURE = re.compile(r", after (\w+).* returned cudaError\w+ and the program went on")
_AFTER_FAILURE_ADVICE = "Check what {call} returns and stop there: this is most likely its consequence."
_NULL_ADVICE = "Check what the allocation returned, and which pointer the launch received."
_NEGATIVE_ADVICE = (
    "The index is negative. Is it right for the first thread, and for the first row and column? If the "
    "element does not exist, leave the access out."
)


#: All that :attr:`Finding.advice` may say, besides :data:`ADVICE`.
MORE_ADVICE = (
    _SAME_LINE_WRITES,
    _SAME_LINE,
    _TWO_WRITES,
    _GLOBAL_RACE_ADVICE,
    _BETWEEN_WARPS,
    _COPY_RACE_ADVICE,
    _LDMATRIX_ADVICE,
    _WARPGROUP_ADVICE,
    _MBARRIER_ADVICE,
    _EARLY_ARRIVAL_ADVICE,
    _EARLY_LOAD_ADVICE,
    _TURN_ADVICE,
    _MISSED_PHASE_ADVICE,
    _SCOPE_ADVICE,
    _EARLY_ADVICE,
    _MAP_ADVICE,
    _GLOBAL_PROXY_ADVICE,
    _LDMATRIX_PROXY_ADVICE,
    _CLUSTER_ADVICE,
    _INIT_ADVICE,
    _REINIT_ADVICE,
    _PLACES_ADVICE,
    _REFILLED_ADVICE,
    _UNFILLED_ADVICE,
    _LOADED_ADVICE,
    _EXPECTED_ADVICE,
    _STORED_ADVICE,
    _AFTER_FAILURE_ADVICE,
    _NULL_ADVICE,
    _NEGATIVE_ADVICE,
    _SPIN_ADVICE,
    _BEFORE_PRODUCT_ADVICE,
    _RELEASED_ADVICE,
    _COPIED_BY_ANOTHER_ADVICE,
    ARRIVAL,
    BACK_EDGE,
    CONDITIONAL,
    IN_THE_LOOP,
    NEIGHBOUR,
    SAME_INDEX,
)


@dataclass(frozen=True)
class Party:
    """One party to a fault: threads of a kernel, and their line.

    ``file`` and ``line`` locate the instruction, ``kernel_file`` and ``kernel_line`` the kernel's line that
    it was inlined into, ``own_line`` the innermost line in ``kernel_file``; without ``-lineinfo`` they are
    empty and 0. ``block`` is None if nothing ran, ``warp`` if no single warp is to blame; ``lanes`` are those
    of the first occurrence. ``block_shape`` is that of the kernel's launches, None unless it is known and the
    same for all.
    """

    block: tuple[int, int, int] | None
    warp: int | None
    lanes: tuple[int, ...]
    file: str
    line: int
    kernel_file: str
    kernel_line: int
    own_line: int
    opcode: str
    ptx_line: int
    block_shape: tuple[int, int, int] | None = None

    @property
    def threads(self) -> list[tuple[int, int, int]]:
        """The ``threadIdx`` of each lane; empty if the warp or the block's shape is unknown."""
        if self.warp is None or self.block_shape is None:
            return []
        width, height, _ = self.block_shape
        numbers = [32 * self.warp + lane for lane in self.lanes]
        return [(one % width, one // width % height, one // (width * height)) for one in numbers]


@dataclass(frozen=True)
class Finding:
    """One fault. ``other`` is the second party of a race, ``element`` the accessed element, ``count`` the
    number of faulty accesses by threads. ``between_warps_too``: a race in a warp at lines where warps race,
    too.
    """

    kind: str
    message: str
    kernel: str
    count: int
    who: Party | None
    other: Party | None
    element: str
    space: str = ""
    address: int | None = None
    object: str = ""
    object_offset: int = 0
    bytes: int = 0
    host_place: str = ""
    between_warps_too: bool = False

    @property
    def advice(self) -> str:
        if self.between_warps_too:
            return _BETWEEN_WARPS
        if failed := _AFTER_FAILURE.search(self.message):
            return _AFTER_FAILURE_ADVICE.format(call=failed[1])
        if self.kind == "out of bounds" and "a null pointer" in self.message:
            return _NULL_ADVICE
        if self.kind == "out of bounds" and self.object_offset < 0:
            return _NEGATIVE_ADVICE
        if self.kind == "misaligned" and self.who is not None and self.who.opcode.startswith("ldmatrix"):
            return _LDMATRIX_ADVICE
        if (special := self._advice_about_asynchronous()) is not None:
            return special
        is_copied = any(_is_copy(party) for party in (self.who, self.other))
        if self.kind in _BARRIERS and is_copied and self.space != "global":
            return _COPY_RACE_ADVICE
        if (special := self._advice_about_lines()) is not None:
            return special
        if self.kind in _BARRIERS and self.space == "global" and not self._is_at_one_place:
            return _GLOBAL_RACE_ADVICE.format(barrier=_BARRIERS[self.kind])
        if self.kind in _BARRIERS and (self._is_at_one_place or self._is_of_two_writes):
            at_one_line = _SAME_LINE_WRITES if self._is_of_two_writes else _SAME_LINE
            form = at_one_line if self._is_at_one_place else _TWO_WRITES
            return form.format(barrier=_BARRIERS[self.kind])
        return ADVICE[self.kind]

    def _advice_about_lines(self) -> str | None:
        """Advice on a race that depends on the source at and between the two lines; None if nothing tells."""
        who, other, barrier = self.who, self.other, _BARRIERS.get(self.kind, "")
        if not barrier or self._is_of_two_writes or who is None or other is None:
            return None
        file = who.kernel_file
        if file != other.kernel_file:
            return None
        if self._is_at_one_place:
            return NEIGHBOUR.format(barrier=barrier) if uses_a_neighbour(file, who.own_line) else None
        if has_a_loaded_index(file, who.own_line, other.own_line):
            return SAME_INDEX
        first, last = self._lines
        if self.message.startswith("reads ") and (line := arrival_after(file, other.own_line)) is not None:
            return ARRIVAL.format(line=line)
        if (line := conditional_barrier(file, first, last, barrier)) is not None:
            return CONDITIONAL.format(line=line)
        if self._has_barrier_between(barrier):
            return self._on_the_way_back(barrier)
        if uses_a_neighbour(file, first) and is_in_a_loop_before(file, first, last):
            return IN_THE_LOOP.format(barrier=barrier, line=first)
        return None

    def _advice_about_asynchronous(self) -> str | None:
        """Advice specific to instructions of sm_90; None if the advice of the kind applies."""
        mine, theirs = (party.opcode if party else "" for party in (self.who, self.other))
        if self.kind in ("proxy fence", "race between blocks") and theirs.startswith("mbarrier.init"):
            return _INIT_ADVICE
        if self.kind == "proxy fence" and (self.space == "global" or theirs.startswith("ldmatrix")):
            return _GLOBAL_PROXY_ADVICE if self.space == "global" else _LDMATRIX_PROXY_ADVICE
        if self.kind == "race between blocks" and "block scope" in self.message:
            return _SCOPE_ADVICE
        if self.kind == "race between blocks" and self.space == "shared":
            return _CLUSTER_ADVICE
        if self.kind == "race between streams" and "programmatic" in self.message:
            return _EARLY_ADVICE
        if self.kind == "read not waited for" and self.space == "global":
            return _MAP_ADVICE
        landing = ("cp.async.bulk", "cp.reduce.async.bulk", "st.async", "red.async")
        if self.kind == "copy not waited for" and any(opcode in mine + theirs for opcode in landing):
            if "expected bytes" in self.message:
                return _EXPECTED_ADVICE
            if self.space == "shared" and self.message.startswith("writes ") and _is_copy(self.who):
                return _REFILLED_ADVICE
            return _STORED_ADVICE if self.space == "global" else _LOADED_ADVICE
        if (
            self.kind == "copy not waited for"
            and self.who
            and self.other
            and self.who.warp != self.other.warp
        ):
            return _COPIED_BY_ANOTHER_ADVICE
        if self.kind == "uninitialised read" and any(opcode in mine for opcode in landing[:2]):
            return _UNFILLED_ADVICE
        if self.kind == "mask" and mine.startswith(("wgmma.", "setmaxnreg.")):
            return _WARPGROUP_ADVICE
        if self.kind == "barrier" and (mine.startswith("mbarrier.init") or "live mbarrier" in self.message):
            return _REINIT_ADVICE
        if self.kind == "barrier" and "wait for ever" in self.message:
            return _MISSED_PHASE_ADVICE
        if self.kind == "barrier" and "without waiting for the end of the previous phase" in self.message:
            return _EARLY_LOAD_ADVICE if "expect_tx" in mine else _EARLY_ARRIVAL_ADVICE
        if self.kind == "barrier" and len(set(_BARRIER_NUMBER.findall(self.message))) > 1:
            return _TURN_ADVICE
        if self.kind == "barrier" and mine.startswith("mbarrier."):
            return _MBARRIER_ADVICE
        if "more blocks cannot start" in self.message:
            return _PLACES_ADVICE
        if self.kind == "barrier" and "nothing that they wait for has changed" in self.message:
            return _SPIN_ADVICE
        if self.kind == "read not waited for" and theirs.startswith("wgmma"):
            return self._advice_about_refill()
        return None

    def _advice_about_refill(self) -> str | None:
        """Shared memory is written while a product may read it; None if one warp does both."""
        if self.who is None or self.other is None or self.who.warp == self.other.warp:
            return None
        if self.who.opcode.startswith("cp.async.bulk"):
            return _RELEASED_ADVICE
        if self._has_barrier_between("__syncthreads()"):
            return self._on_the_way_back("wgmma.wait_group and __syncthreads()")
        if self.who.kernel_line < self.other.kernel_line:
            return _BEFORE_PRODUCT_ADVICE
        return None

    @property
    def _lines(self) -> tuple[int, int]:
        """The lines of the two parties in one function, the upper one first: the kernel's, or those of the
        function that it calls at one line.
        """
        assert self.who is not None and self.other is not None
        parties = (self.who, self.other)
        lines = {party.kernel_line for party in parties}
        first, last = sorted(party.kernel_line if len(lines) > 1 else party.own_line for party in parties)
        return first, last

    def _has_barrier_between(self, barrier: str) -> bool:
        if self.who is None or self.other is None or self.who.kernel_file != self.other.kernel_file:
            return False
        return has_barrier_between(self.who.kernel_file, *self._lines, barrier)

    def _on_the_way_back(self, barrier: str) -> str:
        first, last = self._lines
        return BACK_EDGE.format(barrier=barrier, first=first, last=last)

    @property
    def is_remark(self) -> bool:
        """Whether it is a remark, not a fault."""
        return self.kind in _REMARKS

    @property
    def _is_at_one_place(self) -> bool:
        return self.who is not None and _place(self.who) == _place(self.other)

    @property
    def _is_of_two_writes(self) -> bool:
        return self.message.startswith("writes ") and " wrote" in self.message

    def as_row(self) -> dict[str, Any]:
        """Returns the finding as a JSON object."""
        row = {name: value for name, value in vars(self).items() if name not in ("who", "other")}
        parties = {name: vars(p) if p else None for name, p in (("who", self.who), ("other", self.other))}
        return {**row, **parties, "advice": self.advice}


def parse_findings(
    text: str, block_shapes: Mapping[str, tuple[int, int, int]] | None = None
) -> tuple[list[Finding], list[Finding]]:
    """Parses the emulator's JSON: findings, and remarks. ``block_shapes`` has the blocks' shape by kernel."""
    return split_remarks([_finding(entry, block_shapes or {}) for entry in json.loads(text)])


def split_remarks(everything: Iterable[Finding]) -> tuple[list[Finding], list[Finding]]:
    """Returns the faults, and the remarks."""
    parts: tuple[list[Finding], list[Finding]] = ([], [])
    for finding in everything:
        parts[finding.is_remark].append(finding)
    return parts


def _finding(entry: dict[str, Any], block_shapes: Mapping[str, tuple[int, int, int]]) -> Finding:
    shape = block_shapes.get(entry["kernel"])
    who, other = _party(entry["who"], shape), _party(entry["other"], shape)
    return Finding(
        kind=entry["kind"],
        message=entry["message"],
        kernel=entry["kernel"],
        count=entry["count"],
        who=who,
        other=other,
        element=_element(entry),
        space=entry["space"],
        address=entry["address"],
        object=entry["object"],
        object_offset=entry["object_offset"],
        bytes=entry["bytes"],
        host_place=_host_place(entry["host_module"], tuple(entry["host_offsets"])) if who is None else "",
    )


@functools.cache
def _host_place(module: str, offsets: tuple[int, ...]) -> str:
    """Returns ``file:line`` of the innermost call in the program's source, "" without debug information."""
    if not module or not offsets or not (tool := shutil.which("addr2line")):
        return ""
    command = [tool, "-f", "-i", "-e", module, *(f"{offset:#x}" for offset in offsets)]
    lines = subprocess.run(command, capture_output=True, text=True).stdout.splitlines()
    in_stub = False
    for function, place in zip(lines[::2], lines[1::2], strict=False):
        was_in_stub, in_stub = in_stub, "device_stub_" in function
        if in_stub or was_in_stub:
            continue  # the kernel's stub and its host function; the launch is their caller
        file, _, line = place.partition(" (")[0].rpartition(":")
        if line.isdigit() and not any(part in file for part in _TOOLKIT):
            return f"{file}:{line}"
    return ""


#: Headers that wrap calls to the runtime.
_TOOLKIT = ("cuda_runtime", "crt/", "device_functions")


def _party(entry: dict[str, Any] | None, shape: tuple[int, int, int] | None) -> Party | None:
    if entry is None or not (entry["opcode"] or entry["line"]):
        return None
    block, lanes = tuple(entry["block"]), tuple(entry["lanes"])
    return Party(**{**entry, "block": block, "lanes": lanes}, block_shape=shape)


def _element(entry: dict[str, Any]) -> str:
    if entry["object"]:
        name, offset = entry["object"], entry["object_offset"]
        return f"{name} + {offset:,} bytes" if offset >= 0 else f"{-offset:,} bytes before {name}"
    return "" if entry["address"] is None else f"{entry['space']} address {entry['address']:#x}"


def merged(findings: Iterable[Finding]) -> list[Finding]:
    """Merges findings of one kind at one place, adding their counts."""
    by_place: dict[tuple[Any, ...], Finding] = {}
    for finding in findings:
        place = (finding.kind, *(_place(party) for party in (finding.who, finding.other)), finding.host_place)
        key = place if finding.who else (*place, finding.object)
        known = by_place.get(key)
        by_place[key] = replace(known, count=known.count + finding.count) if known else finding
    return likeliest_first(list(by_place.values()))


def likeliest_first(findings: Sequence[Finding]) -> list[Finding]:
    """Sorts findings so that causes come before their consequences.

    A missing barrier also causes reads of uninitialised memory, which writing zeros would not fix. If warps
    race, so do lanes of one warp, which __syncwarp() would not fix. The failure that ended the run is first.
    """

    def places(kind: str) -> set[object]:
        return {place for one in findings if one.kind.startswith(kind) for place in _places(one)}

    def is_explained(finding: Finding) -> bool:
        return not explained_by.get(finding.kind, set()).isdisjoint(_places(finding))

    explained_by = {"race in a warp": places("race between"), "uninitialised read": places("race")}
    of_warps = {_places(finding) for finding in findings if finding.kind == "race between warps"}
    return sorted(
        (
            replace(one, between_warps_too=one.kind == "race in a warp" and _places(one) in of_warps)
            for one in findings
        ),
        key=lambda one: (one.kind != "failure", is_explained(one)),
    )


def _is_copy(party: Party | None) -> bool:
    return party is not None and party.opcode.startswith("cp.async")


def _places(finding: Finding) -> tuple[object, ...]:
    return tuple(_place(party) for party in (finding.who, finding.other) if party is not None)


def _place(party: Party | None) -> tuple[str, int, str, int, int] | None:
    if party is None:
        return None
    # Without line information, the PTX instruction is the place.
    ptx_line = 0 if party.line else party.ptx_line
    return (party.file, party.line, party.kernel_file, party.kernel_line, ptx_line)
