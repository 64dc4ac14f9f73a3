# %% [markdown]
# # 14 h1_silu, h2_masks: attention without a softmax
#
# Recommenders read a user's log of actions and predict the next one. HSTU ("Actions Speak Louder than Words", 2024) does it
# with an attention that has no softmax, and masks with a structure of their own. What you know of tiles serves here, too.

# %% tags=["colab", "remove-cell"] jupyter={"source_hidden": true}
# Installs the project where it is not there yet, as on Colab.
import importlib.util
import subprocess
import sys

if importlib.util.find_spec("ladder") is None:
    project = "flash-ladder @ git+https://github.com/flash-ladder/flash-ladder"
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", project], check=True)

# %%
# %load_ext ladder.lessons
import itertools
from functools import partial

import torch
import torch.nn.functional as F
from torch import nn

import ladder
from ladder import lessons
from ladder.lessons import gallery
from ladder.operations import HstuProblem
from ladder.plots import new_figure, training_picture

# %% [markdown]
# ## h1: what falls away
#
# $$ o_i = \frac1n \sum_{j \le i} \mathrm{silu}(\alpha\, q_i \cdot k_j)\, v_j, \qquad \mathrm{silu}(x) = \frac{x}{1 + e^{-x}} $$
#
# Here $n$ is a constant of the batch, the length of its longest sequence unless you say otherwise. A weight depends on
# its own logit and on no other. So there is no maximum, no sum and no rescaling, and nothing is divided at the end:
# tiles of keys simply add up. This is the whole loop:

# %%
lessons.source("h1_silu", "mma_ABt(s, q, k_smem[now]);", "mma_AB(o, p_16, v_smem[now], o);")

# %% [markdown]
# Sequences have different lengths. Padded to the longest, most of the work would be wasted. So they lie one after the
# other, *jagged*, and an array says where each begins. Rows past the end of a sequence are read as zeros and need no
# mask: silu(0) is 0.
#
# ## h2: the masks
#
# The keys that a query (a row) may see are bright here:


# %%
def picture(masks: dict) -> object:
    figure = new_figure(4 * len(masks), 4)
    for axes, (title, mask) in zip(
        figure.subplots(1, len(masks), squeeze=False).flat, masks.items(), strict=True
    ):
        axes.imshow(mask, cmap="cividis")
        axes.set_title(title, fontsize=14)
        axes.set_xlabel("key")
        axes.set_ylabel("query")
    return figure


picture({"causal": ladder.hstu_mask(12, 12), "window of 4": ladder.hstu_mask(12, 12, window=(3, 0))})

# %% [markdown]
# The first tokens of a sequence may be *contexts* (who the user is), the last ones *targets* (candidates to be
# scored). A context sees all but the targets. A target sees every token that is not a target, and of the targets only
# itself. Of 12 tokens, 2 are contexts and 3 are targets: how many keys does the last target see?

# %%
keys_of_the_last_target = None
lessons.predict("keys_of_the_last_target", keys_of_the_last_target)

# %%
structured = ladder.hstu_mask(12, 12, contexts=2, targets=3)
lessons.after("keys_of_the_last_target", lambda: picture({"2 contexts, 3 targets": structured}))

# %% [markdown]
# ## Only the tiles that matter
#
# For each tile of keys the kernel asks whether any query of the block sees any of them. If none does, the tile is neither
# brought nor multiplied. If all see all, nothing is masked. A window of 64 in a sequence of 512:

# %%
problems = {"causal": (-1, 0), "window of 64": (63, 0)}
for name, window in problems.items():
    problem = HstuProblem(heads=1, head_dim=64, q_lens=(512,), window=window)
    counted = ladder.compare(problem, ["h2_masks"], backend="emulator").iloc[0]
    print(f"{name:12}: {counted['mma_instructions']:6,} mma, {counted['global_sectors_ld']:6,} sectors read")

# %% [markdown]
# The rule is exact: the rung's test finds by brute force in how many tiles at least one element is visible, and the
# emulator counts just as many. Every form of mask, with tiles of 4 x 4; blue ones need no mask, orange ones are cut:

# %%
gallery.mask()

# %% [markdown]
# ## The layer around it
#
# HSTU's layer has one projection in front and one behind, and no other network:
#
# $$ U, V, Q, K = \mathrm{silu}(\mathrm{norm}(X)\,W), \qquad X \leftarrow X + \left(\mathrm{norm}(A) \circ U\right) W_o $$
#
# A is the attention's output. U is a *gate*: it decides what of it goes on. `ladder.HSTULayer` is this layer as a torch module,
# with a bias of the distance between query and key. Two of them are a recommender:


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
# The log of clicks is made up. Each of 12 users goes round all items in steps of one length, between 1 and 4: the next
# click follows from the last two. The users' logs have 6 to 39 clicks, and lie one after the other.


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
# Attention in plain torch, sequence by sequence, beside `h3_rab` and its gradients `h3f_large_blocks` on the emulator:


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
rungs = partial(ladder.hstu_attention, stage="h3_rab", backward="h3f_large_blocks")
losses = {"torch": train(by_torch), "h3_rab and h3f_large_blocks": train(rungs)}
training_picture(losses)

# %%
apart = max(abs(ours - theirs) for ours, theirs in zip(*losses.values(), strict=True))
print(f"from {losses['torch'][0]:.2f} to {losses['torch'][-1]:.2f}, at most {apart:.3f} apart")

# %% [markdown]
# **Practise:** the exercises begin with `h1_`, `h2_` and so on, up to `h6_`.
# **Read on:** the READMEs of [h1](../stages/h1_silu/README.md) and [h2](../stages/h2_masks/README.md), and of the rungs above:
# a bias and its gradients, warps over keys, keys in pages, wgmma and TMA. Run this lesson
# [on Colab](https://colab.research.google.com/github/flash-ladder/flash-ladder/blob/main/notebooks/14_h1_silu.ipynb).
