"""Train a small GPT on characters: the language model that comes with cvm. Needs PyTorch.

    python tools/train_tiny_gpt.py TEXT -o weights.npz [--steps N] [--seed N]

The network is a GPT of 4 blocks of width 128 with 4 heads, a context of 256 characters and learnt positions: layer
normalisation before each half of a block, GELU, no dropout at the end. ``weights.npz`` holds its float32 weights under
the names of `parameters`, the characters of the vocabulary (``vocabulary``, code points in rising order), and the
losses on the last tenth of the text, which training never sees. It is written every 500 steps, so that a run that is
ended early leaves a model.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional

WIDTH, BLOCKS, HEADS, CONTEXT = 128, 4, 4, 256
BATCH = 16
DROPOUT = 0.1
WARMUP = 100
RATE, LAST_RATE = 2e-3, 1e-4
REPORT = 500


class Block(nn.Module):
    """Attention, then two dense layers; both read a normalised copy and add to the residual stream."""

    def __init__(self) -> None:
        super().__init__()
        self.first_norm, self.second_norm = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.query_key_value = nn.Linear(WIDTH, 3 * WIDTH)
        self.projection = nn.Linear(WIDTH, WIDTH)
        self.widen, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.dropout = nn.Dropout(DROPOUT)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The residual stream (batch, time, WIDTH) after this block."""
        batch, time, _ = x.shape
        parts = self.query_key_value(self.first_norm(x)).split(WIDTH, dim=2)
        q, k, v = (part.view(batch, time, HEADS, WIDTH // HEADS).transpose(1, 2) for part in parts)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.dropout(self.projection(mixed.transpose(1, 2).reshape(batch, time, WIDTH)))
        return x + self.dropout(self.narrow(functional.gelu(self.widen(self.second_norm(x)))))


class Gpt(nn.Module):
    """The network: from tokens (batch, time) to logits (batch, time, vocabulary)."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.embedding, self.position = nn.Embedding(vocabulary, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(BLOCKS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, vocabulary, bias=False)
        for name, weight in self.named_parameters():
            if weight.dim() == 2:
                deep = math.sqrt(2 * BLOCKS) if name.endswith(("projection.weight", "narrow.weight")) else 1
                nn.init.normal_(weight, std=0.02 / deep)
            elif name.endswith("bias"):
                nn.init.zeros_(weight)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """The logits of the character after each of the given ones."""
        x = self.embedding(tokens) + self.position(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def loss_of(model: Gpt, windows: torch.Tensor) -> torch.Tensor:
    """The mean cross entropy, in nats, of the characters after the first of each window."""
    logits = model(windows[:, :-1])
    return functional.cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten())


def drawn(text: torch.Tensor, count: int, generator: torch.Generator) -> torch.Tensor:
    """Windows of the text at random places."""
    starts = torch.randint(len(text) - CONTEXT - 1, (count,), generator=generator)
    return torch.stack([text[start : start + CONTEXT + 1] for start in starts.tolist()])


@torch.no_grad()
def held_out_loss(model: Gpt, text: torch.Tensor) -> float:
    """The loss on the first 64 windows of the held-out text, which lie side by side."""
    model.eval()
    windows = text[: 64 * CONTEXT + 1].unfold(0, CONTEXT + 1, CONTEXT)
    found = sum(float(loss_of(model, part)) * len(part) for part in windows.split(BATCH)) / len(windows)
    model.train()
    return found


def rate_at(step: int, steps: int) -> float:
    """The learning rate: a linear rise, then half a cosine."""
    if step < WARMUP:
        return RATE * (step + 1) / WARMUP
    done = (step - WARMUP) / max(1, steps - WARMUP)
    return LAST_RATE + (RATE - LAST_RATE) * (1 + math.cos(math.pi * done)) / 2


def write(path: Path, model: Gpt, vocabulary: list[int], losses: list[tuple[int, float]]) -> None:
    """Write the weights, the vocabulary and the losses (steps, nats per character)."""
    arrays = {name: weight.detach().numpy().astype(np.float32) for name, weight in model.named_parameters()}
    np.savez_compressed(path, vocabulary=np.array(vocabulary, np.int32), losses=np.array(losses), **arrays)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    text = given.text.read_text("utf-8")
    vocabulary = sorted({ord(character) for character in text})
    numbers = {code: number for number, code in enumerate(vocabulary)}
    tokens = torch.tensor([numbers[ord(character)] for character in text])
    seen, held_out = tokens[: len(tokens) * 9 // 10], tokens[len(tokens) * 9 // 10 :]
    torch.manual_seed(given.seed)
    generator = torch.Generator().manual_seed(given.seed)
    model = Gpt(len(vocabulary))
    decayed = [weight for weight in model.parameters() if weight.dim() == 2]
    others = [weight for weight in model.parameters() if weight.dim() != 2]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=RATE, betas=(0.9, 0.99))
    losses: list[tuple[int, float]] = []
    for step in range(given.steps):
        for group in optimizer.param_groups:
            group["lr"] = rate_at(step, given.steps)
        optimizer.zero_grad()
        loss = loss_of(model, drawn(seen, BATCH, generator))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if (step + 1) % REPORT == 0 or step + 1 == given.steps:
            losses.append((step + 1, held_out_loss(model, held_out)))
            print(f"step {step + 1}: {float(loss.detach()):.3f} seen, {losses[-1][1]:.3f} held out", flush=True)
            write(given.output, model, vocabulary, losses)


if __name__ == "__main__":
    main()
