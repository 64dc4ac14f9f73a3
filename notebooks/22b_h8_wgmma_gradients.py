# %% [markdown]
# # 22b h8_wgmma_gradients: HSTU's gradients on Hopper
#
# h3e computes the gradients with `mma.sync`, and adds dQ from registers. b5e (lesson 17) computes attention's gradients
# with `wgmma`: a producer, two consumers of 64 keys each, and two store warps. h6 (lesson 22) has a producer that reads
# HSTU's mask, and tensor maps that stop where a sequence ends. h8a and h8 combine both. h8a has the slope
# of `silu`, and a causal mask. h8 has a mask that is read by columns. A block has keys, and looks for the queries that see
# them.

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
import torch

import ladder
from ladder import lessons
from ladder.operations import HstuBackwardProblem

# %% [markdown]
# ## What silu needs
#
# The gradients of softmax need a kernel before the main one: dS = P (dP - delta), and delta is a sum over a row. silu
# depends on one element only, and so does its gradient:
#
# $$ dS = \mathrm{silu}'(x) \; dP $$
#
# Here x is a logit. So h8 needs neither lse nor delta. But it must keep more until dP is known: b5e keeps only P, and h8
# needs P for dV *and* the slope for dS. P and the slope come from one special function. With $y = x / 2$ and $t = \tanh y$:
#
# $$ \mathrm{silu}(x) = y (1 + t), \qquad 2\, \mathrm{silu}'(x) = 1 + t + y (1 - t^2) $$

# %%
x = torch.linspace(-6, 6, 7, dtype=torch.float64, requires_grad=True)
y, t = x / 2, torch.tanh(x / 2)
(slope,) = torch.autograd.grad(torch.nn.functional.silu(x).sum(), x)
print((y * (1 + t) - torch.nn.functional.silu(x)).abs().max().item() < 1e-12)
print((1 + t + y * (1 - t * t) - 2 * slope).abs().max().item() < 1e-12)

# %%
lessons.source("h8", "const auto both = [](float y) {", "};", file="ladder/hstu_gradients.h")

# %%
# %exercise h8_slope

# %% [markdown]
# P and twice the slope take 16 bits each. They take the registers of S in fp32, which is not needed any more: dP is
# computed in the variable of S (`s`). Then dS takes one multiplication per element. The factor 1/2 is applied to dQ
# and dK at the end:

# %%
lessons.source("h8", "__device__ void compute_ds() {", "copy(ds_16, s);")

# %% [markdown]
# Twice the slope is rounded to fp16 even if Q, K and V are bf16. It lies between -0.2 and 2.2, where fp16 is more
# precise by three bits.

# %% [markdown]
# ## Which queries see the block
#
# In h6 a block has queries and loops over the keys that they see. In h8 a block has 128 keys, and visits the tiles of
# queries that see one of them. The mask decides which tiles these are:
#
# | mask | tiles of queries that see the block's keys |
# | --- | --- |
# | causal | from the diagonal to the last query |
# | window | from the diagonal to the end of the window |
# | targets | keys of the history: also all targets; keys of targets: only queries of their own group |
# | contexts | also the first tiles: contexts see all of the history |
#
# ### Predict
#
# A mask of 1,024 history tokens and 1,024 targets in groups of 16: a target sees the history and its own group. A causal
# mask of 2,048 tokens has 136 tiles of 128 queries and 128 keys in which a query sees a key. In how many tiles does a
# query see a key here?

# %%
tiles_with_targets = None
lessons.predict("tiles_with_targets", tiles_with_targets)

# %% [markdown]
# The producer looks for the next tile while the consumers multiply the current one:

# %%
lessons.source("h8", "__device__ Visit seen_up_to(int tile) const {", "return {-1, 0, 0};")

# %%
# %exercise h8_next_tile

# %% [markdown]
# Beside a tile it writes a note, as in h6: the number of the tile, for which consumers the mask cuts it, and whether it is
# the last one. The store warps read the note, too: they add to dQ of this tile, and need its number. They may be two steps
# behind the loads. So there are four places for notes, but only two buffers for Q.
#
# As in h6 the rule is exact: the emulator counts as many `wgmma` as brute force finds such tiles. Brute force answers the
# question above:

# %%
mask = ladder.hstu_mask(2048, 2048, 0, 1024, 16)
sum(bool(tile.any()) for rows in mask.split(128, 0) for tile in rows.split(128, 1))

# %% [markdown]
# The mask is applied to $y$, before the tanh: hidden elements become -128. There tanh is exactly -1, and silu and its slope
# are exactly 0. P and the slope need no masks of their own.
#
# ## When dQ is issued
#
# dQ needs dS of both consumers. As in b5e, dQ of a step is issued during the next one, after silu of the first 32
# queries. It overlaps silu of the other queries. Before it is issued, the consumer waits for dS of the other consumer.
# ptxas would move the tanh of the first 32 queries past this wait. So the wait has to depend on their results. In b5e
# it depends on the sign bit of an exponential, which is always 0. Here no bit is always 0. So all words of the first
# queries are combined by OR. The result is combined by AND with a parameter of the kernel that is always 0, which ptxas
# does not know.

# %%
lessons.source("h8", "__device__ uint32_t compute_first_p() {", "(slope, 0));")

# %% [markdown]
# ## Counted
#
# h3e adds dQ by `red` from registers, and loads with `ldmatrix`. h8 has neither. TMA loads and adds:

# %%
problem = HstuBackwardProblem(2, 64, (300, 100), targets=(50, 10))
table = ladder.compare(problem, ["h3e", "h8"], backend="emulator", arch="sm_90a")
columns = [
    "mma_instructions",
    "wgmma_instructions",
    "ldmatrix_instructions",
    "tma_load_instructions",
    "tma_store_instructions",
]
table.set_index("stage")[columns].T

# %% [markdown]
# ## What it bought
#
# These are TFLOP/s on an H100 in bf16 in bursts of launches, each row from one run. They count the pairs of a causal mask.
# The last two columns are public kernels: the Triton kernels of generative-recommenders, and the kernels for Hopper of
# recsys-examples. The former do not compute groups of targets, and access memory illegally with contexts at $d = 128$.

# %%
lessons.measured_hstu_peers(["h3e", "h8", "generative-recommenders", "recsys-examples"], "backward")

# %% [markdown]
# h8 has 1.40 to 1.59 times h3e's speed at $d = 64$, and 1.96 to 2.22 times at $d = 128$. It has 1.12 to
# 1.37 times the speed of recsys-examples.
#
# **What is left:** a tile has 64 queries at $d = 128$, where b5e's has 80. With 80 ptxas spills, because P and the
# slope need more registers than only P. What limits h8 is not known: it has not been profiled. And h8 adds to dQ in any
# order, so two runs may differ in the last bits. `h3g_same_bits` gives the same bits.

# %% [markdown]
# **Practise:** the exercises begin with `h8_`. **Read on:** the rung's
# [README](../stages/hstu/h8_wgmma_gradients/README.md), with what was tried. **Next:** [23, several
# GPUs](23_context_parallel.ipynb). Run this lesson [on
# Colab](https://colab.research.google.com/github/flash-ladder/flash-ladder/blob/main/notebooks/22b_h8_wgmma_gradients.ipynb).
