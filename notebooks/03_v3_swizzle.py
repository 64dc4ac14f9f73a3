# %% [markdown]
# # 03 v3_swizzle: an XOR in the address
#
# One change to v2: tiles are stored in another order, so that the elements of a column are in different banks. This
# lesson derives the order. No conflict is left.

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
from ladder import banks, lessons
from ladder.lessons import gallery, questions

# %% [markdown]
# ## The whole difference
#
# `diff` of the two kernels, comments left out. Some of its lines are exercises, and hidden until you have solved them:

# %%
lessons.diff("v2", "v3")

# %% [markdown]
# ## The idea
#
# A tile at $d = 64$ has rows of 128 bytes: eight *segments* of 16 bytes, each in four banks. A row of an 8x8 tile of
# `ldmatrix` is one segment. In row-major order segment $c$ of every row is in the banks $4c$ to $4c + 3$, so the eight
# segments of a pass meet. Now put segment $c$ of row $r$ where segment $c \oplus (r \bmod 8)$ would be, where $\oplus$
# is the bitwise exclusive or. For a fixed $c$, eight consecutive rows give eight different numbers: no two of them
# meet. For a fixed $r$ it is a permutation of the row: nothing is lost, and reads along a row use all banks as before.
#
# From the addresses that the two kernels used:

# %%
gallery.layout(64)

# %% [markdown]
# ## As bits
#
# Let $a$ be the number of an element in the tile. Its bits are, for rows of 64 elements of 2 bytes:
#
# $$ a = \underbrace{\cdots r_2 r_1 r_0}_{\text{row}}\ \underbrace{c_2 c_1 c_0}_{\text{segment}}\
# \underbrace{e_2 e_1 e_0}_{\text{element in it}} $$
#
# and the three bits $r_2 r_1 r_0$ are to be XORed into $c_2 c_1 c_0$. `swizzle<B, M, S>` does that for any such
# layout: **B** bits are changed, the lowest of them is bit **M**, and the bits that are XORed into them stand **S**
# places higher. Here $B = 3$, $M = 3$ (the segment begins at bit 3) and $S = 3$ (the row begins three bits above it).
# As long as $S \ge B$ the bits that are XORed in stay as they are. So it is its own inverse, and no two elements meet
# in one place.

# %%
lessons.source("v3", "template <int B, int M, int S> __device__ int swizzle", "}")

# %% [markdown]
# Write it:

# %%
# %exercise v3_xor

# %% [markdown]
# What are B, M and S of a tile? They follow from the length of its rows:

# %%
lessons.source("v3", "static constexpr int bytes = kRows", "static_assert(bytes % 128 == 0")

# %% [markdown]
# ## Predict
#
# These are v2's counts at $B = 1$, $H = 3$, $N = 192$, $M = 200$, $d = 64$:

# %%
problem = questions.PROBLEM
lessons.counts(ladder.compare(problem, ["v2"], backend="emulator")).loc[
    ["wavefronts, loads", "wavefronts, stores", "conflicts, loads", "conflicts, stores"]
]

# %% [markdown]
# How many wavefronts does v3 have for this problem, loads plus stores?

# %%
wavefronts_of_v3 = None
lessons.predict("wavefronts_of_v3", wavefronts_of_v3)

# %% [markdown]
# Parameters that are right for one $d$ are wrong for another. At $d = 64$, take `swizzle<3, 3, 4>`, which is the right
# one for $d = 128$. Here the row starts *four* bits above the segment, so the number that is XORed in is $\lfloor r /
# 2 \rfloor$. How many conflicts does one `ldmatrix.x4` cause?

# %%
conflicts_of_the_wrong_swizzle = None
lessons.predict("wrong_swizzle", conflicts_of_the_wrong_swizzle)

# %% [markdown]
# And which swizzles would do? The explorer tries them all:

# %%
k_address = "(lane / 16 * 8 + lane % 8) * 128 + lane / 8 % 2 * 16"
found = banks.explore("ldmatrix.x4", k_address)
print(f"row-major: {found.service.conflicts} conflicts; none is left with, on byte addresses:")
print(*found.remedies, sep="\n")

# %% [markdown]
# ## Conflicts, for each head dimension

# %%
for head_dim in (32, 64, 128):
    rows = ladder.compare(ladder.Problem(1, 2, 256, 256, head_dim), ["v2", "v3"], backend="emulator")
    print(f"d = {head_dim:3}: " + " -> ".join(f"{count:,}" for count in rows["conflicts"]) + " conflicts")

# %% [markdown]
# At $d = 128$ a row is 256 bytes, twice around the banks, and the three bits of the row are four bits
# above the segment:

# %%
gallery.layout(128)

# %% [markdown]
# ## Why does a profiler not say 0?
#
# On hardware the counter of bank conflicts also includes *lost arbitration*: an access waits because another client of
# the same memory is served first. With one block per SM that happens rarely or never. With a full grid the blocks of an
# SM compete all the time, and all that the counter reports for this kernel is arbitration. The rung's
# [README](../stages/v3_swizzle/README.md) has the measurements. Use the emulator, which counts only by addresses, or
# measure a small grid.
#
# ## What is left

# %%
both = ladder.compare(problem, ["v2", "v3"], backend="emulator")
lessons.after("wavefronts_of_v3", lambda: lessons.counts(both))

# %%
lessons.after("wavefronts_of_v3", lambda: gallery.costs(["v3"], problem))

# %%
lessons.times(["v2", "v3"])

# %% [markdown]
# Every wavefront now carries data. The next question is whether the data must be moved so often: four warps share a
# tile of K and V, and each of them reads all of it.
#
# **The bottleneck that the next rungs remove:** a tile of K and V is loaded for 64 queries only.
#
# **Practise:** the exercises of this rung begin with `v3_`. **Read on:** the rung's
# [README](../stages/v3_swizzle/README.md). **Next:** [04, the algorithm in tiles](04_v4_tk_tiles.ipynb). Run this lesson
# [on Colab](https://colab.research.google.com/github/flash-ladder/flash-ladder/blob/main/notebooks/03_v3_swizzle.ipynb).
