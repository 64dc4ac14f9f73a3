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
import ladder
from ladder import lessons
from ladder.operations import HstuProblem
from ladder.plots import new_figure

# %% [markdown]
# ## h1: what falls away
#
# $$ o_i = \frac1n \sum_{j \le i} \mathrm{silu}(\alpha\, q_i \cdot k_j)\, v_j, \qquad \mathrm{silu}(x) = \frac{x}{1 + e^{-x}} $$
#
# Here $n$ is a constant of the batch, the length of its longest sequence unless you say otherwise. A weight depends on
# its own logit and on no other. So there is no maximum, no sum and no rescaling, and nothing is divided at the end:
# tiles of keys simply add up. This is the whole loop:

# %%
lessons.source("h1_silu", "mma_ABt(s, q, kv_smem[turn].k);", "mma_AB(o, p_16, kv_smem[turn].v, o);")

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
# emulator counts just as many.
#
# **Read on:** the READMEs of [h1](../stages/h1_silu/README.md) and [h2](../stages/h2_masks/README.md), and of the rungs above:
# a bias and its gradients, warps over keys, keys in pages. Run this lesson
# [on Colab](https://colab.research.google.com/github/flash-ladder/flash-ladder/blob/main/notebooks/14_h1_silu.ipynb).
