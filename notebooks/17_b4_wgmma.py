# %% [markdown]
# # 17 b4_wgmma to b6_same_bits: gradients on Hopper
#
# Thirteen rungs take the backward pass where lessons 07 to 10 took the forward pass: `wgmma`, TMA, roles, overlap. The
# ideas are known. Two things are new: some of the five products need the results of others, and one gradient is
# summed over blocks.

# %% tags=["colab", "remove-cell"] jupyter={"source_hidden": true}
# Installs the project where it is not there yet, as on Colab: its wheel, or else its sources, which takes minutes.
import importlib.util
import subprocess
import sys

if importlib.util.find_spec("ladder") is None:
    sources = "flash-ladder @ git+https://github.com/flash-ladder/flash-ladder"
    install = [sys.executable, "-m", "pip", "install", "-q"]
    if subprocess.run([*install, "--only-binary=flash-ladder", "flash-ladder"]).returncode != 0:
        subprocess.run([*install, sources], check=True)

# %%
# %load_ext ladder.lessons
import ladder
from ladder import lessons
from ladder.lessons import questions
from ladder.operations import BackwardProblem

# %% [markdown]
# ## The steps
#
# In b2b each fragment passes through `ldmatrix` into registers, and shared memory limits the speed (lesson 15). These
# are TFLOP/s on an H200 at B = 4, H = 16, N = M = 4096, bf16. From b4_wgmma to b4g_wide_adds, each row adds one idea:

# %%
rungs = ["b4", "b4b", "b4d", "b4e", "b4g"]
lessons.measured(["b2b", *rungs, "torch flash", "torch cuDNN"], "attention_backward")

# %% [markdown]
# ## b4: five products of a warpgroup
#
# b2b loads every operand as fragments, and two warps share them. `wgmma` reads operands from shared memory, so four
# warps share what is read, and the pairs are not needed. Each of two warpgroups has 64 keys, and computes both dV and
# dK of them. All products except dQ are transposed, keys by queries:
#
# | product | operand A | operand B |
# |---|---|---|
# | $S^T = K Q^T$ | K, shared memory | Q, shared memory |
# | $dP^T = V dO^T$ | V, shared memory | dO, shared memory |
# | $dV \mathrel{+}= P^T dO$ | $P^T$, registers | dO, shared memory |
# | $dK \mathrel{+}= dS^T Q$ | $dS^T$, registers | Q, shared memory |
# | $dQ = dS\, K$ | $dS^T$, shared memory, read transposed | K, shared memory |
#
# `wgmma` reads an operand in shared memory by rows or transposed. So one copy of Q, dO and K serves both uses. b4
# gains 38 to 45% over b2b.

# %%
lessons.source("b4", "// S^T = K Q^T, P^T = exp(scale S^T - lse)", "warpgroup::mma_wait(dk);")

# %% [markdown]
# ### Predict
#
# A step at $d = 64$ is a tile of 128 queries against 128 keys. A `wgmma` has 64 rows and a depth of 16. How many does
# *one* warpgroup issue per step, for S, dP, dV, dK and its half of dQ?

# %%
wgmma_a_step = None
lessons.predict("wgmma_a_step", wgmma_a_step)

# %% [markdown]
# ## b4b: TMA
#
# b4b replaces `cp.async` and the block barrier by TMA loads and mbarriers, as v8 does. lse and delta are loaded with
# their tiles, and their bytes count for the same mbarrier. One block barrier remains, for dS, which all warps store and
# read. b4b gains 7 to 9%.

# %%
table = ladder.compare(BackwardProblem(1, 1, 256, 256, 64), rungs[:3], backend="emulator").set_index("stage")
table[
    [
        "wgmma_instructions",
        "tma_load_instructions",
        "tma_store_instructions",
        "global_sectors_ld",
        "global_sectors_st",
    ]
].T

# %% [markdown]
# ## b4d: roles, and TMA stores
#
# A producer warp issues all loads. Two consumer warpgroups compute, with 240 registers per thread: dV, dK, $S^T$ and
# $dP^T$ fit without spilling. They store dK and dV by TMA, as v11b stores O: into the shared memory of K and V first.
# In an earlier run, the stores without the roles gained 2%. With the roles, b4d *loses* 5% at $d = 64$. The producer
# costs a warpgroup, and a consumer still waits for each product at once. But the next rung needs the roles.
#
# ## b4e: issue early
#
# The tensor cores are idle while a consumer computes exponentials, unless the other consumer has products in flight. So
# products are issued before their results are needed, and other work fills the time. With j the step:
#
# | issued | a consumer meanwhile |
# |---|---|
# | S of j | waits for the other consumer's dS of j - 1 |
# | dQ and dK of j - 1 | computes the exponentials of j |
# | dP of j | waits |
# | dV of j | exchanges dS of j through shared memory |
#
# This gains 2% over b4d at $d = 64$, and 7 to 8% at $d = 128$.
#
# So the loop begins and ends in the middle of a step. In b4d both consumers meet at a barrier before dQ. Here a warp
# *arrives* at an mbarrier when its dS is stored, and goes on. It waits there only after it has issued its next S:

# %%
lessons.source("b4e", "// S^T of this step first: dQ and dK of the previous step", "warpgroup::mma_wait(dk);")

# %%
# %exercise b4_tell

# %% [markdown]
# ## b4g: halves, and wide additions
#
# A consumer still waits for dP, and its dV is issued only after all of dS. At $d = 64$ a tile has 128 queries. b4g
# computes P and dS in two halves of 64: while the exponentials of one half are computed, the products of the other run.
# In an earlier run, the halves gained 7 to 10% at $d = 64$, which is more than the roles cost. At $d = 128$ a tile has
# 64 queries, which are one half, so there is nothing to overlap. The halves lost 2% at $d = 128$.

# %%
lessons.source("b4g", "__device__ void compute_ds() {", "issue_dv(A::queries - 64);")

# %% [markdown]
# The order in the source is not the order of the machine code. ptxas moves exponentials past the waits under which
# they should run, unless an issued product needs them. Here the dV of the first half needs them.
#
# ### Wide additions
#
# A `red.global.add.f32` of a warp adds 128 bytes. On sm_90 another form of it adds four neighbours per lane: 512
# bytes. As in b2, only one later kernel reads the sums, so they may be stored in any order. So the whole change is
# one template argument:

# %%
lessons.source("b4g", "using DqSums", "using DqSums")

# %%
for rung in ("b4e_overlap", "b4g_wide_adds"):
    print(f"{rung}: {questions.executed(rung, 'red', questions.GRADIENTS):,} additions to dQ")

# %% [markdown]
# The wide additions gained 3% in that run. b4g, the last of the five rungs from b4 on, gains 64 to 69% over b2b.
#
# ## b5: dV under dS
#
# At $d = 128$ a step of b4g takes 4,130 clocks on an H100, and the tensor cores need 2,560 of them. While a consumer
# computes dS, for 370 to 580 clocks, none of its products is in flight: dV is issued after dS, although it needs only
# P. b5 issues dV right after dP, and waits for dP only. P is rounded to 16 bits first, so dP takes the registers of S.
# dS is computed from a second copy of P, because no other instruction may access registers that a product in flight
# reads:

# %%
lessons.source("b5", "__device__ void compute_ds() {", "store(smem.ds[turn.buffer], ds_16, key);")

# %% [markdown]
# ## b5b: store warps
#
# A warp's eight `red` take 510 to 940 clocks of b4g's step, and dP is issued after them. In b5b a consumer stores its
# part of dQ to shared memory and issues dP. Two warps of the producer's warpgroup, one per consumer, issue the
# additions by TMA: one `cp.reduce.async.bulk` adds 16 KB. The store warp then waits until TMA has read the buffer. The
# consumer continues meanwhile, and needs the buffer again only in the next step:

# %%
lessons.source("b5b", "smem.dq_full[consumer].wait(step % 2);", "smem.dq_empty[consumer].arrive();")

# %%
table = ladder.compare(
    BackwardProblem(1, 1, 256, 256, 128),
    ["b4g", "b5", "b5b"],
    backend="emulator",
).set_index("stage")
table[["wgmma_instructions", "wavefronts_gmma", "wavefronts_st", "tma_store_instructions", "conflicts"]].T

# %% [markdown]
# Q has three buffers in both rungs. dK of a step is complete only at the end of the next step, which then releases Q.
# With two buffers, the load into this buffer has only the time of one dS. In b5 a third buffer changes little. In b5b
# it decides: with two, b5b is slower than b4g.
#
# ## b5c, b5d: dQ transposed, 80 queries
#
# Shared memory limits b5b. A step takes 3,200 wavefronts, and the tensor cores need 2,560 clocks for it. Of these
# wavefronts, 768 read K and V, for S, dP and dQ, and they are the same in every step. b5d has 80 queries per step
# instead of 64, so K and V are read less often. But a product of `wgmma` has 64 rows, and 80 is not a multiple of 64.
# So b5c first transposes dQ: the 64 rows are a half of d, and the queries are columns, whose number may be any multiple
# of 8.

# %%
lessons.source("b5d", "__device__ void issue_dq() {", "smem.ds[ds_turn.buffer]);")

# %%
rungs = ["b5b", "b5d"]
table = ladder.compare(BackwardProblem(1, 1, 320, 128, 128), rungs, backend="emulator").set_index("stage")
for rung in table.index:
    print(f"{rung}: {table.loc[rung, 'wavefronts_gmma'] / 320:.1f} wavefronts of operands per query")

# %% [markdown]
# A tile of S and a tile of dQ now take 40 registers per thread each. So dK is issued first, under the exponentials of
# 48 queries. It frees the registers of dS, and dQ is issued under the exponentials of the other 32.
#
# ## b5e: loads ahead
#
# A warp subtracts lse from S after the wait for S. If it also loads lse there, it waits twice. b5e loads lse before it
# issues S, and delta before dP. The counts stay the same.

# %%
lessons.source("b5e", "__device__ void issue_s() {", "smem.q[q_turn.buffer]);")

# %% [markdown]
# On an H100, b5 gains 5% over b4g, b5b 6% over b5, b5d 5% over b5b, and b5e 2% over b5d. b5 to b5d support only $d =
# 128$.
#
# b5e also supports $d = 64$. At $d = 64$, dV and dK take half the registers, so a tile has 128 queries. dQ^T has only
# 64 rows, the rows of one `wgmma`. So each consumer has half of its columns:

# %%
lessons.source("b5e", "__device__ void issue_dq() {", "A::dq_col(consumer)));")

# %% [markdown]
# b5e is 1.09 to 1.11 times as fast as b4g at $d = 64$. The time at which dQ is issued matters. b5e issues it after
# the exponentials of 32 of the 128 queries, so it runs under the exponentials of the other 96. With dQ issued after
# the exponentials of 64 queries, it was only 1.03 times as fast in an earlier run. On an H100, b5e has 0.95 to
# 1.07 times FlashAttention-3's speed at $d = 64$, and 0.98 to 1.15 times at $d = 128$: [its
# README](../stages/gradients/b5e_loads_ahead/README.md#what-it-buys) has the figures, also beside FlashAttention-4.

# %%
# %exercise b5_share_columns

# %% [markdown]
# ## b5f: persistent blocks
#
# In b5e a block computes one key tile. Between two blocks of an SM the tensor cores are idle: the first block stores dK
# and dV, and the second block initialises its barriers and loads K, V, Q and dO. b5f has as many blocks as SMs, and
# their producers take key tiles from a counter, as in v12b (lesson 12). While the consumers store dK and dV, the
# producer loads the first Q and dO of the next key tile, and the store warps make the last additions to dQ:

# %%
lessons.source(
    "b5f",
    "for (; number < items.count; number = gridDim.x + atomicInc(counter, items.count - 1)) {",
    "smem.number = number;",
)

# %% [markdown]
# By itself this gains nothing: b5f has 0.97 to 1.05 times b5e's speed. But now a block need not end with its key
# tile, and b5g needs that.
#
# ## b5g: sums of dQ in the L2 cache
#
# The sums of dQ are in fp32. For 16 x 16 heads of 1,024 queries at $d = 128$ they take 130 MB, and the L2 cache of an
# H100 has 50 MB. Up to b5f a memset writes them to memory, additions read and write them, and a last kernel reads them.
# But blocks work on a few heads at a time. b5g has sums for a few groups of four heads, in a ring of slots. Before an
# item of group g begins, it rounds its share of the sums of group g - lag and sets them to 0. A later group uses this
# slot again:

# %%
lessons.source("b5g", "inline SumRing ring_of(", "return ring;")

# %% [markdown]
# A group has two counters. One counts the items whose additions are complete: the producer waits for all of them before
# it announces an item that rounds these sums. The other one counts the items that have rounded their shares: a store
# warp waits for all of them before its first addition to the next sums of the slot. The zeros are stores of the generic
# proxy, and TMA's additions belong to the async proxy, so the store warp then executes a proxy fence:

# %%
lessons.source(
    "b5g", "const int group = ring.group_of(number);", "tma::fence_additions(); // after the zeros"
)

# %% [markdown]
# An item waits only for items with lower numbers. Blocks that run have taken these, because a block takes its first
# number from the counter, too. So there is no deadlock.
#
# An item rounds two tiles at a time: in the registers of dV and dK, and in the shared memory of dS. Neither is in use
# before the item's first step.

# %%
# %exercise b5_ring_of_sums

# %% [markdown]
# On an H100, b5g has 1.02 to 1.11 times b5e's speed at N = 1,024, and 0.95 to 1.05 times at N = 4,096 and 16,384. The ring
# has at most 32 MB, so there is none at N = 16,384, and at N = 4,096 only with $d = 64$. b5g has 0.97 to 1.20 times the
# speed of the fastest of FlashAttention-4, FlashAttention-3 and cuDNN:
# [its README](../stages/gradients/b5g_sums_in_l2/README.md#what-it-buys) has the figures, and says what bounds it.
#
# ## b6: the same bits
#
# b5e's key tiles add to dQ in the order in which they happen to run. In b6 they add in a fixed order, as in b3 (lesson
# 16): a counter per tile of dQ and consumer holds the number of the key tile that adds next. A store warp waits until
# it is the number of its own key tile. Meanwhile the consumer computes the step.
#
# One thing is new. `cp.reduce.async.bulk` only issues the addition. b5e then waits until TMA has read shared memory,
# but TMA may add later. If the turn were passed then, the next key tile could add first. So b6 waits for the
# completion:

# %%
lessons.source(
    "b6",
    "/// Waits until key tile `key_tile` may add:",
    "ladder::ptx::store_release(next + part, key_tile + 1);",
)

# %%
# %exercise b6_pass_the_turn

# %% [markdown]
# **Proxies.** TMA's accesses belong to the async proxy. Between blocks PTX orders them only through proxy fences. The
# completion of an addition implies one. The thread that acquires the turn executes another one before it issues its own
# addition.
#
# All counts are b5e's, except the accesses to the counters. Per step each store warp stores a counter once, and loads
# it at least once.

# %%
rungs = ["b5e", "b6"]
table = ladder.compare(BackwardProblem(1, 1, 320, 384, 128), rungs, backend="emulator").set_index("stage")
table[["wgmma_instructions", "wavefronts_gmma", "tma_store_instructions", "global_sectors_st", "conflicts"]].T

# %% [markdown]
# ## What is left
#
# Shared memory limits b4g. Per step at $d = 64$ it is busy for 2,816 clocks, and the tensor cores for 2,560 ([b4's
# README](../stages/gradients/b4_wgmma/README.md) counts them). Persistent blocks with a fixed order of work items were tried with
# b4g. They lose under a causal mask: a grid is better than a fixed order, because its blocks start on whichever SM is
# free. b5f's counter has the same effect: a block takes the next item when it is free.
#
# In b5g, rounding the sums costs much of what the ring saves. A first form of it, in which rounding was left out, gained
# 12% at N = 1,024.

# %% [markdown]
# **Practise:** the exercises begin with `b4_`, `b5_` and `b6_`. **Read on:** the READMEs of
# [b4](../stages/gradients/b4_wgmma/README.md), [b4e](../stages/gradients/b4e_overlap/README.md), [b4g](../stages/gradients/b4g_wide_adds/README.md),
# [b5b](../stages/gradients/b5b_store_warps/README.md), [b5e](../stages/gradients/b5e_loads_ahead/README.md) and
# [b5g](../stages/gradients/b5g_sums_in_l2/README.md), and of [b6](../stages/gradients/b6_same_bits/README.md).
# **Next:** [18, attention without a softmax](18_h1_silu.ipynb). Run this lesson [on
# Colab](https://colab.research.google.com/github/flash-ladder/flash-ladder/blob/main/notebooks/17_b4_wgmma.ipynb).
