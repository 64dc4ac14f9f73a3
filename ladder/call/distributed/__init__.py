"""Context parallelism: attention over a sequence whose rows are spread over the ranks of a process group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ladder.doors import door

if TYPE_CHECKING:
    from ladder.call.distributed.calls import SCHEDULES, attention
    from ladder.call.distributed.counting import CountingGroup, counting_group
    from ladder.call.distributed.layout import Part, Sizes, even_lengths, shard, shard_lengths, unshard
    from ladder.call.distributed.merging import merge
    from ladder.call.distributed.timeline import Span, recording

__getattr__ = door(__name__)
