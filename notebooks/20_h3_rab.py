# %% [markdown]
# # 20 h3_rab to h3g_same_bits: a bias, and gradients
#
# HSTU adds a bias to each logit. It encodes how long ago an action was, and how many actions lie between. Then comes
# the backward pass, in four small rungs. At the end a recommender trains with them.

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
import itertools
from functools import partial

import pandas as pd
import torch
import torch.nn.functional as F
from torch import nn

import ladder
from ladder import lessons
from ladder.operations import HstuBackwardProblem
from ladder.show.plots import training_picture

# %% [markdown]
# ## h3_rab: an accumulator needs an initial value
#
# $$ x_{ij} = \alpha \left( q_i \cdot k_j + r_{ij} \right) $$
#
# The bias is a matrix per head, or one for all heads: as much memory as attention was designed to avoid. But it is an
# input, and needs to be read only once. Its tile is loaded beside the tiles of K and V by `cp.async`, read as fragments
# by `ldmatrix`, and converted to fp32. Then the tensor cores add q k to it. This is the whole difference to h2:

# %%
lessons.diff("h2", "h3")

# %% [markdown]
# No instruction adds the bias. What it costs is memory traffic: 2 bytes per score.
#
# ### Predict
#
# A score takes 4 d operations in the forward pass. How many operations is that per byte of the bias at $d = 64$?

# %%
operations_per_byte = None
lessons.predict("operations_per_byte", operations_per_byte)

# %% [markdown]
# An H200 reads at most 4.8 TB/s. This times your number is an upper bound for the TFLOP/s of any kernel with a bias
# per head. These are measured speeds, without a bias and with one:

# %%
lessons.measured_hstu(["h2", "h3"], only="4 x 2048")

# %% [markdown]
# `bias of 16` means one bias for each of the 16 heads. It costs 8% at $d = 64$, and 2% at $d = 128$. Both speeds are
# below a third of the upper bound, so the bandwidth is not what limits them.
#
# ## h3b: gradients without a softmax
#
# With $x = \alpha\, q k^T$, the mask M, and silu's slope:
#
# $$ dV = \tfrac1n\, (\mathrm{silu}(x) M)^T dO, \quad dP = \tfrac1n\, dO\,V^T, \quad dS = \alpha\, \mathrm{silu}'(x)\, M\, dP, \quad dQ = dS\,K, \quad dK = dS^T Q $$
#
# These are the five products of b2, but nothing per row: no lse, no delta, no kernel before the main one. One `tanh`
# gives both the weight and the slope:

# %%
lessons.source("h3b", "// S^T = K Q^T, P^T = silu(alpha S^T) with its slope", "mma_AB(dk, ds_16, q, dk);")

# %% [markdown]
# A block of keys goes through the tiles of queries that see one of its keys. That is the rule of h2, with keys and
# queries exchanged. The factors $1/n$ and $\alpha$ are applied at the very end: before a rounding to 16 bits, $1/n$
# would push values towards fp16's smallest numbers.
#
# ## Three steps more
#
# | rung | idea |
# |---|---|
# | h3c_bias_gradient | dS *is* the gradient of the bias: stored once, zeros included, or added where heads share the bias |
# | h3e_pairs | at $d = 128$ two warps share their keys, and blocks are larger, as in b2b |
# | h3g_same_bits | a fixed order of additions, as in b3; the order follows from the mask |
#
# h3c is worth a closer look. The gradient of the bias has one fp32 number per pair of a query and a key: 1 GB for 4
# sequences of 2,048 with 16 heads. To clear all of it first would write half of it twice. But with one bias per head, a
# block owns the columns of its keys, so it also stores their zeros. The table counts the sectors written without and
# with a bias, for two heads of 256 tokens, causal. Their difference is the gradient's size, 2 x 256 x 256 x 4 bytes in
# sectors of 32:

# %%
plain, biased = (
    HstuBackwardProblem(heads=2, head_dim=64, q_lens=(256,), bias_heads=heads) for heads in (0, 2)
)
rows = [ladder.compare(problem, ["h3c"], backend="emulator") for problem in (plain, biased)]
table = pd.concat(rows).set_axis(["no bias", "a bias per head"])
table[["mma_instructions", "global_sectors_st"]].T

# %% [markdown]
# In b3 every key tile adds to every tile of dQ. Here the mask skips some. So h3g's counter of a tile holds the number
# of the key tile that has added *last*. A block computes from the mask for which number it must wait.
#
# Most of these steps were not measured one by one. One was, in a note of an experiment (`results/notes/hstu.md`): at $d
# = 128$ a form with pairs of warps had 261 TFLOP/s, and one in which each warp has its own 16 keys had 235. The table
# shows TFLOP/s of the gradients with all steps except the fixed order, on an H200 in bf16. They count the pairs of a
# causal mask, whatever the mask:

# %%
lessons.measured_hstu(["h3e"], "hstu_backward")

# %% [markdown]
# A bias, and the gradient that is stored for it, cost 36% at $d = 64$ and 15% at $d = 128$.
#
# ## The layer around it
#
# HSTU's layer has one projection in front and one behind, and no other network:
#
# $$ U, V, Q, K = \mathrm{silu}(\mathrm{norm}(X)\,W), \qquad X \leftarrow X + \left(\mathrm{norm}(A) \circ U\right) W_o $$
#
# A is the attention's output. U is a *gate*: it decides how much of it goes on. `ladder.norm_gate` computes norm(A) ∘ U
# in one kernel if a row of A has a multiple of 64 elements. `ladder.HSTULayer` is this layer as a torch module, with a
# bias of the distance between query and key. Two of them are a recommender:

# %%
ITEMS, WIDTH = 24, 32


class Recommender(nn.Module):
    def __init__(self, attention):
        super().__init__()
        self.items = nn.Parameter(0.3 * torch.randn(ITEMS, WIDTH))
        self.layers = nn.ModuleList(
            ladder.HSTULayer(
                WIDTH, heads=1, head_dim=32, bias_distance=16, dtype=torch.float16, attention=attention
            )
            for _ in range(2)
        )

    def forward(self, clicks, cu_seqlens):
        x = self.items[clicks]
        for layer in self.layers:
            x = layer(x, cu_seqlens)
        return x @ self.items.T


# %% [markdown]
# The log of clicks is made up. Each of 12 users cycles through all items, with a step between 1 and 4 that stays the
# same: the next click follows from the last two. The logs have 6 to 39 clicks.


# %%
def log_of_clicks():
    lengths = torch.randint(6, 40, (12,))
    logs = [
        (torch.randint(ITEMS, (1,)) + torch.randint(1, 5, (1,)) * torch.arange(n)) % ITEMS for n in lengths
    ]
    return torch.cat(logs), F.pad(lengths.cumsum(0), (1, 0)).int()


def train(attention, steps=40):
    torch.manual_seed(0)
    model, losses = Recommender(attention), []
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(steps):
        clicks, cu_seqlens = log_of_clicks()
        guesses = model(clicks, cu_seqlens)
        can_be_known = torch.ones(len(clicks), dtype=torch.bool)
        can_be_known[cu_seqlens[:-1]] = can_be_known[cu_seqlens[1:] - 1] = False
        here = can_be_known.nonzero()[:, 0]
        loss = F.cross_entropy(guesses[here], clicks[here + 1])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


# %% [markdown]
# The recommender trains twice: with attention in plain torch, sequence by sequence, and on the emulator with `h3_rab`
# and its gradients `h3e_pairs`:


# %%
def by_torch(q, k, v, cu_seqlens, *, rab, **_):
    outputs, longest = [], int(cu_seqlens.diff().max())
    for b, (first, end) in enumerate(itertools.pairwise(cu_seqlens.tolist())):
        one, n = slice(first, end), end - first
        x = torch.einsum("nhd,mhd->hnm", q[one], k[one]) + rab[b, :, :n, :n]
        weights = F.silu(x / q.shape[2] ** 0.5) * ladder.hstu_mask(n, n)
        outputs.append(torch.einsum("hnm,mhd->nhd", weights, v[one]) / longest)
    return torch.cat(outputs)


torch.set_num_threads(1)  # so small a model is faster on one
rungs = partial(ladder.hstu_attention, stage="h3", backward="h3e")
losses = {"torch": train(by_torch), "h3_rab and h3e_pairs": train(rungs)}
training_picture(losses)

# %%
apart = max(abs(ours - theirs) for ours, theirs in zip(*losses.values(), strict=True))
print(f"from {losses['torch'][0]:.2f} to {losses['torch'][-1]:.2f}, at most {apart:.3f} apart")

# %% [markdown]
# **What is left:** a recommender that answers a request has few queries, and then most warps of a block have no rows.
#
# **Practise:** the exercises begin with `h3_` and `h3b_`. **Read on:** the READMEs of
# [h3](../stages/hstu/h3_rab/README.md), [h3b](../stages/hstu/h3b_gradients/README.md),
# [h3c](../stages/hstu/h3c_bias_gradient/README.md) and [h3g](../stages/hstu/h3g_same_bits/README.md). **Next:** [21, few
# queries, and keys in pages](21_h4_arrangement.ipynb). Run this lesson [on
# Colab](https://colab.research.google.com/github/flash-ladder/flash-ladder/blob/main/notebooks/20_h3_rab.ipynb).
