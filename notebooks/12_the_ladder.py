# %% [markdown]
# # 12 The whole ladder, and a rung of your own
#
# All rungs of the forward pass on one problem, side by side. Then you build one more.

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
import os
import tempfile
from pathlib import Path

import pandas as pd

import ladder
from ladder import lessons, stages
from ladder.lessons import gallery
from ladder.plots import speed_picture
from ladder.stages import new_stage

# %% [markdown]
# ## What each rung added

# %%
rungs = stages.discover().computing("attention")
ideas = pd.DataFrame({"idea": [rung.idea for rung in rungs]}, index=[rung.name for rung in rungs])
lessons.text_table(ideas)

# %% [markdown]
# ## Wavefronts and conflicts

# %%
gallery.comparison()

# %% [markdown]
# The axis is logarithmic. From v1 to v1b little changes in shared memory: that rung is about global memory and blocks.
# From v1b to v2 a *fragment* feeds many multiply-adds where two words fed one. From v2 to v3 the conflicts go. From v3
# to v4 a tile of K and V is loaded for four times as many queries. From v7 on threads read no tile any more: the tensor cores do, and
# one read of K or V serves the 64 rows of four warps.
#
# And the arithmetic? v2 to v6 use `mma` instructions of 16 x 8 x 16 multiply-adds, 4096 operations. Attention needs
# $4 B H N M d$ of them. How many `mma` has v3 at $B = 1$, $H = 2$, $N = M = 256$, $d = 64$, where its
# tiles have 48 keys, and the last one is multiplied as a whole?

# %%
mma_of_v3 = None
lessons.predict("mma_of_v3", mma_of_v3)

# %%
problem = ladder.Problem(1, 2, 256, 256, 64)
table = ladder.compare(problem, backend="emulator")
lessons.after("mma_of_v3", lambda: lessons.counts(table))

# %% [markdown]
# How much arithmetic does one wavefront of shared memory pay for? That is what the lower half of the ladder is about:

# %%
wavefronts = (table["wavefronts_ld"] + table["wavefronts_st"]).astype(float)
paid = pd.DataFrame({"operations a wavefront": problem.flops / wavefronts}).set_index(table["stage"])
paid[wavefronts.to_numpy() > 0].round(1).iloc[:7]

# %% [markdown]
# ## Time
#
# The emulator claims no times. These were measured on an H200 (`results/h200/speed.csv` and `climb.csv`), at B = 4, H
# = 16. The dashed line is as far as `mma.sync` gets on that GPU when it has nothing else to do (`ceilings.csv`). v7 to
# v11 and cuDNN use `wgmma` instead, whose line is further out: that is why they can pass it, and v1 to v6 and
# FlashAttention-2 cannot.

# %%
speeds = lessons.measured_speeds()
problems = [{"N": 4096, "d": d, "dtype": "bf16", "causal": False} for d in (64, 128)]
if speeds is not None:  # in a checkout of the project
    ceilings = pd.read_csv(stages.root().parent / "results" / "h200" / "ceilings.csv").set_index("unit")
    picture = speed_picture(speeds, problems, ceilings.loc["mma.sync", "per_second"] * 1e-12)
picture if speeds is not None else "no results here"

# %% [markdown]
# And on the GPU of this machine, if it has one:

# %%
lessons.times()

# %% [markdown]
# ## A rung of your own
#
# `ladder new my_swizzle --from v2_warp_mma` makes a working copy in `my_rungs/`, which from then on is built, run,
# checked and compared like the others. Here is the same from Python, in a temporary folder, so that you can run this
# lesson as often as you like:

# %%
folder = Path(tempfile.mkdtemp())
os.environ["LADDER_STAGES"] = str(folder)
mine = new_stage("my_swizzle", "v2_warp_mma", folder)
lessons.source("my_swizzle", "__device__ uint32_t at(int row, int col) const")

# %% [markdown]
# Every access to a tile goes through this line. Say you want to permute the 16-byte segments of a row by the row's
# number, for rows of 64 elements of 2 bytes: that is `col ^ row % 8 * 8`. In an editor it would take ten seconds; here
# the cell edits the file:

# %%
before = "(row * kCols + col) * sizeof(T)"
after = "(row * kCols + (col ^ row % 8 * 8)) * sizeof(T)"
text = mine.kernel.read_text()
assert text.count(before) == 1
mine.kernel.write_text(text.replace(before, after))
lessons.source("my_swizzle", "__device__ uint32_t at(int row, int col) const")

# %% [markdown]
# K and V are all that goes through shared memory. Predict how many conflicts are left at $d = 64$:

# %%
conflicts_left = None
lessons.predict("conflicts_of_my_swizzle", conflicts_left)

# %%
both = ladder.compare(problem, ["v2_warp_mma", "my_swizzle", "v3_swizzle"], backend="emulator")
both[["stage", "passed"]]

# %%
lessons.after("conflicts_of_my_swizzle", lambda: lessons.counts(both))

# %%
lessons.after("conflicts_of_my_swizzle", lambda: lessons.costs("my_swizzle", problem))

# %% [markdown]
# It is right (`passed` says so: outputs and lse are within the same bounds as every rung's). But try it at other head
# dimensions before you are content:

# %%
for head_dim in (32, 64, 128):
    other = ladder.compare(ladder.Problem(1, 2, 256, 256, head_dim), ["my_swizzle"], backend="emulator")
    passed = other.loc[0, "passed"]
    print(f"d = {head_dim:3}: {'right' if passed else 'WRONG'}")

# %% [markdown]
# At $d = 32$ a row has 32 elements, and `col ^ row % 8 * 8` reaches beyond it, into the next row: two elements meet in
# one place. The test matrix that every rung is held to would have told you, and so would `ladder check my_swizzle
# --problem 1,2,256,256,32`: two threads write one place. v3 derives the three numbers from the tile and is right for
# all.
#
# ## Where to go from here
#
# - `ladder exercise list`: kernels with a gap for each rung, with hints and a check.
# - `ladder new NAME --from STAGE`: a rung of your own, to keep.
# - `ladder lines STAGE` and `ladder explain STAGE:LINE`: counts beside the source, one access lane by lane.
# - `ladder emulate prog.cu`: any CUDA program of your own, without a GPU.
# - The other ladders: HSTU's [attention without a softmax](14_h1_silu.ipynb), and gradients, which come next.
#
# **Next:** [13, gradients](13_b1_two_kernels.ipynb). Run this lesson
# [on Colab](https://colab.research.google.com/github/flash-ladder/flash-ladder/blob/main/notebooks/12_the_ladder.ipynb).
