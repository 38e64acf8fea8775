#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""ms a step of the reference models on one core: Rubato beside PyTorch, in turn, in one run.

usage: train.py [CASE ...] [--bench PATH] [--core N] [--windows N]

CASE is gpt, mlp, cnn or resnet (ResNet-18 on 32 x 32 pixels, exported from PyTorch), with @B for a batch of B samples (mlp@1), with +bf16 for precision bf16 (PyTorch: under
autocast) and with :M for M microbatches a step (gpt@4+bf16:8); all of them at their own size by default.  Both sides live in a process of their own on the same core, and only one works at a time: each window is some steps
of the one and then as many of the other.  Shown are medians over all windows, of the time the processes
had the core for and of the time by the clock; the ratio is the median over windows.  Needs python3-torch;
it is at its best with libopenblas0-openmp and libtcmalloc-minimal4.
"""
import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time

CASES = [f"{name}{precision}:{m}" for precision in ("", "+bf16") for name in ("gpt", "mlp", "cnn", "resnet") for m in (1, 8)]
BUILD = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "build")
WINDOW = 0.5  # seconds of the slower side


# ---- PyTorch ------------------------------------------------------------------------------------

def modules():
    """The reference models in plain PyTorch: (module, features, targets, loss, optimizer) by name."""
    import torch
    from torch import nn
    from torch.nn import functional as F

    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:0] = [os.path.join(here, "peers"), os.path.join(here, "..", "models")]
    from common import GPT
    import vision

    def sgd(module):
        return torch.optim.SGD(module.parameters(), lr=1e-4, momentum=0.9)

    def conv(before, after):
        return nn.Conv2d(before, after, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)

    def gpt(batch=16):
        tokens = torch.randint(0, 256, (batch, 129))
        module = GPT()
        return (module, tokens[:, :-1].contiguous(), tokens[:, 1:].flatten(),
                torch.optim.AdamW(module.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1))

    def mlp(batch=128):
        module = nn.Sequential(nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(),
                               nn.Linear(1024, 10))
        return module, torch.randn(batch, 784), torch.randint(0, 10, (batch,)), sgd(module)

    def images(module, batch):  # in the layout that suits them best
        module = module.to(memory_format=torch.channels_last)
        features = torch.randn(batch, 3, 32, 32).to(memory_format=torch.channels_last)
        return module, features, torch.randint(0, 10, (batch,)), sgd(module)

    def cnn(batch=64):
        module = nn.Sequential(*conv(3, 32), *conv(32, 64), *conv(64, 128), nn.Flatten(),
                               nn.Linear(2048, 256), nn.ReLU(), nn.Linear(256, 10))
        return images(module, batch)

    def resnet(batch=64):  # torchvision's with a stem for small images
        module = vision.ResNet(vision.Basic, (2, 2, 2, 2), width=64)
        module.conv1, module.maxpool = nn.Conv2d(3, 64, 3, padding=1, bias=False), nn.Identity()
        return images(module, batch)

    torch.set_num_threads(1)
    torch.manual_seed(1)
    return {"gpt": gpt, "mlp": mlp, "cnn": cnn, "resnet": resnet}, F.cross_entropy


def peer(name):
    """The other side of the pipe: a line "N" is answered with N steps' times, as bench-train does."""
    import torch

    makers, loss_of = modules()
    name, _, precision = name.partition("+")
    name, _, batch = name.partition("@")
    module, features, targets, optimizer = makers[name](*([int(batch)] if batch else []))

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bf16"):
            loss = loss_of(module(features), targets)
        loss.backward()
        optimizer.step()

    for _ in range(4):
        step()
    print("ready", resident(), flush=True)
    for line in sys.stdin:
        times = []
        for _ in range(int(line)):
            wall, core = time.perf_counter(), time.process_time()
            step()
            times += [time.process_time() - core, time.perf_counter() - wall]
        print(*(f"{1e3 * one:.3f}" for one in times), flush=True)


def export(name, path):
    """Writes the same model as ONNX, for models that Rubato has no generator of."""
    import torch

    module, features, _, _ = modules()[0][name](2)
    torch.onnx.export(module.train().to(memory_format=torch.contiguous_format), (features.contiguous(),), path,
                      opset_version=13, training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False,
                      input_names=["x"], output_names=["logits"], dynamic_axes={"x": {0: "batch"}})


def resident():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) // 1024 for line in file if line.startswith("VmRSS"))


# ---- Both in turn -------------------------------------------------------------------------------

class Side:
    """A process that takes steps when told to."""

    def __init__(self, command, core, environment):
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env=environment,
            preexec_fn=lambda: os.sched_setaffinity(0, {core}))
        self.core, self.wall = [], []
        answer = self.process.stdout.readline().split()
        if not answer or answer[0] != "ready":
            sys.exit(f"{command[0]} did not start")
        self.megabytes = int(answer[1])

    def window(self, steps):
        """Take `steps`; their median time on the core, in ms."""
        print(steps, file=self.process.stdin, flush=True)
        times = [float(word) for word in self.process.stdout.readline().split()]
        self.core += times[0::2]
        self.wall += times[1::2]
        return statistics.median(times[0::2])

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def measure(case, options):
    import lab  # not in PyTorch's process, whose memory is shown

    name, microbatches = case.split(":")
    with tempfile.TemporaryDirectory() as folder:
        model = os.path.join(folder, "model.onnx")
        if name.startswith("resnet"):
            subprocess.run(["/usr/bin/python3", "-W", "ignore", os.path.abspath(__file__), "--export", "resnet", model], check=True)
        ours = Side([options.bench, f"{name}={model}" if os.path.exists(model) else name, microbatches], options.core, os.environ)
    theirs = Side(["/usr/bin/python3", os.path.abspath(__file__), "--peer", name], options.core, lab.torch_environment())
    steps = max(3, int(1e3 * WINDOW / max(ours.window(3), theirs.window(3))))
    ratios = [ours.window(steps) / theirs.window(steps) for _ in range(options.windows)]
    ours.end()
    theirs.end()
    print(f"| {name} | {microbatches} | {statistics.median(ours.core):.1f} ({statistics.median(ours.wall):.1f}) "
          f"| {statistics.median(theirs.core):.1f} ({statistics.median(theirs.wall):.1f}) "
          f"| {statistics.median(ratios):.2f} | {ours.megabytes} | {theirs.megabytes} |", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("cases", nargs="*", default=CASES)
    parser.add_argument("--peer")
    parser.add_argument("--export", nargs=2, metavar=("CASE", "FILE"))
    parser.add_argument("--bench", default=os.path.join(BUILD, "tests/bench/bench-train"))
    parser.add_argument("--core", type=int, default=0)
    parser.add_argument("--windows", type=int, default=15)
    options = parser.parse_args()
    if options.peer:
        return peer(options.peer)
    if options.export:
        return export(*options.export)
    print(f"load {os.getloadavg()[0]:.1f}; ms on the core (by the clock), {options.windows} windows each\n")
    print("| model | microbatches | Rubato | PyTorch | ratio | Rubato MB | PyTorch MB |\n|---|---|---|---|---|---|---|")
    for case in options.cases:
        measure(case if ":" in case else case + ":1", options)
    print(f"\nload at the end {os.getloadavg()[0]:.1f}")


main()
