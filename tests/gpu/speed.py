#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What training steps take on one GPU, where the time goes, and beside it PyTorch where it is installed.

usage: speed.py gpt | resnet | resizes | plan

Prints lines of the table of tests/gpu/run.  gpt: GPT-2 124M at sequence 1024, steps of two microbatches of 8.
resnet: ResNet-50 on 64 x 64 pixels, of two of 128; from RUBATO_RESNET, which tests/gpu/resnet.py has made.
resizes: changes of devices of a GPT, with two ranks on the one GPU.
plan: what `profile` and `plan` say of a GPT on one GPU, beside the step that it had."""
import os
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../e2e"))
import cluster  # noqa: E402

SEQUENCE, VOCABULARY, LAYERS, HEADS, WIDTH, BATCH = 1024, 50257, 12, 12, 768, 8
FLOPS = 6 * 124.4e6 + 12 * LAYERS * WIDTH * SEQUENCE  # a token, forward and backward
TIMES = os.path.join(cluster.BUILD, "tests/gpu/gpu-times")


def times(case, precision, limit):
    """The program's own lines; returns samples a second."""
    done = subprocess.run([TIMES, case, precision], capture_output=True, text=True, timeout=limit)
    print(done.stdout, end="")
    if done.returncode:
        print("TABLE   " + (done.stderr.strip().splitlines() or ["?"])[-1][:160])
        sys.exit(1)
    return float(re.search(r"samples, (\d+) a second", done.stdout).group(1))


def run_python(text, arguments, limit):
    with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
        file.write(text)
        file.flush()
        environment = {key: value for key, value in os.environ.items() if key != "LD_LIBRARY_PATH"}
        done = subprocess.run(["python3", file.name, *map(str, arguments)], capture_output=True, text=True,
                              timeout=limit, env=environment)
    print(done.stdout, end="")
    if done.returncode:
        print("TABLE PyTorch: " + (done.stderr.strip().splitlines() or ["?"])[-1][:120])


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
        for _ in range(2):  # microbatches
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
    print(f"TABLE {name:34} {rate:8.0f} tokens/s, {rate * flops / 1e12:.1f} TFLOP/s, "
          f"{torch.cuda.max_memory_allocated() / 1e9:.1f} GB at most", flush=True)
"""



RESNET = """
import sys, time, torch
sys.path.insert(0, sys.argv[1])
import vision
torch.backends.cudnn.benchmark = True
module = vision.ResNet(vision.Bottleneck, (3, 4, 6, 3), width=64).cuda().to(memory_format=torch.channels_last)
optimizer = torch.optim.SGD(module.parameters(), lr=1e-4, momentum=0.9, fused=True)
x = torch.randn(128, 3, 64, 64, device="cuda").to(memory_format=torch.channels_last)
t = torch.randint(10, (128,), device="cuda")
def step():
    for _ in range(2):
        with torch.autocast("cuda", torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(module(x), t) / 2
        loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
for _ in range(10):
    step()
torch.cuda.synchronize()
start = time.perf_counter()
for _ in range(20):
    step()
torch.cuda.synchronize()
print(f"TABLE PyTorch bfloat16, channels_last    {20 * 256 / (time.perf_counter() - start):8.0f} images/s", flush=True)
"""


def gpt():
    for precision in "bf16", "fp32":
        print(f"TABLE Rubato {precision}")
        rate = times("gpt", precision, 100) * SEQUENCE
        print(f"TABLE Rubato {precision:27} {rate:8.0f} tokens/s, {rate * FLOPS / 1e12:.1f} TFLOP/s, "
              f"MFU {rate * FLOPS / 989e10:.1f} % of 989 TFLOP/s", flush=True)
    run_python(PYTORCH, (SEQUENCE, VOCABULARY, LAYERS, HEADS, WIDTH, BATCH, FLOPS), 120)


def resnet():
    model = os.environ.get("RUBATO_RESNET")
    if model and os.path.exists(model):
        print("TABLE Rubato ResNet-50 bf16")
        print(f"TABLE Rubato bf16                        {times('resnet=' + model, 'bf16', 100):8.0f} images/s")
    else:
        print("TABLE Rubato ResNet-50: no model came along (tests/gpu/resnet.py makes it, with PyTorch and onnx)")
    models = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../models")
    run_python(RESNET, (models,), 90)


def small_gpt(c, steps, **more):
    """A job of one or two ranks."""
    c.model("gpt", layers=6, width=512, heads=8, seq=256)
    with open(c.path("corpus.txt"), "w") as file:
        for i in range(40000):
            file.write(f"{i * i % 9973} is what {i} squared leaves. ")
    return {
        "model": {"onnx": "gpt.onnx"},
        "data": {"train": {"path": "corpus.txt", "format": "text", "seqLen": 256}},
        "train": {"steps": steps, "globalBatch": 32, "microBatch": 8, "precision": "bf16"},
        "devices": {"min": 1, "max": 2, "want": 1, "kind": "cuda"}, **more}


def resizes(shelves="1"):
    os.environ |= {"RUBATO_GPU_SHARES": "2", "RUBATO_SHELVES": shelves}
    if not shelves:
        print("TABLE the same, state through the hosts")
    with cluster.Cluster(devices=0) as c:
        c.submit("gpt", small_gpt(c, 100000))
        c.train_on("gpt", 1, 50)
        for verb in "grow", "shrink", "grow":
            receipt = c.json(verb, "gpt", 1, "--wait", "--timeout", "60")
            took = sorted(row["step_ms"] for row in c.metrics("gpt")[-20:])[10]
            print(f"TABLE {verb:34} stall {receipt['stall_ms']:.1f} ms, ready in {receipt['ready_ms']:.0f} ms, "
                  f"lost {receipt['steps_lost']}, repeated {receipt['samples_repeated']}, skipped "
                  f"{receipt['samples_skipped']}; {receipt['bytes_moved'] / 1e6:.0f} MB moved; a step {took:.1f} ms", flush=True)
        log = c.ctl("logs", "gpt")
        for line in log.splitlines():
            if "sums go" in line or "through the hosts" in line:
                print("TABLE   " + line.split("configuration", 1)[-1][:110])
        c.ctl("cancel", "gpt")
    if shelves:
        resizes("")


def plan():
    with cluster.Cluster(devices=0) as c:
        c.submit("gpt", small_gpt(c, 60, state={"replicas": "1"}))
        c.wait("gpt", "done")
        took = sorted(row["step_ms"] for row in c.metrics("gpt")[-40:])[20]
        seen = c.json("profile", "gpt")
        print(f"TABLE peak {seen['peak']['gflops'] / 1e3:.1f} TFLOP/s, {seen['peak']['gbs']:.0f} GB/s; a microbatch "
              f"{seen['ms']:.3f} ms, {seen['gflops'] / 1e3:.1f} TFLOP/s", flush=True)
        for row in seen["operators"][:6]:
            print(f"TABLE   {row['operator']:24} {row['calls']:4} {row['ms']:9.3f} ms, {row['gflops'] / 1e3:.1f} TFLOP/s, "
                  f"{row['gbs']:.0f} GB/s", flush=True)
        one = c.json("plan", "gpt", "--devices", "1")["plans"][0]["candidates"][0]
        print(f"TABLE a step planned {one['stepMs']:.2f} ms, {one['memoryBytes'] / 2**20:.0f} MiB; taken {took:.2f} ms",
              flush=True)
        cluster.check(0.3 < one["stepMs"] / took < 3, "the plan is far from what a step took")


{"gpt": gpt, "resnet": resnet, "resizes": resizes, "plan": plan}[sys.argv[1]]()
