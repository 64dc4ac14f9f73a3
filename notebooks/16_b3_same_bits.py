# %% [markdown]
# # 16 b3_same_bits: the same bits in every run
#
# b2's blocks add their shares of dQ in the order in which they happen to run. b3 fixes the order. The question is
# what that costs, and how a kernel waits without a deadlock. At the end a transformer trains with it.

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
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import ladder
from ladder import lessons
from ladder.lessons import questions
from ladder.show.plots import training_picture

# %% [markdown]
# ## Why bits differ
#
# In floating point $(a + b) + c$ is not $a + (b + c)$. Here are the same 1,000 numbers, added in fp32 in three
# orders:

# %%
numbers = np.random.default_rng(0).standard_normal(1000).astype(np.float32)


def added_up(order):
    total = np.float32(0)
    for number in numbers[order]:
        total += number
    return total


for seed in range(3):
    print(f"{added_up(np.random.default_rng(seed).permutation(1000)):.9f}")

# %% [markdown]
# ### Predict
#
# An fp32 number has 24 significant bits. What is $(10^8 + 1) - 10^8$ in fp32?

# %%
sum_of_three = None
lessons.predict("sum_of_three", sum_of_three)

# %% [markdown]
# So two runs of b2 on the same tensors differ in the last bits of dQ. Two trainings from the same seed differ
# everywhere after a few hundred steps, and a bug that shows once cannot be reproduced.
#
# ## Turns
#
# b3 adds in the order of the keys. Each tile of dQ has a counter: the number of the key tile that may add next. A block
# waits until the counter is its own number, adds, and sets the counter to the next number:

# %%
lessons.source(
    "b3",
    "/// Waits until the counter is `turn`.",
    "ptx::store_release(counter, turn);",
    file="ladder/turns.h",
)

# %%
# %exercise b3_whose_turn

# %% [markdown]
# **Release and acquire.** `store_release` makes the earlier writes of the block visible before the counter.
# `load_acquire` sees them once it sees the counter. Without this pair a block could read the new counter and still
# miss the additions before it.
#
# ## No deadlock
#
# A block waits for the block of the previous keys. What if this block has not started, because the GPU is full of
# blocks that wait? CUDA does not promise an order in which blocks start. So a block does not take its number from
# `blockIdx`, but from a counter when it starts. Then every block with a lower number is running or has finished:

# %%
lessons.source("b3", "/// The calling block's number, in the order in which blocks start.", "return number;")

# %% [markdown]
# ## No long wait
#
# All blocks go through the queries in the same direction, last ones first. So block j waits once, until block j - 1
# has done its first step. From then on it follows one step behind. The other direction would be slow under a causal
# mask: block j would start at its own first query, and wait until block 0 has reached that query.
#
# ### Predict
#
# 8 blocks of keys start at the same time, each goes through 8 tiles of queries, and a step takes one unit of time. Each
# block may take its step at a tile only after the block before it. When is the last block done?

# %%
steps_until_done = None
lessons.predict("steps_until_done", steps_until_done)

# %% [markdown]
# So block j waits for j steps, once. Meanwhile the GPU can run other blocks. The table shows the cost, in TFLOP/s on
# an H200 at B = 4, H = 16, N = M = 4096, bf16:

# %%
lessons.measured(["b1", "b2b", "b3"], "attention_backward")

# %% [markdown]
# The same bits cost 7 to 15% of b2b's speed. b1 is also deterministic, with seven products. At $d = 128$ b3 is faster
# than b1. At $d = 64$ b3 is slower than b1, so b1 is the better deterministic rung. The counts are b2b's, plus the
# accesses to the counters:

# %%
lessons.counts(ladder.compare(questions.GRADIENTS, ["b2b", "b3"], backend="emulator"))

# %% [markdown]
# ## Training
#
# A transformer of one layer learns to repeat a word: the text is 8 random letters, and then the same letters once
# more. Without attention it could only guess. The attention function is an argument of the model:

# %%
LETTERS, WORD, WIDTH, HEADS = 16, 8, 64, 2


class Transformer(nn.Module):
    def __init__(self, attention):
        super().__init__()
        self.attention = attention
        self.letters, self.places = nn.Embedding(LETTERS, WIDTH), nn.Embedding(2 * WORD, WIDTH)
        self.norm, self.qkv = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 3 * WIDTH)
        self.out, self.guess = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, LETTERS)

    def forward(self, text):
        x = self.letters(text) + self.places.weight[: text.shape[1]]
        heads = self.qkv(self.norm(x)).half().unflatten(2, (3, HEADS, WIDTH // HEADS))
        q, k, v = heads.permute(2, 0, 3, 1, 4).contiguous()
        o = self.attention(q, k, v).transpose(1, 2).flatten(2)
        return self.guess(x + self.out(o.float()))


def train(attention, steps=40):
    torch.manual_seed(0)
    model, losses = Transformer(attention), []
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for _ in range(steps):
        word = torch.randint(LETTERS, (16, WORD))
        text = torch.cat([word, word], 1)
        guesses = model(text[:, :-1])[:, WORD - 1 :]
        loss = F.cross_entropy(guesses.flatten(0, 1), word.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


# %% [markdown]
# The model trains twice from the same seed: with torch's attention, and with `v6e` forward and `b3_same_bits`
# backward on the emulator:

# %%
torch.set_num_threads(1)  # so small a model is faster on one


def by_the_ladder(q, k, v):
    o, _ = ladder.attention(q, k, v, is_causal=True, stage="v6e", backward="b3")
    return o


losses = {
    "torch": train(partial(F.scaled_dot_product_attention, is_causal=True)),
    "v6e_parts and b3_same_bits": train(by_the_ladder),
}
training_picture(losses)

# %% [markdown]
# The curves lie on top of each other: the two differ only in how they round. A model that only guesses has a loss of
# log 16 = 2.77.

# %%
apart = max(abs(ours - theirs) for ours, theirs in zip(*losses.values(), strict=True))
print(f"from {losses['torch'][0]:.2f} to {losses['torch'][-1]:.3f}, at most {apart:.3f} apart")

# %% [markdown]
# **What is left:** as in b2b, every fragment passes through registers. The next rungs compute gradients with `wgmma`.
# They start from b2b, so the last bits of their dQ differ again.
#
# **Practise:** the exercises begin with `b3_`. **Read on:** the rung's [README](../stages/gradients/b3_same_bits/README.md).
# **Next:** [17, gradients on Hopper](17_b4_wgmma.ipynb). Run this lesson [on
# Colab](https://colab.research.google.com/github/flash-ladder/flash-ladder/blob/main/notebooks/16_b3_same_bits.ipynb).
