#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Records the first losses of PyTorch on the models of `rubatoctl model new`: tests/e2e/losses.json.

usage: record_losses.py [STEPS] [CURVE]     needs python3-torch and python3-onnx; RUBATO_BUILD names the build

The first STEPS in float32, and curves of CURVE steps in float32 and under autocast to bfloat16.  Same weights (read from the ONNX file), same batches (the sample order is computed here from its
definition in data/order.h, not by Rubato), the modules written in plain PyTorch.  The test pytorch.py
makes the same models and data again and compares Rubato's losses with what is recorded.
"""
import json
import math
import os
import sys
import tempfile

import numpy
import onnx
import onnx.numpy_helper
import torch
import torch.nn as nn
import torch.nn.functional as F

import cases

torch.set_num_threads(1)


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.fc1, self.fc2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, time, width = x.shape
        q, k, v = (part.view(batch, time, self.heads, -1).transpose(1, 2)
                   for part in self.qkv(self.ln1(x)).split(width, dim=2))
        scores = q @ k.transpose(-2, -1) / math.sqrt(width // self.heads)
        scores = scores.masked_fill(torch.ones(time, time).triu(1).bool(), float("-inf"))
        mixed = (F.softmax(scores, dim=-1) @ v).transpose(1, 2).reshape(batch, time, width)
        x = x + self.proj(mixed)
        return x + self.fc2(F.gelu(self.fc1(self.ln2(x))))


class GPT(nn.Module):
    def __init__(self, vocab=256, layers=4, width=256, heads=4, seq=128):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, width), nn.Embedding(seq, width)
        self.blocks = nn.ModuleList([Block(width, heads) for _ in range(layers)])
        self.lnf, self.head = nn.LayerNorm(width), nn.Linear(width, vocab, bias=False)

    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.lnf(x)).transpose(1, 2)


class MLP(nn.Module):
    def __init__(self, inputs=784, hidden=1024, depth=2, classes=10):
        super().__init__()
        sizes = [inputs] + [hidden] * depth
        parts = []
        for before, after in zip(sizes, sizes[1:]):
            parts += [nn.Linear(before, after), nn.ReLU()]
        self.n = nn.Sequential(*parts, nn.Linear(hidden, classes))

    def forward(self, x):
        return self.n(x)


class CNN(nn.Module):
    def __init__(self, image=32, channels=3, classes=10, batchnorm=0):
        super().__init__()
        parts, before = [], channels
        for after in (32, 64, 128):
            parts.append(nn.Conv2d(before, after, 3, padding=1))
            if batchnorm:
                parts.append(nn.BatchNorm2d(after))
            parts += [nn.ReLU(), nn.MaxPool2d(2)]
            before = after
        self.c = nn.Sequential(*parts)
        self.f = nn.Sequential(nn.Linear(128 * (image // 8) ** 2, 256), nn.ReLU(), nn.Linear(256, classes))

    def forward(self, x):
        return self.f(self.c(x).flatten(1))


def load_weights(module, path):
    """Copy the ONNX initializers into the module by name; every parameter must be met."""
    tensors = {t.name: onnx.numpy_helper.to_array(t) for t in onnx.load(path).graph.initializer}
    state = module.state_dict()
    missing = [name for name, _ in module.named_parameters() if name not in tensors]
    if missing:
        sys.exit(f"{path} has no {missing}; it has {sorted(tensors)}")
    for name in state:
        if name in tensors:
            state[name] = torch.from_numpy(numpy.array(tensors[name]))
    module.load_state_dict(state)


def optimizer_of(spec, module):
    how = spec["train"]["optimizer"]
    if how["type"] == "sgd":
        return torch.optim.SGD(module.parameters(), lr=how["lr"], momentum=how["momentum"])
    matrices = [p for p in module.parameters() if p.dim() >= 2]
    others = [p for p in module.parameters() if p.dim() < 2]
    return torch.optim.AdamW([{"params": matrices, "weight_decay": how["weightDecay"]},
                              {"params": others, "weight_decay": 0.0}], lr=how["lr"])


def samples_of(kind, folder, spec):
    train = spec["data"]["train"]
    path = os.path.join(folder, train["path"])
    if kind == "gpt":
        data = numpy.fromfile(path, dtype="uint8").astype("int64")
        seq = train["seqLen"]
        count = (len(data) - 1) // seq
        return (numpy.stack([data[i * seq:(i + 1) * seq] for i in range(count)]),
                numpy.stack([data[i * seq + 1:(i + 1) * seq + 1] for i in range(count)]))
    return numpy.load(path), numpy.load(os.path.join(folder, train["targets"]))


def losses(kind, folder, steps, precision="fp32"):
    spec = cases.spec(kind, folder, steps)
    module = {"gpt": GPT, "mlp": MLP, "cnn": CNN}[kind](**cases.SETTINGS[kind])
    load_weights(module, os.path.join(folder, kind + ".onnx"))
    module.train()
    optimizer = optimizer_of(spec, module)
    features, targets = samples_of(kind, folder, spec)
    batch, seed, out = spec["train"]["globalBatch"], spec["train"].get("seed", 1), []
    for step in range(steps):
        chosen = [cases.sample(seed, len(features), step * batch + j) for j in range(batch)]
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bf16"):
            loss = F.cross_entropy(module(torch.from_numpy(features[chosen])), torch.from_numpy(targets[chosen]))
        loss.backward()
        optimizer.step()
        out.append(float(loss))
    return out


def main():
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 50
    curve = int(sys.argv[2]) if len(sys.argv) > 2 else 300
    recorded = {"torch": torch.__version__, "steps": steps, "losses": {}, "curves": {}}
    with tempfile.TemporaryDirectory() as folder:
        for kind in cases.SETTINGS:
            cases.make(kind, folder)
            recorded["losses"][kind] = losses(kind, folder, steps)
            recorded["curves"][kind] = {
                precision: [float(f"{loss:.5g}") for loss in losses(kind, folder, curve, precision)]
                for precision in ("fp32", "bf16")}
            print(kind, recorded["losses"][kind][0], "->", recorded["losses"][kind][-1], file=sys.stderr)
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "losses.json"), "w") as file:
        json.dump(recorded, file, indent=1)
        file.write("\n")


main()
