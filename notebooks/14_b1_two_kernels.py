# %% [markdown]
# # 14 b1_two_kernels: gradients
#
# Training needs dQ, dK and dV. This is a ladder of its own, beside the one of the forward pass. Its kernels are
# larger: the first time, compiling one takes about a minute.

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
import torch
import torch.nn.functional as F

import ladder
from ladder import lessons
from ladder.lessons import gallery, questions

# %% [markdown]
# ## What has to be computed
#
# The forward pass discards P. But it stores `lse`, one number per row. With it, one product recomputes P:
#
# $$ P = e^{c\,QK^T - \mathrm{lse}}, \qquad dV = P^T dO, \qquad dP = dO\,V^T, \qquad dS = P \circ (dP - \delta),
# \qquad dQ = c\,dS\,K, \qquad dK = c\,dS^T Q $$
#
# Here $c$ is the scale. $\delta_i = \sum_x dO_{ix} O_{ix}$ is again one number per row. The derivative of softmax
# subtracts it from dP, because the weights of a row add up to 1. As in the forward pass, no $N \times M$ matrix is
# stored.
#
# torch differentiates `ladder.attention` like any other function, also on the emulator:

# %%
tensors = [torch.randn(1, 1, 64, 64, generator=torch.Generator().manual_seed(n)).half() for n in range(3)]
q, k, v = (tensor.requires_grad_() for tensor in tensors)
o, lse = ladder.attention(q, k, v, stage="v3", backward="b1")
[d_q] = torch.autograd.grad(o.sum(), q, retain_graph=True)
by_torch = F.scaled_dot_product_attention(q.double(), k.double(), v.double())
[expected] = torch.autograd.grad(by_torch.sum(), q)
print(f"largest difference of dQ: {(d_q - expected).abs().max():.1e}")

# %% [markdown]
# ## Sums in two directions
#
# dK and dV are sums over the queries. dQ is a sum over the keys. A sum stays in registers if one block loops over all
# its terms. One kernel cannot do this for both directions. So b1 has two kernels, and each computes P and dP for
# itself:
#
# | kernel | parallel over, kept in registers | loop over | products |
# |---|---|---|---|
# | `gradients_of_keys` | keys: dK, dV | queries | S, dP, dV, dK |
# | `gradient_of_queries` | queries: dQ | keys | S, dP, dQ |
#
# ## Transposed
#
# The first kernel computes S *transposed*, keys by queries. The accumulator of a product has the layout of the next
# product's operand A. So $P^T$ and $dS^T$ never leave their registers:

# %%
lessons.source("b1", "mma_ABt(s, part<A::rows, d>(smem.k, key)", "mma_AB(dk, ds_16, q, dk);")

# %% [markdown]
# There is no maximum, no sum and no rescaling: with `lse`, P is normalised at once. lse and delta belong to a query,
# which is a *column* of $S^T$.
#
# ### Predict
#
# For two heads with N = M = 128, $d = 64$, one product such as $S = QK^T$ takes 1,024 `mma`. How many does b1 execute
# in all?

# %%
mma_of_b1 = None
lessons.predict("mma_of_b1", mma_of_b1)

# %%
table = ladder.compare(questions.GRADIENTS, ["b1"], backend="emulator")
lessons.after("mma_of_b1", lambda: lessons.counts(table))

# %% [markdown]
# No access has a conflict, although Q and dO are read in two ways, by rows and by columns: `ldmatrix` and
# `ldmatrix.trans` read the same eight rows of 16 bytes, so one swizzle serves both.

# %%
gallery.costs(["b1"], questions.GRADIENTS)

# %% [markdown]
# ## What it reaches
#
# These are TFLOP/s on an H200 at B = 4, H = 16, N = M = 4096, bf16. The operations of five products are counted, even
# if a kernel executes more:

# %%
lessons.measured(["b1", "torch flash", "torch cuDNN"], "attention_backward")

# %% [markdown]
# At $d = 64$ b1 is faster than FlashAttention-2, and cuDNN is 1.5 to 1.6 times as fast as b1. At $d = 128$ cuDNN is 2
# times as fast. In return for the two extra products, no block adds to the output of another block. So there are no
# atomics, and the gradients have the same bits in every run.
#
# **The bottleneck that the next rungs remove:** S and dP are computed twice. And at $d = 128$ each fragment that is
# loaded from shared memory serves only one pair of `mma`.

# %% [markdown]
# **Practise:** the exercises begin with `b1_`. **Read on:** the READMEs of [b0](../stages/gradients/b0_scalar/README.md), the
# formulas in fp32, and of [b1](../stages/gradients/b1_two_kernels/README.md). **Next:** [15, gradients in one
# pass](15_b2_one_pass.ipynb). Run this lesson [on
# Colab](https://colab.research.google.com/github/flash-ladder/flash-ladder/blob/main/notebooks/14_b1_two_kernels.ipynb).
