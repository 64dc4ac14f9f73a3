# %% [markdown]
# # 13 The whole ladder, and a rung of your own
#
# This lesson compares all rungs of the forward pass on one problem. Then you build one more.

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
import os
import tempfile
from pathlib import Path

import pandas as pd

import ladder
from ladder import lessons, stages
from ladder.lessons import gallery, questions
from ladder.show.plots import speed_picture
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
# The axis is logarithmic. From v1 to v1b little changes in shared memory: that rung is about global memory and
# blocks. In v1b two loaded words feed one multiply-add, and in v2 a *fragment* feeds many. v3 removes the conflicts.
# v4 loads a tile of K and V for four times as many queries as v3b. So it stores a quarter as often; its loads of
# fragments stay the same. From v7 on the tensor cores read the tiles, not the threads, and the picture counts their
# wavefronts. One read of K or V serves the 64 rows of four warps.
#
# Near the end the numbers rise a little. Here a block has 192 rows, and a head 256 queries, so the second block of a
# head has only 64. From v10b on its consumers without rows compute a dummy tile each, until v12c leaves them idle.
# v11b stores O through shared memory.
#
# And the arithmetic? v2 to v6 use `mma` instructions of 16 x 8 x 16 multiply-adds, 4096 operations. Attention needs $4
# B H N M d$ of them. Take v3 at $B = 1$, $H = 3$, $N = 192$, $M = 200$, $d = 64$. Its tiles have 48 keys, and the last
# tile is multiplied as a whole. How many `mma` does v3 execute?

# %%
mma_of_v3 = None
lessons.predict("mma_of_v3", mma_of_v3)

# %%
problem = questions.PROBLEM
table = ladder.compare(problem, backend="emulator")
lessons.after("mma_of_v3", lambda: lessons.counts(table))

# %% [markdown]
# How much arithmetic does one wavefront of shared memory serve? From v1 to v3 this number grows by a factor of 700.
# In v4 it is smaller for this problem: a block has 256 rows and here only 192 of them are used, but all its warps load
# fragments.

# %%
wavefronts = (table["wavefronts_ld"] + table["wavefronts_st"]).astype(float)
served = pd.DataFrame({"operations per wavefront": problem.flops / wavefronts}).set_index(table["stage"])
served[wavefronts.to_numpy() > 0].round(1).iloc[:7]

# %% [markdown]
# ## Time
#
# The emulator measures no times. These were measured on an H200 (`results/h200/speed.csv`), at B = 4, H = 16. The
# dashed line is the speed of a loop of only `mma.sync` on this GPU (`ceilings.csv`). The rungs from v7 on and cuDNN
# use `wgmma` instead, whose limit is higher. So they can pass the line, and v1 to v6 and FlashAttention-2 cannot.

# %%
speeds = lessons.measured_speeds()
problems = [{"N": 4096, "d": d, "dtype": "bf16", "causal": False} for d in (64, 128)]
ceilings = pd.read_csv(stages.results_root() / "h200" / "ceilings.csv").set_index("unit")
speed_picture(speeds, problems, ceilings.loc["mma.sync", "per_second"] * 1e-12)

# %% [markdown]
# If this machine has a GPU, these are its speeds:

# %%
lessons.times()

# %% [markdown]
# ## A rung of your own
#
# `ladder new my_swizzle --from v2` makes a working copy in `my_rungs/`, which from then on is built, run,
# checked and compared like the others. Here is the same from Python, in a temporary folder, so that you can run this
# lesson as often as you like:

# %%
folder = Path(tempfile.mkdtemp())
os.environ["LADDER_STAGES"] = str(folder)
mine = new_stage("my_swizzle", "v2", folder)
lessons.source("my_swizzle", "__device__ uint32_t at(int row, int col) const")

# %% [markdown]
# Every access to a tile goes through this line. Permute the 16-byte segments of a row by the row's number, for rows of
# 64 elements of 2 bytes. As a first try, XOR in one bit of it: `col ^ row % 2 * 8`. In an editor it would take ten
# seconds; here the cell edits the file:


# %%
original = mine.kernel.read_text()


def store_at(column):
    """Stores the element of column `col` at `column` of its row."""
    before = "(row * kCols + col) * sizeof(T)"
    assert original.count(before) == 1
    mine.kernel.write_text(original.replace(before, f"(row * kCols + ({column})) * sizeof(T)"))


store_at("col ^ row % 2 * 8")
lessons.source("my_swizzle", "__device__ uint32_t at(int row, int col) const")

# %% [markdown]
# In v2 each `ldmatrix` of K has 28 conflicts, 7 in each of its four passes. How many does it have now, at $d = 64$?

# %%
conflicts_left = None
lessons.predict("conflicts_of_my_swizzle", conflicts_left)

# %%
first_try = ladder.compare(problem, ["v2", "my_swizzle"], backend="emulator")
lessons.after("conflicts_of_my_swizzle", lambda: lessons.counts(first_try))

# %% [markdown]
# A pass reads eight rows, so the XOR needs three bits of the row's number:

# %%
store_at("col ^ row % 8 * 8")
both = ladder.compare(problem, ["v2", "my_swizzle", "v3"], backend="emulator")
lessons.counts(both).loc[["right", "bank conflicts"]]

# %% [markdown]
# No conflict is left, and the result is right: the errors of o and lse are within the same bounds as in every rung.
# But also try it at other head dimensions:

# %%
for head_dim in (32, 64, 128):
    other = ladder.compare(ladder.Problem(1, 2, 256, 256, head_dim), ["my_swizzle"], backend="emulator")
    passed = other.loc[0, "passed"]
    print(f"d = {head_dim:3}: {'right' if passed else 'WRONG'}")

# %% [markdown]
# At $d = 32$ a row has 32 elements, and `col ^ row % 8 * 8` reaches beyond it, into the next row. So two elements are
# stored in one place. The tests that every rung passes (`pytest stages/`) find this error. So does `ladder check
# my_swizzle --problem 1,2,256,256,32`: two threads write to the same address. v3 computes the three numbers of its XOR
# from the tile, and is right for all.
#
# ## Where to go from here
#
# - `ladder exercise list`: kernels with a gap for each rung, with hints and a check.
# - `ladder new NAME --from STAGE`: a rung of your own, to keep.
# - `ladder lines STAGE` and `ladder explain STAGE:LINE`: counts beside the source, one access lane by lane.
# - `ladder emulate prog.cu`: any CUDA program of your own, without a GPU.
# - The other ladders: gradients, which come next, and HSTU's [attention without a softmax](18_h1_silu.ipynb).
#
# **Next:** [14, gradients](14_b1_two_kernels.ipynb). Run this lesson [on
# Colab](https://colab.research.google.com/github/flash-ladder/flash-ladder/blob/main/notebooks/13_the_ladder.ipynb).
