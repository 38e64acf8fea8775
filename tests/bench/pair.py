#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Two workers of one host beside one, by every way of sharing a step: Markdown on stdout, raw numbers in a file.

usage: pair.py [--models mlp,cnn,gpt] [--microbatches 2,8] [--rounds N] [--steps N] [--json FILE] [--patience S]

Each worker is on a core of its own, and they meet in shared memory.  In each round all ways train the same batch one
after the other, in an order that rotates; a way's step is the median of all of its steps.  Filters are split with one
replica of the state, as then no weight moves, once for few words and once layer by layer; all other ways have the bits
of one worker, or the bench fails.
"""
import argparse
import statistics
import sys

import lab
from cluster import Failure, check

WARM = 5  # steps that do not count
SHORT = 8  # steps whose bits are compared
BATCH = {"gpt": 16, "mlp": 128, "cnn": 64}
SHAPES = {"mlp": (784,), "cnn": (3, 32, 32)}
SPLIT, LAYERS = SPLITS = "filters split in 2", "filters split in 2, layer by layer"
WAYS = {"one worker": {}, "data parallel": {"parallel": {"pipeline": 1}}, "pipeline of 2": {"parallel": {"pipeline": 2}},
        "in shards": {"parallel": {"pipeline": 1}, "state": {"replicas": "1"}},
        SPLIT: {"parallel": {"hypergraph": 2}, "state": {"replicas": "1"}},
        LAYERS: {"parallel": {"hypergraph": 2, "cut": "layers"}, "state": {"replicas": "1"}}}


def spec(c, model, microbatches, way, steps):
    workers = 1 if way == "one worker" else 2
    if model == "gpt":
        made = lab.reference(c, workers, BATCH[model] // microbatches)
        made["train"]["steps"] = steps
    else:
        made = {"model": {"onnx": f"{model}.onnx"},
                "data": {"train": {"path": f"{model}.npy", "targets": f"{model}-labels.npy"}},
                "train": {"steps": steps, "globalBatch": BATCH[model], "microBatch": BATCH[model] // microbatches,
                          "optimizer": {"type": "sgd", "lr": 1.0e-3}}}
    made["devices"] = {"min": workers, "max": workers, "want": workers}
    return {**made, **WAYS[way]}


def bits(c, model, microbatches, way):
    c.submit("short", spec(c, model, microbatches, way, SHORT))
    return c.finish("short", 600)


def took(c, model, microbatches, way, steps):
    """ms of each step"""
    c.submit("job", spec(c, model, microbatches, way, lab.ENDLESS))
    c.wait("job", f"step={WARM}", 300)
    first = c.status("job")["step"]
    c.wait("job", f"step={first + steps}", 600)
    last = c.status("job")["step"]
    rows = [row["step_ms"] for row in c.metrics("job") if first < row["step"] <= last]
    c.drop("job")
    return rows


def compare(c, model, microbatches, options):
    """ms a step by way"""
    ways = [way for way in WAYS if model != "gpt" or way not in SPLITS]
    shas = {way: bits(c, model, microbatches, way) for way in ways if way not in SPLITS}
    check(len(set(shas.values())) == 1, f"{model}, {microbatches} microbatches: the ways differ in bits: {shas}")
    steps = {way: [] for way in ways}
    for i in range(options.rounds):
        for way in ways[i % len(ways):] + ways[:i % len(ways)]:
            steps[way] += took(c, model, microbatches, way, options.steps)
    return {way: statistics.median(values) for way, values in steps.items()}


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("usage: ")[1].split("\n")[0])
    parser.add_argument("--models", type=lambda text: text.split(","), default=list(BATCH))
    parser.add_argument("--microbatches", type=lambda text: [int(word) for word in text.split(",")], default=[2, 8])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--json", default="bench-pair.json")
    parser.add_argument("--patience", type=int, default=0, help="seconds to wait for a quiet machine")
    options = parser.parse_args()
    print(lab.machine(options.patience) + "\n")
    found, rows = {}, []
    with lab.Lab(nodes=2, devices=1, pinned=True) as c:
        for model, shape in SHAPES.items():
            c.model(model)
            lab.corpus.classes(c.folder, 2048, shape, 10, name=model)
        for model in options.models:
            for microbatches in options.microbatches:
                lab.say(f"{model}, {microbatches} microbatches")
                ms = compare(c, model, microbatches, options)
                found[f"{model} {microbatches}"] = ms
                rows += [[model, microbatches, way, value, ms["one worker"] / value] for way, value in ms.items()]
    lab.table(["model", "M", "way", "ms a step", "times as fast"], rows)
    lab.keep(options.json, found)
    print(lab.machine())


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failure as failure:
        sys.exit(f"pair.py: {failure}")
