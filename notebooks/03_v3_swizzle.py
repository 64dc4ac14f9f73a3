# %% [markdown]
# # 03 v3_swizzle: not one bank conflict
#
# [![Open in
# Colab](https://colab.research.google.com/assets/colab-badge.svg)](https://colab.research.google.com/github/flash-ladder/flash-ladder/blob/main/notebooks/03_v3_swizzle.ipynb)

# %%
# On Colab this installs the project, which takes a few minutes. Where it is installed, nothing happens.
import importlib.util
import subprocess
import sys

if importlib.util.find_spec("ladder") is None:
    project = "flash-ladder @ git+https://github.com/flash-ladder/flash-ladder"
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", project], check=True)

# %% [markdown]
# One change to v2: tiles are stored in another order. No conflict is left. This lesson derives the order.

# %%
import difflib

import ladder
from ladder import banks
from ladder.lessons import gallery, teaching
from ladder.stages import discover

# %% [markdown]
# ## The whole difference
#
# `diff` of the two kernels, comments left out:

# %%
rungs = discover()
sources = [
    [text for text in rungs[name].kernel.read_text().splitlines() if not text.lstrip().startswith("//")]
    for name in ("v2_warp_mma", "v3_swizzle")
]
for text in difflib.unified_diff(*sources, n=0, lineterm=""):
    if text[0] in "+-" and text[:3] not in ("+++", "---") and "check(" not in text and '"v' not in text:
        print(text)

# %% [markdown]
# ## The idea
#
# A tile at $d = 64$ has rows of 128 bytes: eight *segments* of 16 bytes, each in four banks. A row of an
# 8x8 tile of `ldmatrix` is one segment. In row-major order segment $c$ of every row is in the banks $4c$
# to $4c + 3$, so the eight segments of a pass meet. Now put segment $c$ of row $r$ where segment $c \oplus
# (r \bmod 8)$ would be, $\oplus$ being the bitwise exclusive or. For a fixed $c$, eight rows in a row give
# eight different numbers: no two of them meet. For a fixed $r$ it is a permutation of the row: nothing is
# lost, and what reads along rows finds all banks as before.
#
# From the addresses that the two kernels used:

# %%
gallery.layout(64)

# %% [markdown]
# ## As a formula
#
# Let $a$ be the number of an element in the tile. Its bits are, for rows of 64 elements of 2 bytes:
#
# $$ a = \underbrace{\cdots r_2 r_1 r_0}_{\text{row}}\ \underbrace{c_2 c_1 c_0}_{\text{segment}}\
# \underbrace{e_2 e_1 e_0}_{\text{element in it}} $$
#
# and the three bits $r_2 r_1 r_0$ are to be XORed into $c_2 c_1 c_0$:
#
# $$ \mathrm{swizzle}_{B,M,S}(a) = a \oplus \Big(\big\lfloor a / 2^{S} \big\rfloor \wedge (2^B - 1)\, 2^{M}\Big) $$
#
# with $B = 3$ bits, $M = 3$ (the segment starts at bit 3) and $S = 3$ (the row starts three bits above
# it). As long as $S \ge B$ the bits that are XORed in stay as they are, so it is its own inverse, and no two
# elements meet in one place.

# %%
teaching.source("v3_swizzle", "template <int B, int M, int S> __device__ int swizzle", "}")

# %%
teaching.source("v3_swizzle", "static constexpr int B = exponent", "static constexpr int S = exponent")

# %% [markdown]
# ## Predict
#
# How many bank conflicts does v3 have on the problem on which v2 has so many, $B = 1$, $H = 2$, $N = M =
# 256$,
# $d = 64$?

# %%
conflicts_of_v3 = None

# %%
problem = ladder.Problem(1, 2, 256, 256, 64)
table = ladder.compare(problem, ["v2_warp_mma", "v3_swizzle"], backend="emulator")
teaching.check(
    conflicts_of_v3,
    int(table.set_index("stage").loc["v3_swizzle", "conflicts"]),
    hint="Reading K, V and P, storing S and O, reading S: has any of these passes two segments in one bank?",
    because="Every access of the kernel is free of conflicts, not only those of the largest tiles.",
)

# %% [markdown]
# Parameters that are right for one $d$ are wrong for another. At $d = 64$, take `swizzle<3, 3, 4>`, which
# is the right one for $d = 128$. Here the row starts *four* bits above the segment, so the number that is
# XORed in is
# $\lfloor r / 2 \rfloor$. How many conflicts has an `ldmatrix.x4`?

# %%
conflicts_of_the_wrong_swizzle = None

# %%
# Element numbers times 2 are bytes: M is one more on byte addresses.
k_address = "(lane / 16 * 8 + lane % 8) * 128 + lane / 8 % 2 * 16"
wrong = banks.explore("ldmatrix.x4", k_address, swizzle=banks.Swizzle(3, 4, 4))
teaching.check(
    conflicts_of_the_wrong_swizzle,
    wrong.service.conflicts,
    hint="Rows 0 and 1 get the same number, and so do 2 and 3, and so on. Count one pass, then four.",
    because="Two neighbouring rows meet: each pass takes 2 wavefronts, one of them a conflict, and there are four passes.",
)

# %% [markdown]
# And which swizzles would do? The explorer tries them all:

# %%
found = banks.explore("ldmatrix.x4", k_address)
print(f"row-major: {found.service.conflicts} conflicts; none is left with, on byte addresses:")
print(*found.remedies, sep="\n")

# %% [markdown]
# ## Measured, for each head dimension

# %%
for head_dim in (32, 64, 128):
    rows = ladder.compare(
        ladder.Problem(1, 2, 256, 256, head_dim), ["v2_warp_mma", "v3_swizzle"], backend="emulator"
    )
    print(f"d = {head_dim:3}: " + " -> ".join(f"{count:,}" for count in rows["conflicts"]) + " conflicts")

# %% [markdown]
# At $d = 128$ a row is 256 bytes, twice around the banks, and the three bits of the row are four bits
# above the segment:

# %%
gallery.layout(128)

# %% [markdown]
# ## Why does a profiler not say 0?
#
# On hardware the counter of bank conflicts also holds *lost arbitration*: an access that waits because
# another client of the same memory is served first. With one block an SM it is 0 or a handful. With a full
# grid the blocks of an SM meet all the time, and what the counter says of this kernel is arbitration
# alone. The lesson's [README](../stages/v3_swizzle/README.md) has the measurements. Ask the emulator,
# which knows addresses and nothing else, or a small grid.
#
# ## What is left

# %%
teaching.counts(table)

# %%
gallery.costs(["v3_swizzle"], problem)

# %%
teaching.times(["v2_warp_mma", "v3_swizzle"])

# %% [markdown]
# Every wavefront now carries data. The next question is whether all this data has to move: S is stored as
# fragments and read back as rows, and P goes the same way. And a warp still waits for its tile of K and V
# before it computes.
#
# **The bottleneck that the next rung removes:** S and P stay in registers, and K and V are brought while
# the tensor cores work on the tile before.
#
# **Practise:** `ladder exercise list` has kernels of this rung with a gap; their names begin with `v3`.
#
# **Next:** [04, the algorithm in tiles](04_v4_tk_tiles.ipynb).
