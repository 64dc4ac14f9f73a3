# %% [markdown]
# # 23 Several GPUs: merging by lse, the ring, the zigzag
#
# A sequence of a million tokens does not fit on one GPU, and its attention takes too long. *Context parallelism* cuts
# the sequence: each of R GPUs, the *ranks*, holds N / R rows of Q, K and V. Every query needs all keys, so keys must
# travel. One number makes this possible, and each rung already returns it: lse.
#
# This lesson plays all ranks in one process. At its end you run four of them.

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
from functools import partial

import torch

import ladder
from ladder import lessons
from ladder.call import attention_backward
from ladder.distributed import SCHEDULES, Sizes, merge, shard, shard_lengths, unshard
from ladder.show.plots import BLUE, ORANGE, new_figure

RANKS, ROWS = 4, 64
torch.manual_seed(0)
q, k, v, d_o = (torch.randn(1, 2, ROWS, 32).half() for _ in range(4))
attend = partial(ladder.attention, stage="v3")

# %% [markdown]
# ## 1. Two halves of the keys
#
# Let one GPU compute with the first half of the keys, and another one with the second half. Each divides by the sum
# of its own weights. So neither the sum nor the mean of the two results is right. What is missing is the total weight
# of each half. It is $e^{\mathrm{lse}}$: the sum of the half's weights, before the division. With
# $\sigma(x) = 1 / (1 + e^{-x})$:
#
# $$ w = \frac{e^{\mathrm{lse}_2}}{e^{\mathrm{lse}_1} + e^{\mathrm{lse}_2}} = \sigma(\mathrm{lse}_2 - \mathrm{lse}_1), \qquad
# o = o_1 + w\,(o_2 - o_1), \qquad \mathrm{lse} = \log(e^{\mathrm{lse}_1} + e^{\mathrm{lse}_2}) $$

# %%
whole_o, whole_lse = attend(q, k, v)
half = ROWS // 2
o_1, lse_1 = attend(q, k[:, :, :half], v[:, :, :half])
o_2, lse_2 = attend(q, k[:, :, half:], v[:, :, half:])

w = torch.sigmoid(lse_2 - lse_1)[..., None]
by_lse = o_1 + w * (o_2 - o_1)
for name, found in {"mean": (o_1 + o_2) / 2, "merged by lse": by_lse}.items():
    print(f"{name:14} {(found - whole_o).abs().max():.4f} off")

# %% [markdown]
# It is the online softmax again, with a GPU in place of a tile. And as there, a query may see no key of a part: then
# its lse is $-\infty$ and its o is 0. `ladder.distributed.merge` does this in fp32 and in place. **Practise:**
# `r1_merge`.
#
# ## 2. The ring
#
# Gathering all keys on all GPUs (`r1_all_gather`) works as long as they fit. A *ring* needs room for two shards: in
# each step a rank computes with the keys that it has, and meanwhile sends them to the next rank and receives the keys
# of the previous rank.
#
# Four ranks, numbered from 0. In step 0 each computes with its own keys. Whose keys has rank 1 in step 2?

# %%
keys_of_rank_1 = None
lessons.predict("keys_of_rank_1", keys_of_rank_1)


# %%
def steps_picture(schedule: str, rows: int = ROWS) -> object:
    """A cell for each rank and step: whose keys, and how many scores of a causal mask are computed."""
    sizes = Sizes(1, 2, 2, 32, shard_lengths(rows, RANKS, schedule), 2, True)
    figure = new_figure(10, 4)
    axes = figure.subplots()
    for rank in range(RANKS):
        parts = {part.sources[0]: part for part in SCHEDULES[schedule].parts(sizes, rank)}
        for step in range(RANKS):
            source = (rank - step) % RANKS
            scores = parts[source].scores(sizes, rank) if source in parts else 0
            colour = ORANGE if source == rank else BLUE
            axes.barh(rank, 0.96 * scores / 256, left=step, height=0.8, color=colour)
            axes.text(step + 0.03, rank, f"keys of rank {source}: {scores}", va="center", fontsize=11)
    axes.set_xlim(0, RANKS)
    axes.set_xticks([step + 0.5 for step in range(RANKS)], [f"step {step}" for step in range(RANKS)])
    axes.set_yticks(range(RANKS), [f"rank {rank}" for rank in range(RANKS)])
    axes.invert_yaxis()
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set_title(f"{schedule}: scores per head, of {rows} rows with a causal mask", loc="left")
    return figure


lessons.after("keys_of_rank_1", lambda: steps_picture("ring"))

# %% [markdown]
# `parts` lists what a rank computes: which of its queries, with which keys of which rank, and whether the part needs
# a mask. So one process can play the whole ring:


# %%
def play(schedule: str) -> torch.Tensor:
    """All ranks of a schedule, one after the other."""
    sizes = Sizes(1, 2, 2, 32, shard_lengths(ROWS, RANKS, schedule), 2, True)
    shards = [[shard(x, rank, RANKS, schedule) for x in (q, k, v)] for rank in range(RANKS)]
    outputs = []
    for rank in range(RANKS):
        _, *others = SCHEDULES[schedule].parts(sizes, rank)
        o, lse = attend(*shards[rank], is_causal=True)
        o = o.float()
        for part in others:
            _, keys, values = (x[:, :, part.keys] for x in shards[part.sources[0]])
            found = attend(shards[rank][0][:, :, part.queries], keys, values)
            merge(o[:, :, part.queries], lse[:, :, part.queries], *found)
        outputs.append(o)
    return unshard(outputs, schedule)


causal_o, causal_lse = attend(q, k, v, is_causal=True)
print(f"ring: {(play('ring') - causal_o).abs().max():.4f} off")

# %% [markdown]
# **Practise:** `r2_whose_keys`, and `r2_deadlock`: what happens if all ranks send first.
#
# ## 3. The mask makes ranks wait
#
# With a causal mask, keys of later ranks are not visible. Rank 0 is done after step 0. The last rank works in every
# step, and all others wait for it. The shards have 16 rows. How many scores per head does rank 3 compute in all four
# steps?

# %%
scores_of_rank_3 = None
lessons.predict("scores_of_rank_3", scores_of_rank_3)

# %% [markdown]
# The *zigzag* cuts the sequence into 2 R chunks. Rank r holds chunks r and 2 R - 1 - r, an early one and a late one.
# Each cell below is a pair of chunks, with the rank that computes it; dark ones are hidden by the mask. Count the
# cells of each rank:


# %%
def owners_picture(schedules: dict) -> object:
    """Who computes which pair of chunks of a causal mask."""
    figure = new_figure(5.5 * len(schedules), 5.5)
    for axes, (title, owner) in zip(figure.subplots(1, len(schedules)), schedules.items(), strict=True):
        chunks = 2 * RANKS
        cells = [[owner(i) if j <= i else -2 for j in range(chunks)] for i in range(chunks)]
        axes.imshow(cells, cmap="cividis")
        for i in range(chunks):
            for j in range(i + 1):
                dark = owner(i) < 2
                axes.text(j, i, str(owner(i)), ha="center", va="center", color="white" if dark else "black")
        axes.set_title(title, fontsize=14)
        axes.set_xlabel("chunk of keys")
        axes.set_ylabel("chunk of queries")
    return figure


owners_picture({"ring": lambda chunk: chunk // 2, "zigzag": lambda chunk: min(chunk, 2 * RANKS - 1 - chunk)})

# %% [markdown]
# The work is also equal in each step: every rank computes half of its pairs. Only the part with a rank's own keys
# needs a mask.
#
# - Keys of an earlier rank: its early chunk is visible to all own queries, its late chunk to none.
# - Keys of a later rank: both its chunks lie between own early and own late queries. The late ones see all of them.

# %%
print(f"zigzag: {(play('zigzag') - causal_o).abs().max():.4f} off")
lessons.after("scores_of_rank_3", lambda: steps_picture("zigzag"))

# %% [markdown]
# **Practise:** `r3_chunks`.
#
# ## 4. Backward
#
# A gradient is a sum of terms, one for each pair of query and key, and each pair is in exactly one part:
#
# $$ P = e^{S - \mathrm{lse}}, \qquad dS = P \circ (dP - \delta), \qquad \delta = \mathrm{rowsum}(dO \circ O) $$
#
# So a part computes its share of dQ, dK and dV with an unchanged rung. It only needs lse and O of *all* keys. With lse
# and O of only its own keys, P would be too large and $\delta$ would be wrong:

# %%
d_k = torch.autograd.grad(attend(q, k.requires_grad_(), v)[0], k, d_o)[0]
k = k.detach()
halves = ((slice(half), o_1, lse_1), (slice(half, None), o_2, lse_2))
of_all = [attention_backward(d_o, None, q, k[:, :, j], v[:, :, j], whole_o, whole_lse) for j, _, _ in halves]
of_own = [attention_backward(d_o, None, q, k[:, :, j], v[:, :, j], o, lse) for j, o, lse in halves]
for name, found in {"lse and O of all keys": of_all, "lse and O of own keys": of_own}.items():
    print(f"dK with {name:22} {(torch.cat([one[1] for one in found], 2) - d_k).abs().max():.4f} off")

# %% [markdown]
# dQ stays with its queries, and adds up over the steps. dK and dV of a shard are needed on the rank that owns it, and
# all ranks add to them. So they move with K and V, as sums in fp32. **Practise:** `r2_gradients`.
#
# ## 5. When is it worth it
#
# Let a rank have n rows. In a step it sends 2 Hkv n d numbers. For each of two products it computes H n² d
# multiplications and additions, half of them under the zigzag's mask. So the transfer grows with n, and the
# computation with n². From some n on, the computation hides the transfer. Take 32 query heads and 8 key heads of d =
# 128 in bf16, and shards of 16,384 rows. How many MiB does a rank send in a step?

# %%
mib_per_step = None
lessons.predict("mib_per_step", mib_per_step)

# %% [markdown]
# Each schedule's module has a formula for the bytes that a rank sends in the forward pass, and a test counts them.
# For 8 ranks:

# %%
sizes = Sizes(1, 32, 8, 128, (16384,) * 8, 2, True)
for name, module in SCHEDULES.items():
    forward, backward = module.bytes_sent(sizes, rank=3)
    print(f"{name:11} forward {forward / 2**20:6,.0f} MiB, backward {backward / 2**20:6,.0f} MiB")

# %% [markdown]
# In the backward pass the ring sends K and V once more. With them go the sums of dK and dV. They are fp32, so they are
# twice as large.
#
# `r4_ulysses` exchanges heads instead: after an all-to-all each rank has all rows of H / R heads, and computes as one
# GPU would. It sends less as soon as R > H / Hkv + 1, but H and Hkv must be multiples of R, and nothing overlaps with
# it. **Practise:** `r2_bytes`.
#
# Two H100s were measured in the forward pass, with N = 65,536 and a causal mask. The ring is 1.25 times as fast as
# one GPU, and the zigzag 1.96 times. Rank 1 of the ring has three quarters of the work.
# [docs/distributed.md](../docs/distributed.md#measured) has all times, and a picture of when each rank computes and
# sends.
#
# ## 6. Four processes
#
# In a terminal, this starts four ranks on your CPU, with gloo in place of NCCL and emulated kernels. It compares
# results and gradients with their bounds, and bytes with the formulas:
#
#     torchrun --nproc-per-node 4 -m ladder.distributed.demo
#
# With `--fault dies` one rank ends in the middle. With `--fault shape` one rank passes a different number of heads.
# In your own code:
#
#     x = ladder.distributed.shard(x, rank, ranks, "zigzag", dim=1)
#     ...
#     o, lse = ladder.distributed.attention(q, k, v, schedule="zigzag", is_causal=True)
#
# ## What is left
#
# The zigzag halves the work, but two GPUs are less than twice as fast as one.
# [docs/distributed.md](../docs/distributed.md#what-a-second-gpu-does-not-double) has the times of what remains:
#
# - Each call has costs that do not shrink with the shards: the exchange of descriptions on the host, launches, and the
#   first and last blocks of each kernel. So short sequences gain less.
# - Parts have to be merged, and gradients added.
# - The last block of gradients is sent when its part is complete, so no computation hides this transfer.
#
# Twice as many ranks halve what a rank sends in a step, and quarter what it computes. From some number of ranks on,
# transfers take longer than computation, and GPUs wait. Between hosts this happens with fewer ranks, because links are
# slower. That was computed, not measured: only two GPUs of one host were measured.
#
# The zigzag does not balance packed short sequences. Where all sequences are shorter than a shard, most pairs of
# shards share no sequence, and most keys that the ring sends are not used.
#
# **Read on:** [docs/distributed.md](../docs/distributed.md), and the modules `ladder/call/distributed/r1_all_gather.py` to
# `r4_ulysses.py`. **Next:** [24, windows, sinks, softcaps and packing](24_x_variants.ipynb). Run this lesson [on
# Colab](https://colab.research.google.com/github/flash-ladder/flash-ladder/blob/main/notebooks/23_context_parallel.ipynb).
