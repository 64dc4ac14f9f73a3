# %% [markdown]
# # 22b h8_wgmma_gradients: HSTU's gradients on Hopper
#
# h3f computes the gradients with `mma.sync`, and adds dQ from registers. b5e (lesson 17) computes attention's gradients
# with `wgmma`: a producer, two consumers of 64 keys each, and two store warps. h6 (lesson 22) has a producer that reads
# HSTU's mask, and tensor maps that stop where a sequence ends. h8 puts both together. New are the slope of `silu`, and
# a mask that is read by columns: a block has keys, and looks for the queries that see them.

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
# The gradients of softmax need a kernel before the main one: dS = P (dP - delta), and delta is a sum over a row. silu looks
# at one element, and so does its gradient:
#
# $$ dS = \mathrm{silu}'(x) \; dP $$
#
# So h8 needs neither lse nor delta. But b5e keeps only P until dP is known, and h8 needs P for dV *and* the slope for dS.
# Both come from one special function. With $y = x / 2$ and $t = \tanh y$:
#
# $$ \mathrm{silu}(x) = y (1 + t), \qquad 2\, \mathrm{silu}'(x) = 1 + t + y (1 - t^2) $$

# %%
x = torch.linspace(-6, 6, 7, dtype=torch.float64, requires_grad=True)
y, t = x / 2, torch.tanh(x / 2)
(slope,) = torch.autograd.grad(torch.nn.functional.silu(x).sum(), x)
print((y * (1 + t) - torch.nn.functional.silu(x)).abs().max().item() < 1e-12)
print((1 + t + y * (1 - t * t) - 2 * slope).abs().max().item() < 1e-12)

# %%
lessons.source("h8_wgmma_gradients", "const auto both = [](float y) {", "};")

# %%
# %exercise h8_slope

# %% [markdown]
# P and the slope take 16 bits each: together the registers of S, which they replace. Then dP takes the place of S, and dS
# is one product per element:

# %%
lessons.source("h8_wgmma_gradients", "__device__ void compute_ds() {", "copy(ds_16, s);")

# %% [markdown]
# The slope is rounded to fp16 even if Q, K and V are bf16. It lies between -0.2 and 2.2, where fp16 has three more bits.

# %% [markdown]
# ## Which queries see the block
#
# h6 goes through the keys that a tile of queries sees. Here it is the other way round: a block has 128 keys, and visits
# the tiles of queries that see one of them. Under a causal mask these are the tiles from the diagonal on. A window ends
# them. Targets see the history, but among each other only their own group: so a block of targets' keys is seen by few
# queries, and then by none. And contexts see all of the history: a block far to the right is seen by the first tile
# again.
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
lessons.source("h8_wgmma_gradients", "__device__ Visit seen_up_to(int tile) const {", "return {-1, 0, 0};")

# %%
# %exercise h8_next_tile

# %% [markdown]
# Beside a tile it writes a note, as in h6: the number of the tile, for which consumers the mask cuts it, and whether it is
# the last one. The store warps read the note, too, because they need the number: they add to dQ of this tile. They may
# be two steps behind the loads, so there are four places for notes and only two buffers for Q.
#
# As in h6 the rule is exact: the emulator counts as many `wgmma` as brute force finds such tiles.

# %%
mask = ladder.hstu_mask(2048, 2048, 0, 1024, 16)
sum(bool(tile.any()) for rows in mask.split(128, 0) for tile in rows.split(128, 1))

# %% [markdown]
# The mask hides elements of $y$, before the tanh: they become -128. There tanh is exactly -1, so silu and its slope are
# exactly 0. So P and the slope need no mask of their own.
#
# ## When dQ is issued
#
# As in b5e, dQ of a step is issued amid the elements of the next one: after those of 32 queries. Before that the consumer
# waits for dS of the other consumer. The wait must come after the tanh of the first queries, but ptxas moves them past
# it, as far as it can. In b5e the wait depends on the sign of an exponential, which is always 0. Here no bit is always
# 0. So all words of the first queries are combined by OR, and the result by AND with a parameter of the kernel that is
# always 0. ptxas does not know that.

# %%
lessons.source("h8_wgmma_gradients", "__device__ uint32_t compute_first_p() {", "& nothing;")

# %% [markdown]
# ## Counted
#
# h3f adds dQ by `red` from registers, and loads with `ldmatrix`. h8 has neither. TMA loads and adds:

# %%
problem = HstuBackwardProblem(2, 64, (300, 100), targets=(50, 10))
table = ladder.compare(problem, ["h3f_large_blocks", "h8_wgmma_gradients"], backend="emulator", arch="sm_90a")
columns = [
    "mma_instructions",
    "wgmma_instructions",
    "ldmatrix_instructions",
    "tma_load_instructions",
    "tma_store_instructions",
]
table.set_index("stage")[columns].T
