#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The models of tests/gpu/speed.py by PyTorch; a process runs one of them, in one way.

usage: pytorch.py gpt|small|resnet fp32|bf16|bf16-compiled SIZES

The same work as Rubato's: the GPT of `rubatoctl model new gpt` (exact GELU, a head that shares nothing with the
embedding), two microbatches a step, gradients added up, one step of the optimizer.  The last line is
RESULT {"rate": of tokens or images a second, "allocated": GB at most}."""
import json
import os
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F

MICROBATCHES = 2


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.a, self.b = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        q, k, v = (t.view(*x.shape[:2], self.heads, -1).transpose(1, 2) for t in self.qkv(self.a(x)).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(x.shape)
        x = x + self.out(y)
        return x + self.down(F.gelu(self.up(self.b(x))))


class Gpt(nn.Module):
    def __init__(self, sequence, vocabulary, layers, heads, width, **_):
        super().__init__()
        self.token, self.place = nn.Embedding(vocabulary, width), nn.Embedding(sequence, width)
        self.blocks = nn.Sequential(*[Block(width, heads) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, x, t):
        h = self.norm(self.blocks(self.token(x) + self.place.weight))
        return F.cross_entropy(self.head(h).flatten(0, 1).float(), t.flatten())


class Classifier(nn.Module):
    """Images and their classes to a loss."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, x, t):
        return F.cross_entropy(self.module(x).float(), t)


def make_gpt(sizes):
    model = Gpt(**sizes).cuda()
    shape = sizes["batch"], sizes["sequence"]
    x, t = (torch.randint(sizes["vocabulary"], shape, device="cuda") for _ in range(2))
    return model, torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True), x, t, x.numel()


def make_resnet(_):
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../models"))
    import vision

    torch.backends.cudnn.benchmark = True
    model = Classifier(vision.ResNet(vision.Bottleneck, (3, 4, 6, 3), width=64)).cuda()
    model = model.to(memory_format=torch.channels_last)
    x = torch.randn(128, 3, 64, 64, device="cuda").to(memory_format=torch.channels_last)
    t = torch.randint(10, (128,), device="cuda")
    return model, torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9, fused=True), x, t, len(t)


def run(name, way, sizes):
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    model, optimizer, x, t, samples = make_resnet(sizes) if name == "resnet" else make_gpt(sizes)
    model.train()
    loss_of = torch.compile(model) if way.endswith("compiled") else model

    def step():
        for _ in range(MICROBATCHES):
            with torch.autocast("cuda", torch.bfloat16, enabled=way.startswith("bf16")):
                loss = loss_of(x, t) / MICROBATCHES
            loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    def seconds(steps):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(steps):
            step()
        torch.cuda.synchronize()
        return time.perf_counter() - start

    seconds(5)
    torch.cuda.reset_peak_memory_stats()
    steps = max(8, min(200, int(3 / seconds(3) * 3)))  # they take some seconds
    rate = MICROBATCHES * samples * steps / seconds(steps)
    print("RESULT " + json.dumps({"rate": rate, "allocated": torch.cuda.max_memory_allocated() / 1e9}), flush=True)


run(sys.argv[1], sys.argv[2], json.loads(sys.argv[3]))
