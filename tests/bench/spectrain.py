#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Asynchronous pipelines: how well weights are predicted, and what each schedule learns.  Markdown on stdout.

usage: spectrain.py [--only errors,arms] [--nets mlp,cnn,gpt,gpt-sgd] [--stages 2,4,8] [--seeds N] [--json FILE]

Small nets on data that is made here; each run is one process with a thread a stage (bench-spectrain), which runs what
workers run.  A seed is one of initial weights and of the order of samples.  The loss of a run is the mean over its last
tenth.  Gaps are paired by seed, with 95 % intervals of Student's t.
"""
import argparse
import json
import math
import os
import random
import statistics
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../e2e"))
import corpus  # noqa: E402

BUILD = os.environ.get("RUBATO_BUILD") or os.path.join(os.path.dirname(__file__), "../../build")
T95 = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 8: 2.365, 10: 2.262}
ARMS = "vanilla", "stashing", "2bw", "spectrain-formula", "spectrain"
SAMPLES = 4096


def teacher(folder):
    """Features, and labels that a random net of two hidden layers gives them."""
    chance = random.Random(7)
    sizes = 16, 32, 32, 10
    layers = [[[chance.gauss(0, 2 / math.sqrt(a)) for _ in range(a)] for _ in range(b)]
              for a, b in zip(sizes, sizes[1:])]
    features, labels = bytearray(), []
    for _ in range(SAMPLES):
        x = [chance.gauss(0, 1) for _ in range(sizes[0])]
        features += struct.pack("<16f", *x)
        for i, layer in enumerate(layers):
            x = [sum(w * v for w, v in zip(row, x)) for row in layer]
            if i + 1 < len(layers):
                x = [math.tanh(v) for v in x]
        labels.append(max(range(len(x)), key=x.__getitem__))
    corpus.npy(os.path.join(folder, "train.npy"), "<f4", (SAMPLES, 16), bytes(features))
    corpus.npy(os.path.join(folder, "labels.npy"), "<i8", (SAMPLES,), struct.pack(f"<{SAMPLES}q", *labels))


def images(folder):
    """A faint picture a class in much noise."""
    chance, size, samples = random.Random(11), 3 * 8 * 8, 8192
    centres = [[chance.gauss(0, 0.12) for _ in range(size)] for _ in range(10)]
    labels = [chance.randrange(10) for _ in range(samples)]
    features = b"".join(struct.pack(f"<{size}f", *(v + chance.gauss(0, 0.6) for v in centres[label]))
                        for label in labels)
    corpus.npy(os.path.join(folder, "train.npy"), "<f4", (samples, 3, 8, 8), features)
    corpus.npy(os.path.join(folder, "labels.npy"), "<i8", (samples,), struct.pack(f"<{samples}q", *labels))


def language(folder):
    """Text by a chain of second order over 16 letters."""
    chance = random.Random(3)
    letters = "abcdefghijklmnop"
    after = {(a, b): chance.sample(letters, 3) for a in letters for b in letters}
    text = "ab"
    pieces = []
    for _ in range(60000):
        text = text[-1] + chance.choices(after[text[-2], text[-1]], (8, 3, 1))[0]
        pieces.append(text[-1])
    with open(os.path.join(folder, "train.txt"), "w") as file:
        file.write("".join(pieces))


CLASSES = "{path: train.npy, targets: labels.npy}"
NETS = {
    "mlp": dict(make=teacher, data=CLASSES, batch=32, steps=1500, rates=(0.01, 0.02, 0.03, 0.045),
                optimizer="type: sgd, momentum: 0.9",
                model=("mlp", "inputs=16", "hidden=64", "depth=8", "classes=10")),
    "cnn": dict(make=images, data=CLASSES, batch=16, steps=600, rates=(0.02, 0.03, 0.05),
                optimizer="type: sgd, momentum: 0.9", model=("cnn", "image=8", "channels=3", "classes=10")),
    "gpt": dict(make=language, data="{path: train.txt, format: text, seqLen: 16}", batch=16, steps=600,
                rates=(0.0005, 0.001, 0.002), optimizer="type: adamw",
                model=("gpt", "layers=4", "width=32", "heads=2", "seq=16")),
}


NETS["gpt-sgd"] = {**NETS["gpt"], "rates": (0.03, 0.1, 0.3), "optimizer": "type: sgd, momentum: 0.9"}


class Net:
    def __init__(self, name):
        self.__dict__.update(NETS[name], name=name)
        self.folder = tempfile.mkdtemp(prefix="rubato-spectrain-")
        self.make(self.folder)

    def run(self, arm, stages, rate, seed, optimizer=None, errors=False):
        """Lines of bench-spectrain."""
        onnx = os.path.join(self.folder, f"{seed}.onnx")
        if not os.path.exists(onnx):
            kind, *settings = self.model
            words = [word for one in settings + [f"seed={seed}"] for word in ("--set", one)]
            subprocess.run([os.path.join(BUILD, "rubatoctl"), "model", "new", kind, *words, "--out", onnx], check=True,
                           capture_output=True)
        pins = f"parallel: {{pipeline: {stages}, schedule: {arm}}}" if arm != "1f1b" else ""
        micro = "" if arm == "2bw" else f"microBatch: {self.batch}, "
        with open(os.path.join(self.folder, "job.yaml"), "w") as file:
            file.write("apiVersion: rubato/v1\nkind: TrainJob\nmetadata: {name: bench}\nspec:\n"
                       f"  model: {{onnx: {onnx}}}\n  data: {{train: {self.data}}}\n"
                       f"  train: {{steps: {self.steps}, globalBatch: {self.batch}, {micro}seed: {seed},\n"
                       f"    optimizer: {{{optimizer or self.optimizer}, lr: {rate}}}}}\n"
                       f"  devices: {{max: {stages}}}\n  {pins}\n")
        done = subprocess.run([os.path.join(BUILD, "tests/bench/bench-spectrain"), self.folder, file.name,
                               str(stages), *(["errors"] if errors else [])], capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"spectrain.py: {self.name} {arm} {stages}: {done.stderr}")
        return [line.split() for line in done.stdout.splitlines()]

    def loss(self, *how):
        losses = [float(words[1]) for words in self.run(*how)]
        last = losses[-(len(losses) // 10):]
        value = sum(last) / len(last)
        return value if math.isfinite(value) else math.inf


def table(head, rows):
    print("| " + " | ".join(head) + " |\n|" + "---|" * len(head))
    for row in rows:
        print("| " + " | ".join(row) + " |")
    print(flush=True)


def say(text):
    print(text, file=sys.stderr, flush=True)


def errors(options, found):
    """|predicted - actual| over |stale - actual|: below 1 where the prediction helps."""
    net, rows = Net("mlp"), []
    for stages in options.stages:
        for momentum in 1e-6, 0.5, 0.9, 0.99:
            rate = 0.2 * (1 - momentum)
            lines = net.run("spectrain", stages, rate, 1, f"type: sgd, momentum: {momentum}", True)
            ratios = [(f"{stage}{way[0]}", float(predicted) / float(stale), float(ahead))
                      for stage, way, _, predicted, stale, ahead in lines]
            found[f"errors {stages} {momentum}"] = ratios
            rows.append([str(stages), f"{momentum:.2g}" if momentum > 1e-3 else "0 (the last gradient)",
                         ", ".join(f"{where} {ratio:.2f} ({ahead:.0f})" for where, ratio, ahead in ratios)])
    table(["stages", "momentum", "by stage, forward and backward: predicted over stale (steps ahead)"], rows)


def interval(values):
    mean = statistics.fmean(values)
    if len(values) < 2 or not all(map(math.isfinite, values)):
        return f"{mean:+.3f}"
    half = T95.get(len(values), 1.96) * statistics.stdev(values) / math.sqrt(len(values))
    return f"{mean:+.3f} ± {half:.3f}" + ("" if abs(mean) <= half else " *")


def best(runs, rates):
    return min(rates, key=lambda rate: statistics.fmean(runs[rate]))


def arms(options, found):
    rows = []
    for name in options.nets:
        net = Net(name)
        seeds = range(1, options.seeds + 1)
        sync = {rate: [net.loss("1f1b", 1, rate, seed) for seed in seeds] for rate in net.rates}
        top = best(sync, net.rates)
        found[f"{name} synchronous"] = sync
        for stages in options.stages:
            row = [name, str(stages), f"{statistics.fmean(sync[top]):.3f} ({top:g})"]
            for arm in ARMS:
                say(f"{name} {stages} {arm}")
                runs = {rate: [net.loss(arm, stages, rate, seed) for seed in seeds] for rate in net.rates}
                own = best(runs, net.rates)
                found[f"{name} {stages} {arm}"] = runs
                same, free = ([a - b for a, b in zip(runs[rate], sync[top])] for rate in (top, own))
                row.append(interval(same) + (f"; {interval(free)} ({own:g})" if own != top else ""))
            rows.append(row)
    table(["net", "stages", "synchronous: loss (rate)", *ARMS], rows)


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("usage: ")[1].split("\n")[0])
    parser.add_argument("--only", type=lambda text: text.split(","), default=["errors", "arms"])
    parser.add_argument("--nets", type=lambda text: text.split(","), default=list(NETS))
    parser.add_argument("--stages", type=lambda text: [int(word) for word in text.split(",")], default=[2, 4, 8])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--json", default="bench-spectrain.json")
    options = parser.parse_args()
    found = {}
    for part in options.only:
        {"errors": errors, "arms": arms}[part](options, found)
    with open(options.json, "w") as file:
        json.dump(found, file, indent=1)


if __name__ == "__main__":
    main()
