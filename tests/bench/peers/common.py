# SPDX-License-Identifier: Apache-2.0
"""What the peers share: the reference GPT in plain PyTorch, its batches, and a log of committed steps.

usage: common.py MODEL.onnx WEIGHTS      write the initial weights of an ONNX model for torch.load
"""
import json
import math
import os
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "e2e"))
import cases  # noqa: E402

BATCH, SEQ = 16, 128


class Block(nn.Module):
    def __init__(self, width, heads, seq):
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.fc1, self.fc2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        mask = torch.full((seq, seq), float("-inf")).triu(1)  # no booleans: Gloo cannot broadcast them
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, x):
        batch, seq, width = x.shape
        parts = self.qkv(self.ln1(x)).view(batch, seq, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        scores = parts[0] @ parts[1].transpose(-2, -1) / math.sqrt(width // self.heads)
        mixed = F.softmax(scores + self.mask, dim=-1) @ parts[2]
        x = x + self.proj(mixed.transpose(1, 2).reshape(batch, seq, width))
        return x + self.fc2(F.gelu(self.fc1(self.ln2(x))))


class GPT(nn.Module):
    def __init__(self, vocab=256, layers=4, width=256, heads=4, seq=SEQ):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, width), nn.Embedding(seq, width)
        self.blocks = nn.Sequential(*(Block(width, heads, seq) for _ in range(layers)))
        self.lnf, self.head = nn.LayerNorm(width), nn.Linear(width, vocab, bias=False)
        self.register_buffer("places", torch.arange(seq), persistent=False)

    def forward(self, tokens):
        return self.head(self.lnf(self.blocks(self.wte(tokens) + self.wpe(self.places)))).flatten(0, 1)


class Trainer:
    """The model, its optimizer and its batches: step(net, rank, world) takes the next step."""

    def __init__(self, folder):
        torch.set_num_threads(1)
        self.model = GPT()
        self.model.load_state_dict(torch.load(os.path.join(folder, "weights.pt")))
        matrices = [p for p in self.model.parameters() if p.dim() >= 2]
        others = [p for p in self.model.parameters() if p.dim() < 2]
        self.optimizer = torch.optim.AdamW(
            [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}],
            lr=3e-4, betas=(0.9, 0.95))
        for parameter in self.model.parameters():  # as the first step would: there is something to receive into
            self.optimizer.state[parameter] = {"step": torch.tensor(0.0), "exp_avg": torch.zeros_like(parameter),
                                               "exp_avg_sq": torch.zeros_like(parameter)}
        with open(os.path.join(folder, "corpus.txt"), "rb") as file:
            self.data = torch.frombuffer(bytearray(file.read()), dtype=torch.uint8)
        self.samples = (len(self.data) - 1) // SEQ
        self.steps = 0  # committed

    def batch(self, rank, world):
        """This rank's part of the next step's batch: the same samples as Rubato's, whatever the world."""
        numbers = range(self.steps * BATCH + rank * BATCH // world, self.steps * BATCH + (rank + 1) * BATCH // world)
        starts = [cases.sample(1, self.samples, number) * SEQ for number in numbers]
        parts = torch.stack([self.data[start:start + SEQ + 1] for start in starts]).long()
        return parts[:, :-1], parts[:, 1:].flatten()

    def step(self, net, rank=0, world=1):
        """The loss of this rank's part."""
        tokens, targets = self.batch(rank, world)
        self.optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(net(tokens), targets)
        loss.backward()
        self.optimizer.step()
        self.steps += 1
        return loss.item()

    def tensors(self):
        """All state of training."""
        for parameter in self.model.parameters():
            state = self.optimizer.state[parameter]
            yield from (parameter.data, state["exp_avg"], state["exp_avg_sq"], state["step"])


class Log:
    """A line a committed step, and a line for whatever else is worth knowing the time of."""

    def __init__(self, folder, name):
        self.file = open(os.path.join(folder, name + ".log"), "a", buffering=1)

    def row(self, step, devices, configuration, loss):
        self.say("row", step=step, devices=devices, configuration=configuration, loss=loss)

    def say(self, kind, **more):
        print(json.dumps({"kind": kind, "time": time.time() * 1000, "pid": os.getpid(), **more}), file=self.file)


def convert(onnx_path, out):
    import numpy
    import onnx
    import onnx.numpy_helper
    tensors = {t.name: onnx.numpy_helper.to_array(t) for t in onnx.load(onnx_path).graph.initializer}
    torch.save({name: torch.from_numpy(numpy.array(tensors[name])) for name, _ in GPT().named_parameters()}, out)


if __name__ == "__main__":
    convert(*sys.argv[1:])
