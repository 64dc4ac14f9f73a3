# %% [markdown]
# # 19 h2_masks: only the tiles that the mask needs
#
# A recommender's mask has structure: contexts, history, targets, windows. Most tiles of keys are visible to all
# queries of a block, or to none of them. h2 loads only tiles that some query sees, and masks only the tiles that the
# mask cuts.

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
from ladder.lessons import gallery
from ladder.operations import HstuProblem
from ladder.show.plots import new_figure

# %% [markdown]
# ## The masks
#
# Of a sequence's tokens the first few may be *contexts* (who the user is), the last ones *targets* (candidates to be
# scored). What lies between, contexts included, is the *history*.
#
# | token r | sees key j if |
# |---|---|
# | causal | $j \le r$ |
# | window (L, R) | $r - L \le j \le r + R$; a negative side has no limit |
# | a context | j is in the history |
# | a target | j is in the history, or a target of r's own group that is not after r |
# | intervals | j lies in one of a few ranges that are data, per query |
#
# The keys that a query (a row) sees are bright:


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
# ### Predict
#
# Of 12 tokens, 2 are contexts and 3 are targets, each a group of its own. How many keys does the last target see?

# %%
keys_of_the_last_target = None
lessons.predict("keys_of_the_last_target", keys_of_the_last_target)

# %%
structured = ladder.hstu_mask(12, 12, contexts=2, targets=3)
lessons.after("keys_of_the_last_target", lambda: picture({"2 contexts, 3 targets": structured}))

# %% [markdown]
# ## A row is a range with one gap
#
# Without intervals every row sees the keys from `begin` to `end`, except a gap from the first target to `gap_end`.
# From one row to the next these bounds never decrease, except where the contexts end. So the *first* and the *last*
# row of a block suffice to classify a tile of keys:

# %%
lessons.source(
    "h2",
    "/// Whether a row sees one of the keys key",
    "/// Whether every row sees all of them.",
    file="ladder/hstu_mask.h",
)

# %% [markdown]
# - A tile that no row sees is neither loaded nor multiplied.
# - A tile that all rows see whole is not masked.
# - Only a tile that the mask *cuts* is masked: a 64-bit word per row has a bit for each key, which its element tests.
#
# In the loop `seen.from` finds the next tile, while the tile before is being loaded:

# %%
lessons.source("h2", "int key = seen.from(", "prefetch(1 - now, next);")

# %% [markdown]
# Intervals have no such order. There the threads of the block test every row, and `__syncthreads_or` combines their
# results.
#
# ## Counted
#
# These are the counts of three masks, for a sequence of 512 tokens:

# %%
forms = {"causal": {}, "window of 64": {"window": (63, 0)}, "256 targets": {"targets": (256,)}}
for name, form in forms.items():
    problem = HstuProblem(heads=1, head_dim=64, q_lens=(512,), **form)
    counted = ladder.compare(problem, ["h2"], backend="emulator").iloc[0]
    print(f"{name:12}: {counted['mma_instructions']:6,} mma, {counted['global_sectors_ld']:6,} sectors read")

# %% [markdown]
# The rule is exact. The rung's test finds by brute force which tiles have at least one visible element. The emulator
# counts products for exactly as many tiles. The picture shows every form of mask, with tiles of 4 x 4. Blue tiles
# need no mask, and orange ones are cut:

# %%
gallery.mask()

# %% [markdown]
# ## Which blocks start first
#
# Without contexts the last rows see the most keys, so their blocks start first. A handful of contexts reverses that:
# the *first* rows see all of the history. A long block that starts last keeps the whole GPU waiting, so the blocks of
# contexts start before all others:

# %%
lessons.source("h2", "/// The first query of this block of `rows`;", "  }", file="ladder/hstu_sequence.h")

# %% [markdown]
# ## Registers
#
# The tiles need all registers. The mask's parameters would take a dozen of them during the whole main loop. So the
# kernel *recomputes* them in the few tiles that are cut: a few loads that hit the cache.

# %%
lessons.source("h2", "const auto bits = [&] {", "silu(s, s, problem.alpha);")

# %% [markdown]
# ## What it costs, and what it bought
#
# These are TFLOP/s on an H200 in bf16. `targets 1024 by 16` means 1,024 targets in groups of 16. They count the pairs of
# a causal mask, whatever the mask, so a rung that computes hidden tiles is slower in this table, not faster:

# %%
lessons.measured_hstu(["h1", "h2"])

# %% [markdown]
# With a plain causal mask h2 reaches what h1 does, within 5%: the masks cost little where they are not used.
#
# **What is left:** HSTU also adds a bias to each logit, and training needs gradients.

# %% [markdown]
# **Practise:** the exercises begin with `h2_`. **Read on:** the rung's [README](../stages/hstu/h2_masks/README.md).
# **Next:** [20, a bias, and gradients](20_h3_rab.ipynb). Run this lesson [on
# Colab](https://colab.research.google.com/github/flash-ladder/flash-ladder/blob/main/notebooks/19_h2_masks.ipynb).
