# %% [markdown]
# # 13 b1_two_kernels, b2_one_pass, b3_same_bits: gradients
#
# Training needs dQ, dK and dV. This is a ladder of its own, beside the one of the forward pass. Its kernels are
# larger: the first time, compiling them takes a minute or two.

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
from functools import partial

import torch
import torch.nn.functional as F
from torch import nn

import ladder
from ladder import lessons
from ladder.lessons import gallery, questions
from ladder.plots import training_picture

# %% [markdown]
# ## What has to be computed
#
# The forward pass made P and threw it away. But it kept `lse`, one number a row, and with it P is one product away:
#
# $$ P = e^{c\,QK^T - \mathrm{lse}}, \qquad dV = P^T dO, \qquad dP = dO\,V^T, \qquad dS = P \circ (dP - \delta),
# \qquad dQ = c\,dS\,K, \qquad dK = c\,dS^T Q $$
#
# Here $c$ is the scale, and $\delta_i = \sum_x dO_{ix} O_{ix}$ is again one number a row: the derivative of softmax
# subtracts it from dP, because the weights of a row add up to 1. No $N \times M$ matrix is stored, as in the forward
# pass.
#
# torch differentiates `ladder.attention` like any other function, on the emulator too:

# %%
tensors = [torch.randn(1, 1, 64, 64, generator=torch.Generator().manual_seed(n)).half() for n in range(3)]
q, k, v = (tensor.requires_grad_() for tensor in tensors)
o, lse = ladder.attention(q, k, v, stage="v3_swizzle")
[d_q] = torch.autograd.grad(o.sum(), q, retain_graph=True)
by_torch = F.scaled_dot_product_attention(q.double(), k.double(), v.double())
[expected] = torch.autograd.grad(by_torch.sum(), q)
print(f"largest difference of dQ: {(d_q - expected).abs().max():.1e}")

# %% [markdown]
# ## b1: two kernels
#
# dK and dV are sums over the queries, dQ is a sum over the keys. A sum stays in registers if the loop over its terms
# is inside one block. That cannot hold for both. So b1 has two kernels, one with the keys outside and one with the
# queries outside, and each computes P and dP for itself.
#
# The first computes S *transposed*, keys by queries. What a product leaves in registers has the layout of the next
# product's first factor: so $P^T$ and $dS^T$ never leave them.

# %%
lessons.source("b1_two_kernels", "mma_ABt(s, part<A::rows, d>(smem.k, key)", "mma_AB(dk, ds_16, q, dk);")

# %% [markdown]
# ### Predict
#
# For two heads with N = M = 128, d = 64, one product like $S = QK^T$ takes 1,024 `mma`. How many does b1 execute in
# all?

# %%
mma_of_b1 = None
lessons.predict("mma_of_b1", mma_of_b1)

# %% [markdown]
# ## b2: one pass
#
# The block that owns a tile of keys has all that dQ needs from them, $dS$ and $K$. So b2's one kernel computes the
# share of its keys and *adds* it, in global memory, to what the blocks of other keys add. That saves two products. The
# price is the additions: `red.global.add`, done in the L2 cache.

# %%
rungs = ["b1_two_kernels", "b2_one_pass", "b3_same_bits"]
table = ladder.compare(questions.GRADIENTS, rungs, backend="emulator")
lessons.after("mma_of_b1", lambda: lessons.counts(table))

# %%
gallery.costs(["b1_two_kernels", "b2_one_pass"], questions.GRADIENTS)

# %% [markdown]
# No access has a conflict, though Q and dO are read in two ways, by rows and by columns: one swizzle serves both.
#
# ## b3: the same bits
#
# In floating point $(a + b) + c$ is not $a + (b + c)$. b2's blocks add as they happen to run, so two runs differ in
# the last bits of dQ, and two trainings from the same seed drift apart. b3 makes them take turns, in the order of the
# keys: each tile of dQ has a counter, the number of the key tile whose turn it is.
#
# What if the block whose turn it is has not started, because the GPU is full of blocks that wait? CUDA promises no
# order. So a block takes its number when it starts, and not from `blockIdx`: every block with a lower number is
# running, or has run.

# %%
# %exercise b3_whose_turn

# %% [markdown]
# ## Training
#
# A transformer of one layer is to repeat a word: the text is 8 random letters, and then the same letters once more. Without
# attention it could only guess. Its attention is a function that it is given:


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
# Once with torch's attention, and once with `v6e_parts` forward and `b3_same_bits` backward on the emulator, from the same seed:

# %%
torch.set_num_threads(1)  # so small a model is faster on one


def by_the_ladder(q, k, v):
    o, _ = ladder.attention(q, k, v, is_causal=True, stage="v6e_parts", backward="b3_same_bits")
    return o


losses = {
    "torch": train(partial(F.scaled_dot_product_attention, is_causal=True)),
    "v6e_parts and b3_same_bits": train(by_the_ladder),
}
training_picture(losses)

# %% [markdown]
# The curves lie on top of each other: the two differ only in how they round. A model that only guesses has a loss of
# log 16 = 2.77; after 25 steps hardly anything is left of it.

# %%
apart = max(abs(ours - theirs) for ours, theirs in zip(*losses.values(), strict=True))
print(f"from {losses['torch'][0]:.2f} to {losses['torch'][-1]:.3f}, at most {apart:.3f} apart")

# %% [markdown]
# **Practise:** the exercises begin with `b1_`, `b2_`, `b3_` and `b4_`. **Read on:** the READMEs of
# [b1](../stages/b1_two_kernels/README.md), [b2](../stages/b2_one_pass/README.md) and
# [b3](../stages/b3_same_bits/README.md), and of [b4](../stages/b4_wgmma/README.md): the same on wgmma and TMA.
# **Next:** [14, attention without a softmax](14_h1_silu.ipynb). Run this lesson
# [on Colab](https://colab.research.google.com/github/flash-ladder/flash-ladder/blob/main/notebooks/13_b1_two_kernels.ipynb).
