# %% [markdown]
# # 24 x1 to x4: windows, sinks, softcaps, packing
#
# Models use more than plain attention. A *sliding window* hides all but the last keys. A *sink* takes a part of the
# softmax's weight. A *softcap* bounds the logits. Texts of different lengths are *packed* into one tensor.
# FlashAttention has all of these, and so do the x rungs: x2 is v12c with one more idea, and x1, x3 and x4 are x2 with
# one more. Their gradients, x1b to x4b, add the same ideas to b5e.

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
import math

import pandas as pd
import torch

import ladder
from ladder import lessons
from ladder.show.plots import BLUE, new_figure

torch.manual_seed(0)


def counted(stage, problem, *columns):
    """What a rung counts on a problem."""
    table = ladder.compare(problem, [stage], backend="emulator")
    assert table["passed"].all()
    return [int(table[column][0]) for column in columns]


# %% [markdown]
# ## 1. A window: a first tile as well as a last one
#
# With a window (left, right), query i sees the key at its own position, `left` keys before it and `right` keys after
# it. The position is aligned to the lower right: the last query is at the last key. -1 means no limit, so (-1, 0) is
# a causal mask.

# %%
QUERIES, MASKS = 12, {"(-1, 0)": (-1, 0), "(3, 0)": (3, 0), "(2, 2)": (2, 2)}


def seen(queries, keys, window):
    """Which keys each query sees."""
    left, right = (queries + keys if side < 0 else side for side in window)
    ahead = torch.arange(keys) - (torch.arange(queries)[:, None] + keys - queries)
    return (ahead >= -left) & (ahead <= right)


figure = new_figure(11, 4)
for axes, (title, window) in zip(figure.subplots(1, len(MASKS)), MASKS.items(), strict=True):
    axes.imshow(seen(QUERIES, QUERIES, window), cmap="cividis")
    axes.set_title(f"window {title}", fontsize=14)
    axes.set_xlabel("key")
    axes.set_ylabel("query")
figure

# %% [markdown]
# A window is a band of diagonals. A consumer has 64 consecutive rows. Under the window (127, 0), how many keys does
# at least one of these rows see, somewhere in the middle of a long sequence?

# %%
keys_of_64_rows = None
lessons.predict("keys_of_64_rows", keys_of_64_rows)

# %% [markdown]
# So the number of products no longer grows with the square of the length. The table counts one head of 1,024 queries
# and keys, for narrower and narrower windows:

# %%
LONG = (1, 1, 1024, 1024, 64)
windows = [(1023, 0), (511, 0), (255, 0), (127, 0), (0, 0)]
rows = [
    counted("x2", ladder.Problem(*LONG, window=window), "wgmma_instructions", "tma_load_instructions")
    for window in windows
]
pd.DataFrame(
    rows, index=[f"window {left},{right}" for left, right in windows], columns=["wgmma", "TMA loads"]
)

# %% [markdown]
# Even one key per query, (0, 0), costs each consumer the tiles that its 64 rows touch: tiles are the unit. Two things
# are new in the kernel. The producer begins with the first tile that any row of the item sees. A consumer skips tiles
# before its own first tile, as it already skipped tiles after its last tile:

# %%
lessons.source("x2", "/// The first key that a row sees", "min(mask.kv_len, row + mask.end)")

# %%
lessons.source("x2", "key = first_key(max(row, 0));", "end = end_key(row + A::block_rows - 1);")

# %%
# %exercise x2_tiles

# %% [markdown]
# A row may see no key at all: with more queries than keys, the first rows lie before key 0. Such a row has o = 0 and
# lse = -inf, and its gradients are 0. The backward pass inverts the window: key j is seen by the queries j - right to
# j + left.

# %%
# %exercise x2b_tiles

# %% [markdown]
# ## 2. A sink: one more term in the sum
#
# Softmax must give its weight to some key, even if none fits. Models learn to give it to the first token, the
# *attention sink*. With a sliding window that token is out of sight. gpt-oss has a learned number per head instead: a
# logit $z$ that belongs to no key.
#
# $$ p_j = \frac{e^{s_j}}{e^{z} + \sum_k e^{s_k}}, \qquad \mathrm{lse} = \log\Big(e^{z} + \sum_k e^{s_k}\Big) $$
#
# A row sees three keys, whose logits are all 0, and the sink is also 0. How much weight does each key get, in
# percent?

# %%
percent_of_each_key = None
lessons.predict("percent_of_each_key", percent_of_each_key)

# %% [markdown]
# The sink is a key with the value 0. So online softmax can treat it as a first key that is always there: m starts at
# the sink, and l at 1. That is nearly all that changes in the kernel:

# %%
lessons.diff("x2", "x3")

# %%
# %exercise x3_start

# %% [markdown]
# Rows without keys then have a finite lse, the sink itself:

# %%
q, k, v = (torch.randn(1, 2, rows, 64).half() for rows in (4, 2, 2))
sinks = torch.tensor([0.5, -1.0])
o, lse = ladder.attention(q, k, v, window_size=(-1, 0), sinks=sinks)
lse[0].round(decimals=3)

# %% [markdown]
# The first two of four queries are before key 0. The gradient of the sink costs one small kernel, because lse and
# delta are already in memory.

# %%
# %exercise x3b_delta

# %% [markdown]
# ## 3. A softcap: a second special function
#
# Gemma 2 keeps logits between -c and c: $s \to c \tanh(s / c)$. Small logits stay nearly as they are.

# %%
c, s = 50.0, torch.linspace(-150, 150, 301)
figure = new_figure(6, 3.2)
axes = figure.subplots()
axes.plot(s, s, color="0.7", linewidth=1)
axes.plot(s, c * torch.tanh(s / c), color=BLUE)
axes.set_ylim(-80, 80)
axes.set_xlabel("logit")
axes.set_title("c tanh(s / c), c = 50", loc="left")
figure

# %% [markdown]
# `tanh.approx` is one instruction. The factor c is applied after the maximum, in a fused multiply-add. But the exp
# unit computes both `tanh` and `exp2`, 16 values per cycle and SM. How many cycles do both functions take for a tile
# of 64 x 80 logits?

# %%
special_function_cycles = None
lessons.predict("special_function_cycles", special_function_cycles)

# %% [markdown]
# The tensor cores compute 4,096 operations per cycle and SM in bf16. At d = 128, the two products of that tile take
# this many cycles:

# %%
lessons.after("special_function_cycles", lambda: 4 * 64 * 80 * 128 / 4096)

# %% [markdown]
# Both units have the same work. Without a cap the softmax takes half of the products' time and hides under them. With
# a cap, both take the same time, so whenever one unit waits, time is lost. The table shows the cost, in TFLOP/s on an
# H100 at B = 4, H = 16, N = M = 4096 in bf16. In brackets is the ratio to v12c's speed; masks with a right side of 0
# are compared with its causal speed:

# %%
lessons.measured_options(["x2", "x3", "x4", "x1"])

# %% [markdown]
# Two more rungs reduce this cost in bf16. The cap bounds the logits, so *x4c* needs no running maximum: it subtracts
# the same number in all rows, and never rescales O. *x4d* computes tanh of small logits as a cubic polynomial on the
# FMA units, so one special function per logit is left. On an H100 at $d = 128$ without a mask, v12c computes 720
# TFLOP/s without a cap. With a cap of 50, x4 computes 469, x4c 542 and x4d 618 (`results/h100/options.csv`).
#
# The gradient needs the slope of tanh, $1 - T^2$ with $T = \tanh(s / c)$. But no register is free to keep T until
# then.

# %%
# %exercise x4_cap

# %%
# %exercise x4b_slope

# %% [markdown]
# ## 4. Packing: sequences of different lengths
#
# A batch of texts is padded to its longest one, or packed: the tokens of all sequences follow each other in one
# tensor, and offsets say where each begins. How much of a padded batch is padding?

# %%
lengths = [8192, 4096, 1024, 1024, 512, 512, 512, 256, 128, 128]
tokens, pairs = sum(lengths), sum(n * n for n in lengths)
padded = len(lengths) * max(lengths)
print(
    f"tokens: {1 - tokens / padded:.0%} padding, pairs of tokens: {1 - pairs / (padded * max(lengths)):.0%}"
)

# %% [markdown]
# The lengths are numbers on the GPU, and the host cannot read them when it launches. So blocks must find their work
# themselves. A work item is a tile of 192 queries of one head. How many are there per head, for sequences of 200, 0
# and 65 queries?

# %%
items_of_sequences = None
lessons.predict("items_of_sequences", items_of_sequences)

# %% [markdown]
# x1's producer goes through the offsets and subtracts each sequence's tiles from the item's number. It writes the
# result beside Q. Only items that exist have numbers, so short sequences cost nothing:

# %%
lessons.source("x1", "const WorkItem item(problem, A::block_rows, number);", "q_turn.advance();")

# %%
q_lens, kv_lens = (200, 0, 65), (150, 7, 90)
packed = ladder.Problem(3, 2, 200, 150, 64, window=(-1, 0), q_lens=q_lens, kv_lens=kv_lens)
batch = ladder.Problem(3, 2, 200, 150, 64, window=(-1, 0))
columns = ("wgmma_instructions", "tma_load_instructions", "tma_store_instructions")
pd.DataFrame(
    {
        "x1, packed": counted("x1", packed, *columns),
        "x2, padded": counted("x2", batch, *columns),
    },
    index=["wgmma", "TMA loads", "TMA stores"],
)

# %% [markdown]
# The last tile of a sequence reaches into the next sequence. Rows loaded from there could be masked, but rows stored
# there would overwrite the other sequence's o. A *jagged* tensor map makes TMA itself stop at the end of a sequence,
# by one more dimension in the map: see `JaggedMap` in `stages/include/tiles/tma.h`.

# %%
# %exercise x1_corner

# %% [markdown]
# The gradient needs a workspace per row, and rows in whole tiles. So x1b pads the sequences, but only in the
# workspace. Each tile needs a place of its own, which a block must find without adding up all lengths. Sequence b
# begins with the number `offsets[b] / rows + b`. Rounding down loses less than one tile per sequence, and `+ b` gives
# it back:

# %%
ROWS, offsets = 128, [0]
for length in (100, 0, 193, 64, 70):
    offsets.append(offsets[-1] + length)
places = {}
for b, (begin, end) in enumerate(itertools.pairwise(offsets)):
    first = begin // ROWS + b
    places[b] = [*range(first, first + math.ceil((end - begin) / ROWS))]
print("tiles of each sequence:", places)
print("numbers:", offsets[-1] // ROWS + len(offsets) - 1)

# %% [markdown]
# Called like torch's own:

# %%
heads, d = 2, 64
query, key, value = (
    torch.randn(tokens, heads, d).half().requires_grad_()
    for tokens in (sum(q_lens), sum(kv_lens), sum(kv_lens))
)
of_queries, of_keys = (
    torch.tensor([0, *torch.tensor(lens).cumsum(0)], dtype=torch.int32) for lens in (q_lens, kv_lens)
)
o = ladder.varlen_attention(query, key, value, of_queries, of_keys, 200, 150, window_size=(-1, 0))
o.float().square().sum().backward()
print("keys of the sequence without queries:", key.grad[150:157].abs().max().item())
print("another sequence's keys:", round(key.grad[:150].abs().max().item(), 2))

# %% [markdown]
# ## 5. Two head dimensions
#
# In DeepSeek's MLA a key has 192 elements, and its value 128. Padding V to 192 would take 1.2 times the operations.
# *x5* is v12c with tiles of two widths: K and V have types of their own. On an H100 it is 1.13 times as fast as cuDNN
# without a mask, and 1.08 times with a causal one (`results/h100/two_dims.csv`, B = 4, H = 16, N = M = 4096).
#
# **What is left:** narrow windows. With a window of (127, 0), the rungs reach 0.22 to 0.26 of v12c's causal speed.
#
# **Practise:** `ladder exercise start x2_tiles`, then `x2b_tiles`, `x3_start`, `x3b_delta`, `x4_cap`, `x4b_slope` and
# `x1_corner`. **Read on:** the READMEs of [x1](../stages/variants/x1_varlen/README.md), [x2](../stages/variants/x2_window/README.md),
# [x3](../stages/variants/x3_sink/README.md), [x4](../stages/variants/x4_softcap/README.md),
# [x4c](../stages/variants/x4c_fixed_reference/README.md), [x4d](../stages/variants/x4d_cubic/README.md) and
# [x5](../stages/variants/x5_two_dims/README.md), and of their gradients, [x1b](../stages/variants/x1b_varlen_gradients/README.md),
# [x2b](../stages/variants/x2b_window_gradients/README.md), [x3b](../stages/variants/x3b_sink_gradient/README.md) and
# [x4b](../stages/variants/x4b_softcap_gradients/README.md). **Next:** [25, decoding](25_decoding.ipynb). Run this lesson [on
# Colab](https://colab.research.google.com/github/flash-ladder/flash-ladder/blob/main/notebooks/24_x_variants.ipynb).
