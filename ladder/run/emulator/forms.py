"""What the emulator says of faults and findings, and its translation.

The emulator, in C++, writes these messages with the numbers filled in (most are in
emulator/sanitizer/reports.cpp). A message that is not here is shown in English.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache

from ladder.common.wording import language, said
from ladder.run.emulator.findings import MORE_ADVICE

#: Messages with fields: numbers, names, or other messages. Of two that fit a text the first is taken.
FORMS = (
    "{wait} ({file}.cu:{line})",
    "{access}, after {call} returned {error} and the program went on",
    "accesses {size} outside {name}, which has {count} bytes",
    "accesses {size} outside the block's {count} bytes",
    "accesses {size} outside the thread's {count} bytes",
    "accesses {size} of another thread, or of a thread that has exited",
    "accesses {size} outside all allocations: {where}",
    "accesses {size} at an address that is not a multiple of {count}",
    "writes {size} that is read-only",
    "reads {size} through the read-only path after this launch wrote them: the load may return what was "
    "there before",
    "reads {size} that were never written",
    "reads {size} while a copy to them is still in flight",
    "writes {size} while a copy to them is still in flight",
    "reads {size} that an asynchronous instruction may still be reading",
    "writes {size} that an asynchronous instruction may still be reading",
    "reads {size} through the async proxy that a thread wrote, with no fence.proxy.async in between",
    "writes {size} through the async proxy that a thread wrote, with no fence.proxy.async in between",
    "{count} lanes of the warp each issue this reduction, which is applied once per lane",
    "{count} lanes of the warp each issue this copy, and the mbarrier receives the bytes of all of them",
    "{count} lanes of the warp each issue this store of the same bytes to the same address",
    "reads {size} that another warp wrote, with no barrier in between",
    "writes {size} that another warp read, with no barrier in between",
    "writes {size} that another warp wrote, with no barrier in between",
    "reads {size} that another lane of the warp wrote, with no __syncwarp() in between",
    "writes {size} that another lane of the warp read, with no __syncwarp() in between",
    "writes {size} that another lane of the warp wrote, with no __syncwarp() in between",
    "writes {size} that another thread wrote, and nothing orders the two; here the write does not change the "
    "value, with other data it may",
    "writes {size} that another thread read, and nothing orders the two; here the write does not change the "
    "value, with other data it may",
    "reads {size} that another thread wrote, and nothing orders the two; here the write does not change the "
    "value, with other data it may",
    "writes a constant to {size} where another thread wrote the same constant, and nothing orders the two",
    "adds to {size} that another thread added to, and nothing orders the two",
    "reads {size} that another block wrote in the same launch, and nothing orders the two",
    "writes {size} that another block read in the same launch, and nothing orders the two",
    "writes {size} that another block wrote in the same launch, and nothing orders the two",
    "reads {size} that another block of the cluster wrote, and nothing orders the two",
    "writes {size} that another block of the cluster read, and nothing orders the two",
    "writes {size} that another block of the cluster wrote, and nothing orders the two",
    "reads the value of lane {lane}, which the member mask names but which does not execute the instruction",
    "reads the value of lane {lane}, which the member mask does not name",
    "only {some} of the warp's {count} lanes reach the barrier: either all lanes of a warp execute it, "
    "or none",
    "names {lanes} in its member mask, which skip it and continue: every lane in the mask must execute it",
    "{count} bytes of shared memory",
    "{count} bytes of global memory",
    "{count} bytes of local memory",
    "a null pointer plus {count} bytes",
    "at byte {offset} of the {count} of {name}",
    "{name} + {count} bytes",
    "{count} bytes before {name}",
    "{count} bytes past the end of {name}",
    "warp {which}: {waits}",
    "warps {which}: {waits}",
    "{lanes} at barrier {number}",
    "{lanes} at the mbarrier at byte {offset} of shared memory for the phase of parity {parity}, which "
    "{state}",
    "{lanes} at {instruction} for {others}",
    "{lanes} in a loop",
    "{lanes} behind the branch",
    "is in phase {phase} and waits for {n} of {count} arrivals",
    "is in phase {phase} and waits for {n} of {count} arrivals and {bytes} bytes",
    "a warp has executed {count} instructions without finishing. Is a loop endless, or does it wait for "
    "a kernel of another stream? (In Python, kernels run one after the other; "
    "LADDER_WARP_INSTRUCTION_LIMIT raises the limit.)",
    "it ran for more than {seconds} seconds",
    "it used more than {size} GiB of memory",
    "it printed more than {size} MiB",
    "{one}; {other}",
    "lanes {which}",
    "lane {which}",
)
#: Messages without fields.
SENTENCES = (
    "branches on a value loaded from memory that was never written",
    "uses an address loaded from memory that was never written",
    "stores a value loaded from memory that was never written",
    "uses an mbarrier whose initialisation the async proxy may not see yet, with no fence.mbarrier_init or "
    "fence.proxy.async in between",
    "reads a tile that TMA wrote with a swizzle other than the matrix descriptor's",
    "uses an mbarrier that another block initialised, and nothing makes the initialisation visible",
    "uses a register of a wgmma that is still in flight, with no wgmma.wait_group in between",
    "uses a register that the warp accessed earlier, with no wgmma.fence in between",
    "is issued before any wgmma.fence",
    "stores data over a live mbarrier: mbarrier.inval must come first",
    "initialises an mbarrier that is already initialised: mbarrier.inval must come first",
    "completes a phase of an mbarrier before any thread has observed the end of the previous phase: a "
    "wait by parity cannot tell them apart",
    "arrives at an mbarrier without waiting for the end of the previous phase: the arrival may count "
    "for that phase",
    "is executed by a lane that its member mask does not name",
    "is still in flight when the phase of its mbarrier completes: the expected bytes of that phase do not "
    "include this copy",
    "threads of the block wait for each other at two different barriers",
    "the block exits while this store may still be reading its shared memory",
    "the block exits while this copy to its shared memory is still in flight: no thread has waited for that "
    "phase of the mbarrier",
    "it is host memory, which a GPU cannot access",
    "it is far from every allocation",
    "a null pointer",
    "a barrier is not reached by all threads that it waits for",
    "no warp of the block can proceed",
    "all remaining blocks of the grid wait, and nothing that they wait for has changed for a long time",
    "was never initialised",
    "its process has ended",
)
#: A field of a message.
_FIELD = re.compile(r"\{(\w+)\}")


def retold(
    text: str,
    forms: tuple[str, ...] = (*MORE_ADVICE, *FORMS),
    translate: Callable[[str], str] | None = None,
) -> str:
    """What the emulator says, which arrives in English with its numbers filled in, in the reader's language.

    Parts that are messages themselves are translated, too. A text of an unknown form stays in English.
    ``forms`` are those of another writer in English, by default the emulator's. ``translate`` is for another
    language than the reader's.
    """
    if translate is None:
        if not language():
            return text
        translate = said
    whole = translate(text)
    if whole != text:
        return whole
    for form, message in _patterns(forms):
        if found := form.fullmatch(text):
            parts = {name: retold(part, forms, translate) for name, part in found.groupdict().items()}
            return translate(message).format(**parts)
    return text


@cache
def _patterns(forms: tuple[str, ...]) -> list[tuple[re.Pattern[str], str]]:
    """The messages that have fields, with the patterns of their texts."""
    return [(re.compile(_pattern(form)), form) for form in forms if _FIELD.search(form)]


def _pattern(form: str) -> str:
    literals = _FIELD.split(form)
    return "".join(
        f"(?P<{part}>.+?)" if number % 2 else re.escape(part) for number, part in enumerate(literals)
    )
