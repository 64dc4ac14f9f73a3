#!/usr/bin/env python3
"""Trains a small GPT with the ladder's attention and with others, and compares speeds and losses.

    python examples/train_gpt.py                          # GPT-2's size on a GPU, a tiny one without
    python examples/train_gpt.py --attention ladder sdpa flash_attn --steps 200 --out losses.csv

Each contender starts from the same weights and sees the same batches: bytes of the project's own texts. On a
GPU the matrices are bf16 by autocast. Tokens per second leave out the first steps, in which kernels are
compiled; on the emulator they say nothing about a GPU.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import ladder
from ladder.stages import root

#: Causal attention of (B, H, N, d) tensors.
Attention = Callable[[Tensor, Tensor, Tensor], Tensor]
_BYTES = 256
#: Steps before the clock starts.
_WARM_UP = 5


def _ladder(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return ladder.attention(q, k, v, is_causal=True)[0]


def _sdpa(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def _flash_attn(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    from flash_attn import flash_attn_func

    o: Tensor = flash_attn_func(*(x.transpose(1, 2) for x in (q, k, v)), causal=True)
    return o.transpose(1, 2)


ATTENTIONS: dict[str, Attention] = {"ladder": _ladder, "sdpa": _sdpa, "flash_attn": _flash_attn}


@dataclass(frozen=True)
class Sizes:
    """A GPT's sizes; ``width`` is that of a token's vector, ``context`` the number of tokens it sees."""

    layers: int
    heads: int
    width: int
    context: int
    batch: int


GPT2 = Sizes(layers=12, heads=12, width=768, context=1024, batch=16)
TINY = Sizes(layers=2, heads=2, width=64, context=32, batch=2)


class Block(nn.Module):
    """Attention, then two linear layers, each added to its normalised input."""

    def __init__(self, sizes: Sizes, attention: Attention) -> None:
        super().__init__()
        width = sizes.width
        self.attention, self.heads = attention, sizes.heads
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, width = x.shape
        qkv = self.qkv(self.norms[0](x)).view(batch, tokens, 3, self.heads, width // self.heads)
        o = self.attention(*(part.transpose(1, 2) for part in qkv.unbind(2)))
        x = x + self.out(o.transpose(1, 2).reshape(batch, tokens, width))
        out: Tensor = x + self.narrow(F.gelu(self.wide(self.norms[1](x))))
        return out


class GPT(nn.Module):
    """Predicts each next byte from those before it: (B, N) bytes -> (B, N, 256) logits."""

    def __init__(self, sizes: Sizes, attention: Attention) -> None:
        super().__init__()
        self.tokens = nn.Embedding(_BYTES, sizes.width)
        self.places = nn.Embedding(sizes.context, sizes.width)
        self.blocks = nn.Sequential(*(Block(sizes, attention) for _ in range(sizes.layers)))
        self.norm, self.head = nn.LayerNorm(sizes.width), nn.Linear(sizes.width, _BYTES, bias=False)
        for layer in self.modules():
            if isinstance(layer, nn.Linear | nn.Embedding):
                nn.init.normal_(layer.weight, std=0.02)

    def forward(self, text: Tensor) -> Tensor:
        x = self.tokens(text) + self.places.weight[: text.shape[1]]
        logits: Tensor = self.head(self.norm(self.blocks(x)))
        return logits


def batches(sizes: Sizes, steps: int) -> list[Tensor]:
    """One (B, N + 1) tensor of bytes per step: the same ones for every contender."""
    files = sorted(path for path in root().rglob("*") if path.suffix in (".md", ".cu", ".h"))
    text = torch.frombuffer(bytearray(b"".join(path.read_bytes() for path in files)), dtype=torch.uint8)
    generator = torch.Generator().manual_seed(0)
    begins = torch.randint(len(text) - sizes.context, (steps, sizes.batch, 1), generator=generator)
    return [text[rows + torch.arange(sizes.context + 1)].long() for rows in begins]


def train(
    sizes: Sizes, attention: Attention, data: Sequence[Tensor], device: str
) -> tuple[list[float], float]:
    """The loss of each step, and the tokens per second."""
    torch.manual_seed(0)
    model = GPT(sizes, attention).to(device)
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=device == "cuda")
    losses, began = [], 0.0
    for step, rows in enumerate(data):
        if step == min(_WARM_UP, len(data) - 1):
            began = _now(device)
        rows = rows.to(device)
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            logits = model(rows[:, :-1])
            loss = F.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
        losses.append(loss.detach())
    timed = len(data) - min(_WARM_UP, len(data) - 1)
    speed = timed * sizes.batch * sizes.context / (_now(device) - began)
    return [float(loss) for loss in losses], speed


def _now(device: str) -> float:
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def compare(names: Sequence[str], sizes: Sizes, steps: int, device: str) -> pd.DataFrame:
    """Prints each contender's speed and how far its losses are from the first one's; returns the losses."""
    data, curves = batches(sizes, steps), pd.DataFrame(index=pd.RangeIndex(steps, name="step"))
    for name in names:
        curves[name], speed = train(sizes, ATTENTIONS[name], data, device)
        apart = (curves[name] - curves[names[0]]).abs().max()
        first, last = curves[name].iloc[[0, -1]]
        print(
            f"{name:<12} {speed:12,.0f} tokens/s   loss {first:.4f} -> {last:.4f}   "
            f"at most {apart:.1e} from {names[0]}",
            flush=True,
        )
    return curves


def main() -> int:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    usual = GPT2 if device == "cuda" else TINY
    parser = argparse.ArgumentParser(description="Trains a small GPT with several attentions.")
    parser.add_argument("--attention", nargs="+", choices=ATTENTIONS, default=["ladder", "sdpa"])
    parser.add_argument("--steps", type=int, default=200 if device == "cuda" else 10)
    for name, value in vars(usual).items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--out", type=Path, help="the loss of each step, as CSV")
    options = parser.parse_args()
    sizes = Sizes(**{name: getattr(options, name) for name in vars(usual)})
    curves = compare(options.attention, sizes, options.steps, device)
    if options.out:
        curves.to_csv(options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
