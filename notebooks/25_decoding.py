# %% [markdown]
# # 25 Decoding: one query, a long cache
#
# A model that writes text computes attention for one token at a time. Its query is new; the keys and values of all
# tokens so far are in a *cache*. Most attention calls are of this kind. Decoding has a ladder of its own,
# `d1_split_kv` to `d6_fp8_cache`, because it has another limit: not the tensor cores, but the time to read K and V
# from memory.

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
from dataclasses import replace

import pandas as pd
import torch

import ladder
from ladder import lessons
from ladder.operations import DecodingProblem, get_operation
from ladder.show.plots import BLUE, new_figure


def counted(stage: str, problem: DecodingProblem) -> dict[str, int]:
    """The emulator's counts of a rung, and its launches' blocks."""
    found = ladder.evaluate(stage, problem, backend="emulator")
    assert found.passed
    grids = [x * y * z for x, y, z in (launch.grid for launch in found.execution.launches)]
    return {**found.row, "blocks": grids[0], "launches": len(grids)}


# %% [markdown]
# ## 1. Nothing but reading
#
# A key of head dimension $d$ in bf16 has $2 d$ bytes, and so has its value. One query multiplies and adds $d$ numbers
# of the key and $d$ of the value: $4 d$ operations for $4 d$ bytes. An H200 can do about 165 operations in the time
# in which it reads a byte. So with one query per key the tensor cores are idle more than 99% of the time. A perfect
# kernel takes as long as reading the cache once. For 32 sequences of 4,096 keys, 8 key heads and d = 128 that is 537
# MB. A kernel that only reads them takes 0.118 ms on an H200, at 4.55 TB/s.
#
# ## 2. A handful of blocks
#
# In the other ladders a block has the queries of one head. Now there is one query. One sequence has 32 heads and
# 131,072 keys. How many blocks read them, on a GPU with 132 multiprocessors?

# %%
blocks_that_read = None
lessons.predict("blocks_that_read", blocks_that_read)

# %% [markdown]
# **d1 splits the keys of a head over blocks.** Each split has the o and lse of its own keys. A second kernel merges
# them, as the ranks of [lesson 23](23_context_parallel.ipynb) merge theirs:
#
# $$ o = \sum_s e^{\mathrm{lse}_s - \mathrm{lse}} \, o_s, \qquad \mathrm{lse} = \log \sum_s e^{\mathrm{lse}_s} $$

# %%
lessons.source("d1", "/// Merges a row of the parts", "__device__ void merge_row")

# %%
# %exercise d1_merge

# %% [markdown]
# ## 3. How many splits?
#
# Blocks run in *waves*: as many at a time as fit on the GPU, its *slots*. A last wave with one block takes as long as
# a full one. More splits make blocks shorter, but each has a start, and a part that is stored, loaded and merged. Let
# that cost 2 steps. This is the time of 24 heads with 128 steps of keys each, in steps, on 264 slots:

# %%
HEADS, STEPS, SLOTS = 24, 128, 264
times = {}
for splits in range(1, 41):
    whole_waves, rest = divmod(HEADS * splits, SLOTS)
    longest, left = divmod(STEPS, splits)
    times[splits] = (whole_waves + bool(rest)) * (longest + bool(left) + 2)
figure = new_figure(9, 3.5)
axes = figure.subplots()
axes.bar([*times], [*times.values()], color=BLUE)
axes.set_xlabel("splits")
axes.set_ylabel("time in steps of keys")
axes.set_title(f"{HEADS} heads, {STEPS} steps of keys, {SLOTS} slots", loc="left")
figure

# %% [markdown]
# The time jumps up where a new wave begins. d1's host code searches for the fewest splits among the best. The
# emulator's virtual GPU has 108 multiprocessors; for this GPU the rule chooses:

# %%
chosen = {}
for heads, keys in ((1, 4096), (8, 4096), (64, 4096), (320, 1024)):
    blocks = counted("d1", DecodingProblem(1, heads, 1, keys, 64))["blocks"]
    chosen[f"{heads} heads, {keys:,} keys"] = {"splits": blocks // heads, "blocks": blocks}
pd.DataFrame(chosen).T

# %%
# %exercise d1_splits

# %% [markdown]
# ## 4. d2: a group in one tile
#
# A tile of the tensor cores has 16 rows, and one query fills one of them. In grouped-query attention several query
# heads share their keys. d1 has a block for each of them, and each block reads the keys. d2 puts the queries of all
# heads of a group into the rows of one tile. A sequence has 512 keys, 16 query heads and 2 key heads. How many times
# the sectors of K and V does d1 read?

# %%
times_as_many_sectors = None
lessons.predict("times_as_many_sectors", times_as_many_sectors)

# %%
grouped = DecodingProblem(1, 16, 1, 512, 64, kv_heads=2, num_splits=1)


def packing() -> pd.DataFrame:
    rows = {}
    for stage in ("d1_split_kv", "d2_packed"):
        row = counted(stage, grouped)
        rows[stage] = {
            "blocks": row["blocks"],
            "mma": row["mma_instructions"],
            "sectors read": row["global_sectors_ld"],
            "sectors of K and V at least": grouped.cache_bytes // 32,
        }
    return pd.DataFrame(rows).T


lessons.after("times_as_many_sectors", packing)

# %% [markdown]
# Beyond the minimum, d2 reads only Q. Packing a group moves no data: in q (B, H, N, d) its rows lie side by side.

# %%
# %exercise d2_rows

# %% [markdown]
# ## 5. d3: pages
#
# The final length of a text is not known in advance. So a sequence gets *pages* of the cache as it grows, and a table
# lists them. A warp's tile has 16 keys and page sizes are multiples of 16, so each tile lies in one page:

# %%
paged = DecodingProblem(2, 8, 1, 1200, 64, kv_heads=2, lengths=(1200, 333), num_splits=1)
pages = {}
for page_size in (0, 16, 64, 256):
    row = counted("d3", replace(paged, page_size=page_size))
    pages[f"pages of {page_size}" if page_size else "no pages"] = {
        "mma": row["mma_instructions"],
        "sectors read": row["global_sectors_ld"],
    }
pd.DataFrame(pages).T

# %% [markdown]
# The table is the only additional read: a warp reads 32 entries at a time, one per lane.
#
# The rows beyond a sequence's last key may hold anything, NaN for example. Their weights are 0, and $0 \cdot
# \mathrm{NaN} = \mathrm{NaN}$: hiding them in S is not enough. So they are loaded as zeros.

# %%
# %exercise d3_page

# %% [markdown]
# ## 6. d4: one launch, and the same bits in any batch
#
# The number of splits depends on the batch. So does the order of additions, and with it the last bits: the same
# sequence gives other bits by itself than in a batch.

# %%
some = (2100, 1300, 40, 250, 90, 7, 333, 520, 64, 111, 12, 700)
batch = DecodingProblem(12, 8, 1, 2100, 64, kv_heads=2, lengths=some, dtype="f16")
inputs = get_operation("decoding").make_inputs(batch)
q, k_cache, v_cache, lengths = (inputs[name] for name in ("q", "k_cache", "v_cache", "seqused_k"))
for stage in ("d3_paged", "d4_one_launch"):
    whole, _ = ladder.decode_attention(q, k_cache, v_cache, lengths, stage=stage)
    alone, _ = ladder.decode_attention(q[:1], k_cache[:1], v_cache[:1], lengths[:1], stage=stage)
    print(f"{stage:14} {int((alone[0] != whole[0]).sum()):4} of {alone.numel()} elements differ")

# %% [markdown]
# In d4 the size of a split depends only on the sequence's own length. Splits are work items of persistent blocks, so
# a long sequence does not delay the short ones. The block that stores the last part of some rows merges them, in the
# order of the keys. That takes a counter instead of a second launch:

# %%
skewed = DecodingProblem(4, 8, 1, 4096, 64, kv_heads=2, lengths=(4096, 64, 64, 64))
pd.DataFrame({stage: counted(stage, skewed) for stage in ("d3_paged", "d4_one_launch")}).loc[
    ["launches", "blocks", "global_sectors_ld"]
]

# %%
# %exercise d4_last

# %% [markdown]
# ## 7. d5: windows and sinks
#
# In many models most layers see only the last *W* keys. Keys that a window hides need not be read: d5's splits begin
# at the first tile that a query sees. Take a cache of 5,000 keys, a window of 500 and one query. The last 501 keys
# remain, in 32 tiles of 16.

# %%
cached = DecodingProblem(1, 8, 1, 5000, 64, kv_heads=2, is_causal=True)
windows = {}
for window in (None, 2000, 500, 0):
    row = counted("d5", replace(cached, window=window))
    windows["no window" if window is None else f"window of {window:,}"] = {
        "keys seen": 5000 if window is None else window + 1,
        "mma": row["mma_instructions"],
        "sectors read": row["global_sectors_ld"],
    }
pd.DataFrame(windows).T

# %% [markdown]
# A *sink* is a logit per head in the softmax's denominator, like one more key whose value is 0 ([lesson
# 24](24_x_variants.ipynb)). A row's keys are spread over splits, and a split's keys over four warps. Each warp has
# its own m and l. If all of them began with the sink, it would be counted many times. So it belongs to the first warp
# of the first split. Merging needs no change: the lse of this part contains the sink.

# %%
# %exercise d5_sink

# %% [markdown]
# ## 8. d6: a cache of 8 bits
#
# Decoding takes as long as reading the cache, and half the bytes are read in half the time. In *e4m3* an element has 8
# bits, and the largest number is 448. So each key head has a factor for its keys and one for its values. The program
# that writes the cache divides by it. In this example the keys of the second head are 30 times as large as the keys of
# the first head:

# %%
keys = torch.randn(1, 2, 512, 64) * torch.tensor([1.0, 30.0])[:, None, None]
k_descale = keys.abs().amax((0, 2, 3)) / 448
in_8_bits = (keys / k_descale[:, None, None]).to(torch.float8_e4m3fn)
off = in_8_bits.float() * k_descale[:, None, None] - keys
for head in range(2):
    print(f"head {head}: off by {float(off[:, head].norm() / keys[:, head].norm()):.1%} of the keys' size")

# %% [markdown]
# The products are d4's. An instruction converts two elements to f16 in registers, exactly. The factors are multiplied
# into the scale of the logits, and into the output at the end:

# %%
short = DecodingProblem(2, 8, 1, 1280, 128, kv_heads=2)
counts = {
    stage: counted(stage, replace(short, e4m3=stage[:2] == "d6"))
    for stage in ("d4_one_launch", "d6_fp8_cache")
}
pd.DataFrame(counts).loc[["global_sectors_ld", "ldmatrix_instructions", "mma_instructions"]]

# %%
# %exercise d6_scale

# %% [markdown]
# `ldmatrix` moves 16 bits at a time, here two elements. So a lane receives other columns than the tensor core expects
# of it. For K that does not matter: Q is loaded in the same order, and the sum over d has the same terms. V needs one
# byte permutation per four elements.

# %%
# %exercise d6_columns

# %% [markdown]
# ## 9. What the rungs bought
#
# These times were measured on an H100 in bf16, with d = 128, 32 query heads, 8 key heads and one query
# (`results/h100/decoding.csv`). The skewed batch is one sequence of 32,768 keys and 31 of 512:
#
# | | 32 x 4,096 keys | 1 x 131,072 keys | skewed |
# | --- | ---: | ---: | ---: |
# | only reading the cache | 173 µs | 172 µs | 65 µs |
# | d1, one split | 223 µs | 1,216 µs | 324 µs |
# | d1 | 252 µs | 319 µs | 103 µs |
# | d2 | 179 µs | 187 µs | 355 µs |
# | d3 | 180 µs | 189 µs | 445 µs |
# | d4 | 189 µs | 182 µs | 75 µs |
# | d6 | 112 µs | 98 µs | 50 µs |
# | torch cuDNN | 179 µs | 181 µs | |
#
# Splits help where there are few blocks. A group in one tile helps everywhere except in the skewed batch. There d4 is
# six times as fast as d3. A cache of 8 bits makes it 1.5 to 1.9 times as fast again.
#
# **What is left:** for 32 x 4,096 keys d4 takes 5% longer than d3. Between two work items a block issues no loads. d6
# does not wait for memory any more. It waits for its own products.
#
# ## 10. A model that writes
#
# The model is one layer with random weights, and a cache. Each token's key and value are written in place, and its
# query is decoded. Causal attention over the whole text at once must give the same:

# %%
torch.manual_seed(0)
TOKENS, HEADS, KV_HEADS, D = 24, 4, 2, 64
text = torch.randn(TOKENS, HEADS * D) / 4
to_q, to_k, to_v = (torch.randn(HEADS * D, n * D) / (HEADS * D) ** 0.5 for n in (HEADS, KV_HEADS, KV_HEADS))


def heads_of(x: torch.Tensor) -> torch.Tensor:
    """(tokens, heads * d) -> (1, heads, tokens, d)."""
    return x.unflatten(1, (-1, D)).transpose(0, 1)[None].half().contiguous()


k_cache = torch.zeros(1, KV_HEADS, TOKENS, D, dtype=torch.float16)
v_cache, length = torch.zeros_like(k_cache), torch.zeros(1, dtype=torch.int32)
written = []
for token in text.split(1):
    place = int(length)
    k_cache[:, :, place], v_cache[:, :, place] = (
        heads_of(token @ to_k)[:, :, 0],
        heads_of(token @ to_v)[:, :, 0],
    )
    length += 1
    o, _ = ladder.decode_attention(heads_of(token @ to_q), k_cache, v_cache, length)
    written.append(o)
at_once, _ = ladder.attention(
    *map(heads_of, (text @ to_q, text @ to_k, text @ to_v)), is_causal=True, enable_gqa=True
)
print(f"{TOKENS} tokens, largest difference {float((torch.cat(written, 2) - at_once).abs().max()):.5f}")

# %% [markdown]
# A draft model proposes several tokens at once; then up to 8 queries are checked in one call, with `is_causal=True`:
# they are the last tokens of their sequence, so the mask is aligned to the lower right.
#
# **Read on:** the READMEs of `d1_split_kv` to `d6_fp8_cache`, and [docs/python.md](../docs/python.md) for
# `ladder.decode_attention`. **Next:** [26, one softmax in three languages](26_three_languages.ipynb). Run this lesson
# [on Colab](https://colab.research.google.com/github/flash-ladder/flash-ladder/blob/main/notebooks/25_decoding.ipynb).
