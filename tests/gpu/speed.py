#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What a step of GPT-2 124M (sequence 1024) takes on one GPU, and beside it PyTorch where it is installed.

Prints lines of the table of tests/gpu/run.  Rubato's is float32 in full precision; PyTorch is timed so, and
compiled in bfloat16 with flash attention, which is what is to be reached."""
import os
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../e2e"))
import cluster  # noqa: E402

SEQUENCE, VOCABULARY, LAYERS, HEADS, WIDTH, BATCH, STEPS = 1024, 50257, 12, 12, 768, 4, 12
FLOPS = 6 * 124.4e6 + 12 * LAYERS * WIDTH * SEQUENCE  # a token, forward and backward


def table(name, rate, note=""):
    print(f"TABLE {name:34} {rate:8.0f} tokens/s, {rate * FLOPS / 1e12:.1f} TFLOP/s{note}", flush=True)


def rubato():
    with cluster.Cluster(devices=0) as c:
        c.model("gpt", layers=LAYERS, width=WIDTH, heads=HEADS, seq=SEQUENCE, vocab=VOCABULARY)
        with open(c.path("corpus.txt"), "w") as file:
            for i in range(40000):
                file.write(f"{i * i % 9973} is what {i} squared leaves. ")
        c.submit("gpt", {
            "model": {"onnx": "gpt.onnx"},
            "data": {"train": {"path": "corpus.txt", "format": "text", "seqLen": SEQUENCE}},
            "train": {"steps": STEPS, "globalBatch": 2 * BATCH, "microBatch": BATCH,
                      "optimizer": {"type": "adamw", "lr": 1.0e-4}},
            "devices": {"min": 1, "max": 1, "want": 1, "kind": "cuda"}})
        c.wait("gpt", "done", 120)
        took = sorted(row["step_ms"] for row in c.metrics("gpt")[3:])[(STEPS - 3) // 2]
        table("Rubato float32", 2 * BATCH * SEQUENCE / took * 1000, f", {took:.1f} ms a step")


PYTORCH = """
import sys, time, torch
from torch import nn
from torch.nn import functional as F
sequence, vocabulary, layers, heads, width, batch, flops = map(float, sys.argv[1:8])
sequence, vocabulary, layers, heads, width, batch = map(int, (sequence, vocabulary, layers, heads, width, batch))

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
    def forward(self, x):
        q, k, v = (t.view(*x.shape[:2], heads, -1).transpose(1, 2) for t in self.qkv(self.a(x)).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(x.shape)
        x = x + self.out(y)
        return x + self.down(F.gelu(self.up(self.b(x)), approximate="tanh"))

class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.token, self.place = nn.Embedding(vocabulary, width), nn.Embedding(sequence, width)
        self.blocks, self.norm = nn.Sequential(*[Block() for _ in range(layers)]), nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.token.weight
    def forward(self, x, t):
        h = self.norm(self.blocks(self.token(x) + self.place.weight))
        return F.cross_entropy(self.head(h).flatten(0, 1).float(), t.flatten())

def time_of(bf16, compiled):
    torch.backends.cuda.matmul.allow_tf32 = False
    model = Gpt().cuda()
    run = torch.compile(model) if compiled else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    x, t = (torch.randint(256, (batch, sequence), device="cuda") for _ in range(2))
    def step():
        for _ in range(2):
            with torch.autocast("cuda", torch.bfloat16, enabled=bf16):
                loss = run(x, t) / 2
            loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    for _ in range(4):
        step()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(8):
        step()
    torch.cuda.synchronize()
    return 2 * batch * sequence * 8 / (time.perf_counter() - start)

for name, bf16, compiled in ("PyTorch float32", False, False), ("PyTorch bfloat16, compiled", True, True):
    rate = time_of(bf16, compiled)
    print(f"TABLE {name:34} {rate:8.0f} tokens/s, {rate * flops / 1e12:.1f} TFLOP/s", flush=True)
"""


def pytorch():
    with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
        file.write(PYTORCH)
        file.flush()
        environment = {key: value for key, value in os.environ.items() if key != "LD_LIBRARY_PATH"}
        done = subprocess.run(["python3", file.name, *map(str, (SEQUENCE, VOCABULARY, LAYERS, HEADS, WIDTH, BATCH, FLOPS))],
                              capture_output=True, text=True, timeout=100, env=environment)
    print(done.stdout, end="")
    if done.returncode:
        print("TABLE PyTorch: " + (done.stderr.strip().splitlines() or ["?"])[-1][:120])


start = time.monotonic()
rubato()
pytorch()
print(f"{time.monotonic() - start:.0f} s")
