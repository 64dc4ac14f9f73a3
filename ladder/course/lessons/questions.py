"""The lessons' questions: a hint after the first miss, the reason, and how the answer is measured.

They are kept out of the notebooks so that readers do not see the answers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ladder.counts.banks import Explanation, Swizzle, explain, explore
from ladder.course.lessons.listing import line_of
from ladder.operations import AnyProblem, BackwardProblem, Problem, hstu_mask

if TYPE_CHECKING:
    from ladder.run.emulator import Launch

#: The problem that most questions are about: small, and no other page of the project counts on it.
PROBLEM = Problem(1, 3, 192, 200, 64)
#: One block of one head is enough to study one access.
ONE_BLOCK = Problem(1, 1, 128, 64, 64)
#: About a thousand keys for one block of v4 to v6, so that its loop has many iterations.
MANY_TILES = Problem(1, 1, 256, 960, 64)
#: A problem for the backward pass, on which a product of Q and K takes 1,024 mma.
GRADIENTS = BackwardProblem(1, 2, 128, 128, 64)
#: The addresses of an ``ldmatrix.x4`` of K in v2 at d = 64, row-major.
K_ADDRESS = "(lane / 16 * 8 + lane % 8) * 128 + lane / 8 % 2 * 16"


@dataclass(frozen=True)
class Question:
    """A question: ``hint`` helps after a first miss, ``measure`` gives the answer, ``because`` the reason."""

    hint: str
    because: str
    measure: Callable[[], float]


def product_of_v1(operand: str) -> Explanation:
    """Explains the load of ``q_row[x]`` or ``k_smem[y * d + x]`` (operand q or k) in v1's first product."""
    place = f"v1:{line_of('v1', 'part += q_row[x] * k_smem[y * d + x];')}"
    of_q = explain(place, ONE_BLOCK)
    if operand == "q":
        return of_q
    other = next(one for one in of_q.instructions if len(set(one.worst.addresses)) == 1)
    return explain(place, ONE_BLOCK, instruction=other.number)


def load_of_k() -> Explanation:
    """Explains an ``ldmatrix`` of K in v2 at d = 64."""
    return explain(f"v2:{line_of('v2', 'ldmatrix_x4(k_rmem')}", Problem(1, 1, 64, 64, 64))


def counted(stage: str, column: str, problem: AnyProblem = PROBLEM) -> int:
    """A stage's value in a column of :func:`ladder.compare`, on the emulator."""
    from ladder.run.evaluation import compare

    return int(compare(problem, [stage], backend="emulator")[column].iloc[0])


def executed(stage: str, opcode: str, problem: AnyProblem = MANY_TILES) -> int:
    """The executed instructions whose PTX begins with ``opcode``, of all warps and kernels."""
    from ladder.run.evaluation import evaluate

    total = 0
    for launch in evaluate(stage, problem, backend="emulator").execution.launches:
        rows = launch.instructions()
        total += int(rows[rows["ptx"].str.match(rf"(@\S+ )?{opcode}\b")]["executed"].sum())
    return total


def launch_of(stage: str, problem: Problem) -> Launch:
    """Launches a stage on a problem on the emulator."""
    from ladder.run.evaluation import evaluate

    return evaluate(stage, problem, backend="emulator").execution.launches[0]


def _reads_of_a_query_by_v1() -> int:
    from ladder.course.lessons.walk import measure_walk

    return sum(visit.row == 0 for visit in measure_walk("v1", Problem(1, 1, 256, 256, 64)))


def _places_that_differ() -> int:
    from ladder.course.lessons.fragments import measure_fragments

    fragments = measure_fragments()
    return int((fragments["ldmatrix"].lane[:, :8] != fragments["mma"].lane).sum())


def _conflicts_of_my_swizzle() -> int:
    return counted("my_swizzle", "conflicts") // counted("my_swizzle", "ldmatrix_instructions")


def _conflicts_of_a_tree() -> int:
    """Of 128 partial sums: thread t adds the word 2 * step * t + step to the word 2 * step * t."""
    conflicts = 0
    for step in (1, 2, 4, 8, 16, 32, 64):
        for first in range(0, 64 // step, 32):
            lanes = range(first, min(64 // step, first + 32))
            words: list[int | None] = [2 * step * lane for lane in lanes]
            words += [None] * (32 - len(lanes))
            for op, offset in (("ld.b32", 0), ("ld.b32", step), ("st.b32", 0)):
                addresses = [None if word is None else 4 * (word + offset) for word in words]
                conflicts += explore(op, addresses).service.conflicts
    return conflicts


def _sum_of_three() -> int:
    from numpy import float32

    return int(float32(1e8) + float32(1) - float32(1e8))


def _scores_of_rank_3() -> int:
    from ladder.call.distributed import SCHEDULES, Sizes

    sizes = Sizes(1, 2, 2, 32, (16,) * 4, 2, True)
    return sum(part.scores(sizes, 3) for part in SCHEDULES["ring"].parts(sizes, 3))


def _mib_per_step() -> float:
    from ladder.call.distributed import SCHEDULES, Sizes

    sizes = Sizes(1, 32, 8, 128, (16384,) * 2, 2, True)
    return SCHEDULES["zigzag"].bytes_sent(sizes, 0)[0] / 2**20


def _gib_of_s() -> float:
    return 4 * 16 * 4096 * 4096 * 4 / 2**30


_FIRST_STEPS = {
    "element_of_thread": Question(
        "Two whole blocks of 128 threads come before block 2.",
        "2 * 128 + 3. This line, block times threads plus thread, begins almost every kernel.",
        lambda: 2 * 128 + 3,
    ),
    "threads_without_element": Question(
        "How many blocks of 128 threads cover 1000 elements? How many threads are that?",
        "8 blocks, 1024 threads. A grid has whole blocks only, so the last 24 threads have nothing to do.",
        lambda: -(-1000 // 128) * 128 - 1000,
    ),
    "steps_of_a_sum": Question(
        "Each step halves the number of lanes that still matter: 32, 16, ...",
        "32 = 2^5. One addition per lane and step, where a single thread would need 31 in a row.",
        lambda: 5,
    ),
}

_ATTENTION = {
    "size_of_s": Question(
        "4 sequences, times 16 heads, times 4096 x 4096 scores, times 4 bytes.",
        "Q, K, V and O together are 0.25 GiB at d = 64 in fp32: the intermediate result is 16 times as "
        "large as all inputs and outputs.",
        _gib_of_s,
    ),
    "every_second_word": Question(
        "Which banks are used? How many different words does each of them have to give? The first costs "
        "nothing.",
        "Only the 16 even banks are used, each serves two words, so two wavefronts: one more than needed.",
        lambda: explore("ld", "lane * 8").service.conflicts,
    ),
    "column": Question(
        "32 i mod 32 is the bank.",
        "All 32 lanes meet in bank 0, each with a word of its own: 32 wavefronts for one load. It is the "
        "worst that can happen, and the most natural thing to write.",
        lambda: explore("ld", "lane * 32 * 4").service.conflicts,
    ),
}

_SCALAR = {
    "q_row": Question(
        "The bank is (64 i + x) mod 32. In how many different banks are the 32 words?",
        "64 i is a multiple of 32, so all lanes are in bank x mod 32, each with another word: 32 "
        "wavefronts where one could do.",
        lambda: product_of_v1("q").service.conflicts,
    ),
    "k_smem": Question(
        "All lanes read the same word.",
        "One word goes to all lanes in one wavefront: a broadcast.",
        lambda: product_of_v1("k").service.conflicts,
    ),
    "reads_of_a_query": Question(
        "Once for each tile of keys, of which each has 32.",
        "256 keys are 8 tiles of 32, and for each of them the block reads all queries. It also reads "
        "and writes o, l and m.",
        _reads_of_a_query_by_v1,
    ),
    "blocks_of_v1b": Question(
        "A block has a tile of 64 queries of one head.",
        "192 / 64 tiles of queries for each of 3 heads. v1 has 3 blocks, one per head, however long the "
        "sequence is.",
        lambda: math.prod(launch_of("v1b", PROBLEM).grid),
    ),
    "sectors_written": Question(
        "One store writes 32 floats, a column of the block's O: row i is 4 d bytes away from row i + 1. "
        "How many sectors of 32 bytes does it touch? The 576 numbers of lse are adjacent, 8 per sector.",
        "Every float of O is a sector of its own, 3 x 192 x 64 of them, since a lane's neighbours write "
        "other rows: eight times what is needed. And 576 / 8 for lse.",
        lambda: counted("v1b", "global_sectors_st"),
    ),
}

_TENSOR_CORES = {
    "ldmatrix_of_k": Question(
        "128 bytes is once around all 32 banks. In which banks do the eight rows of a pass start? Then "
        "four passes.",
        "All eight rows of a pass start in the same bank: 8 wavefronts for one, 7 conflicts per pass, "
        "four passes.",
        lambda: load_of_k().service.conflicts,
    ),
    "wavefronts_of_v3": Question(
        "The accesses are v2's, of the same widths, and none of them waits. What is left of v2's "
        "wavefronts then?",
        "It is what v2 needs, less what its conflicts add. Nothing else has changed.",
        lambda: counted("v3", "wavefronts_ld") + counted("v3", "wavefronts_st"),
    ),
    "wrong_swizzle": Question(
        "Rows 0 and 1 get the same number, and so do 2 and 3, and so on. Count one pass, then four.",
        "Two neighbouring rows meet: each pass takes 2 wavefronts, one of them a conflict, and there are "
        "four passes.",
        # Elements have two bytes, so M is one larger on byte addresses.
        lambda: explore("ldmatrix.x4", K_ADDRESS, swizzle=Swizzle(3, 4, 4)).service.conflicts,
    ),
}

_TILES = {
    "places_that_differ": Question(
        "Compare the left with the right panel of the picture, lane 5 for example.",
        "A lane holds exactly the elements of S that it needs of P. Converting two fp32 to a pair of 16 "
        "bits is all; nothing has to change lanes.",
        _places_that_differ,
    ),
    "stores_of_v4": Question(
        "Five tiles of 48 keys cover 200. A tile of K is 48 rows of 64 elements, two bytes each.",
        "3 heads, 5 tiles of K and 5 of V, 6,144 bytes each. Q, S, P and O are in registers from beginning "
        "to end.",
        lambda: counted("v4", "shared_store_instructions"),
    ),
    "barriers_of_v5": Question(
        "One barrier now does two things: the next tile has arrived, and the last one is no longer read.",
        "One per tile, and there are 20 tiles of 48 keys. v4 has two per tile: one before it overwrites "
        "the tile, one after.",
        lambda: executed("v5", r"(bar|barrier)\.sync") // 16,
    ),
    "shuffles_of_v5": Question(
        "A row is spread over a quad of 4 lanes: how many steps does a reduction over them take? A lane "
        "has parts of two rows, and there is a maximum and a sum.",
        "Two steps, two rows, and both for the maximum and for the sum: 2 x 2 x 2.",
        lambda: executed("v5", r"shfl\.sync") // (16 * 20),
    ),
}

_HOPPER = {
    "wgmma_a_tile": Question(
        "S = Q K^T is 64 x 128 and takes one instruction for each 16 of d. O += P V is 64 x 64 and takes "
        "one for each 16 of the keys.",
        "64 / 16 = 4 for S and 128 / 16 = 8 for O. With mma.sync four warps need 512 for the same tile.",
        lambda: counted("v7", "wgmma_instructions") // _WARPS_AND_TILES_OF_V7,
    ),
    "tma_loads": Question(
        "One block per head. It loads Q once per warpgroup, and K and V once per tile of 128 keys.",
        "3 blocks, each with 3 tiles of Q, 2 of K and 2 of V.",
        lambda: counted("v8", "tma_load_instructions"),
    ),
    "registers_of_consumers": Question(
        "The block has 4 x 128 x 128 registers. The producer's 128 threads keep 32 each.",
        "(4 x 128 - 32) / 3. That is what setmaxnreg gives to the consumers.",
        lambda: (4 * 128 - 32) // 3,
    ),
    "clocks_of_products": Question(
        "S = Q K^T is 64 x 80 and takes 128 multiply-adds per element. O += P V takes as many.",
        "4 x 64 x 80 x 128 operations, 4,096 per clock. The exponentials of the tile take 64 x 80 / 16 = 320 "
        "clocks, on another unit. One after the other that is 960 clocks; at the same time, 640.",
        lambda: 4 * 64 * 80 * 128 // 4096,
    ),
    "items_of_a_block": Question(
        "How many tiles of 192 queries cover 4,096? How many items are that for all heads of the batch?",
        "22 tiles per head, 64 heads: 1,408 items for 132 blocks. 88 blocks have 11 of them, the others "
        "10. In the last round a third of the SMs has nothing to do.",
        lambda: -(-(4 * 16 * -(-4096 // 192)) // 132),
    ),
    "time_shortest_first": Question(
        "The first SM takes 1, the second one 2. The first is done at time 1 and takes 3.",
        "One SM has 1, 3, 5 and the other 2, 4, 6. With the longest first it is 11; 10.5 would be perfect.",
        lambda: _time_until_done((1, 2, 3, 4, 5, 6), 2),
    ),
}


def _time_until_done(lengths: Sequence[int], workers: int) -> int:
    """When the last worker is done, if whoever is free takes the next length."""
    done = [0] * workers
    for length in lengths:
        done[done.index(min(done))] += length
    return max(done)


#: Three heads, each with three warpgroups of four warps and with two tiles of 128 keys.
_WARPS_AND_TILES_OF_V7 = 3 * 3 * 4 * 2

_LADDER = {
    "mma_of_v3": Question(
        "4 x 3 x 192 x 240 x 64 operations, 4096 per instruction: five tiles of 48 keys cover 200.",
        "It is what the mathematics needs for whole tiles. The rungs differ in everything else.",
        lambda: counted("v3", "mma_instructions"),
    ),
    "conflicts_of_my_swizzle": Question(
        "A pass reads one segment from each of eight rows. How many of them are in the same banks?",
        "Of eight consecutive rows, four have the same number modulo 2: 4 wavefronts per pass, 3 of them "
        "conflicts, in each of four passes.",
        _conflicts_of_my_swizzle,
    ),
}

_OTHER_LADDERS = {
    "mma_of_b1": Question(
        "dK and dV take four products: S and dP again, and one product for each gradient. dQ takes three.",
        "S and dP are computed twice, so there are 7 products of 1,024.",
        lambda: counted("b1", "mma_instructions", GRADIENTS),
    ),
    "registers_of_gradients": Question(
        "32 x 128 numbers for each of the two, spread over the 32 lanes of a warp.",
        "Each of the two takes 32 x 128 / 32 = 128 registers. S, dP and addresses also need some.",
        lambda: 2 * 32 * 128 // 32,
    ),
    "sum_of_three": Question(
        "10^8 needs 27 bits. What is the next number above it that fp32 has?",
        "Numbers of that size are 8 apart, so 10^8 + 1 is rounded to 10^8. In the other order, "
        "1 + (10^8 - 10^8), it is 1.",
        _sum_of_three,
    ),
    "steps_until_done": Question(
        "Block 0 is done at time 8. Block 1 follows one step behind.",
        "8 steps, and 7 of waiting before the first one.",
        lambda: 8 + 7,
    ),
    "wgmma_a_step": Question(
        "S and dP sum over d = 64, dV and dK over 128 queries, dQ over 128 keys. Each has 64 rows.",
        "4 for S, 4 for dP, 8 for dV, 8 for dK and 8 for dQ.",
        lambda: counted("b4", "wgmma_instructions", BackwardProblem(1, 1, 128, 128, 64)) // (2 * 4),
    ),
    "blocks_without_queries": Question(
        "How many blocks of 128 queries has the longest sequence? Every sequence gets as many.",
        "4 blocks for each of 3 sequences. They need 4, 1 and 1.",
        lambda: 3 * 4 - sum(-(-length // 128) for length in (512, 100, 30)),
    ),
    "operations_per_byte": Question(
        "4 x 64 operations, and an element of the bias has two bytes.",
        "So a kernel with a bias per head cannot do more than 128 operations per byte that it reads.",
        lambda: 4 * 64 // 2,
    ),
    "tiles_of_the_busiest": Question(
        "4,096 keys are 128 tiles of 32. How many warps share them?",
        "128 tiles, and four warps. If the warps split the queries, one of them has all 128.",
        lambda: 4096 // 32 // 4,
    ),
    "consumers_that_multiply": Question(
        "Query i sees the keys 0 to i. Which consumers have a query from 256 on?",
        "The queries up to 255 see none of these keys. For both of the others the diagonal cuts the tile.",
        lambda: sum(bool(hstu_mask(384, 384)[row : row + 64, 256:384].any()) for row in (192, 256, 320)),
    ),
    "tiles_with_targets": Question(
        "History and targets are 8 tiles each. Which of them does a tile of targets see?",
        "36 tiles of the history, 64 of targets that see it, and 8 of targets that see their group.",
        lambda: sum(
            bool(tile.any())
            for rows in hstu_mask(2048, 2048, targets=1024, target_group_size=16).split(128, 0)
            for tile in rows.split(128, 1)
        ),
    ),
    "keys_of_the_last_target": Question(
        "All of the history, including the contexts, and of the targets only itself.",
        "12 - 3 tokens of the history, and itself: targets do not see each other.",
        lambda: int(hstu_mask(12, 12, contexts=2, targets=3)[11].sum()),
    ),
}

_SEVERAL_GPUS = {
    "keys_of_rank_1": Question(
        "In step 1 it has those of rank 0. Whose keys did rank 0 have in that step? They come next.",
        "1 - 2, modulo 4: in step s rank r has the keys of rank r - s. They came from rank 3 through 0.",
        lambda: (1 - 2) % 4,
    ),
    "scores_of_rank_3": Question(
        "All 16 x 16 pairs with the keys of each other rank, and of its own keys those up to the query.",
        "3 x 256 + 16 x 17 / 2. Rank 0 has only the 136 of its own keys.",
        _scores_of_rank_3,
    ),
    "mib_per_step": Question(
        "K and V of its 8 key heads; queries stay where they are.",
        "2 x 8 x 16,384 x 128 numbers of two bytes. It would be four times as much without GQA.",
        _mib_per_step,
    ),
}

_DECODING = {
    "blocks_that_read": Question(
        "A block has the query of one head.",
        "One block per head: 100 multiprocessors are idle, and 32 cannot use all of the bandwidth.",
        lambda: 32,
    ),
    "times_as_many_sectors": Question(
        "How many blocks of d1 read the same keys?",
        "Each of the 8 query heads of a group reads the keys of its key head.",
        lambda: 16 // 2,
    ),
}

_VARIANTS = {
    "items_of_sequences": Question(
        "How many tiles of 192 rows has each sequence?",
        "200 queries are two tiles, 65 one, and no queries none. Padded, there are 3 x 2.",
        lambda: sum(-(-queries // 192) for queries in (200, 0, 65)),
    ),
    "keys_of_64_rows": Question(
        "The first row sees 128 keys, up to its own position. How much further does the last one see?",
        "128 keys of the first row, and one more for each of the 63 rows after it.",
        lambda: 127 + 64,
    ),
    "percent_of_each_key": Question(
        "Every weight is exp(0) / l, and l has a term for each key and one for the sink.",
        "1 / (3 + 1). The sink takes a quarter of the row, and its value is 0.",
        lambda: 100 // (3 + 1),
    ),
    "special_function_cycles": Question(
        "64 x 80 logits, each with exp2 and tanh, 16 per cycle.",
        "2 x 64 x 80 / 16. The products of the tile take 4 x 64 x 80 x 128 / 4,096 cycles, as many.",
        lambda: 2 * 64 * 80 // 16,
    ),
}

_LANGUAGES = {
    "conflicts_of_a_tree": Question(
        "In step 1 each of the two warps has 1 per access. In steps 2 to 16 four lanes meet in each bank "
        "that is used, so each access has 3. In step 32 two lanes are left.",
        "Three accesses per warp and step: 3 x (2 x 1 + 4 x 3 + 1). The last step has one lane, and no "
        "conflict.",
        _conflicts_of_a_tree,
    ),
}

QUESTIONS: dict[str, Question] = {
    **_FIRST_STEPS,
    **_ATTENTION,
    **_SCALAR,
    **_TENSOR_CORES,
    **_TILES,
    **_HOPPER,
    **_LADDER,
    **_OTHER_LADDERS,
    **_SEVERAL_GPUS,
    **_VARIANTS,
    **_DECODING,
    **_LANGUAGES,
}
