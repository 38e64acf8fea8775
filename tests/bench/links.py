#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Two machines and a slow link: data parallelism beside pipelines and filters that are split, Markdown on stdout, raw
numbers in a file.

usage: links.py [--models mlp,vgg,gpt] [--mbit 0,1000,200,50] [--steps N] [--json FILE]     (as root)

Each node is a network namespace, with a host name, on a core of its own; what it sends goes through a token bucket (tc
tbf) of --mbit megabits a second, 0: unlimited.  All ways run with one replica of the state.  Bytes are all that the
nodes' interfaces have sent while the steps ran: frames, headers, rows, etcd.  Data parallelism and the synchronous
pipeline must end with the same bits.  Spectrain, whose steps are whole microbatches, runs whole laps, and its time is
the mean of its steps; the times of the others are medians.
"""
import argparse
import statistics
import subprocess
import sys

import lab
import hosts
import nets
from cluster import Failure, check

WARM = 5  # steps that do not count
SHORT = 8  # steps whose bits are compared
BURST = 32000  # bytes: a bucket that holds more hides the link from short messages


class Linked(hosts.Hosts, lab.Lab):
    """Nodes whose links have `mbit` megabits a second; 0: unlimited."""

    def __init__(self, nodes, mbit):
        super().__init__(nodes=nodes, devices=1, pinned=True)
        self.mbit = mbit

    def shape(self, space, interface):
        if self.mbit:
            subprocess.run(["tc", "-n", space, "qdisc", "add", "dev", interface, "root", "tbf", "rate", f"{self.mbit}mbit",
                            "burst", str(BURST), "latency", "200ms"], check=True)

    def sent(self):
        """Bytes that all nodes have sent."""
        total = 0
        for i in range(self.count):
            done = subprocess.run(["ip", "netns", "exec", f"{hosts.TAG}-{i}", "cat",
                                   f"/sys/class/net/{hosts.TAG}-far{i}/statistics/tx_bytes"],
                                  check=True, capture_output=True, text=True)
            total += int(done.stdout)
        return total


def spec(c, model, steps, ways):
    if model == "gpt":
        made = lab.reference(c, c.count)
        made["train"]["steps"] = steps
    else:
        lab.corpus.classes(c.folder, 2048 if model == "mlp" else 256, SHAPES[model], 10)
        if model == "mlp":
            c.model("mlp")
        else:
            nets.vgg(c.path("vgg.onnx"), SHAPES[model], (64, 128, 256), 512)
        made = {
            "model": {"onnx": f"{model}.onnx"},
            "data": {"train": {"path": "train.npy", "targets": "train-labels.npy"}},
            "train": {"steps": steps, "globalBatch": 128, "microBatch": 16,
                      "optimizer": {"type": "sgd", "lr": 1.0e-3, "momentum": 0.9}},
            "devices": {"min": c.count, "max": c.count, "want": c.count},
        }
    if "schedule" in ways.get("parallel", {}):
        made["train"].pop("microBatch", None)
    return {**made, "state": {"replicas": "1"}, **ways}


SHAPES = {"mlp": (784,), "vgg": (3, 16, 16)}
WAYS = {"data parallel": {"parallel": {"pipeline": 1}}, "pipeline": {"parallel": {"pipeline": 2}},
        "spectrain": {"parallel": {"pipeline": 2, "schedule": "spectrain"}},
        "filters split": {"parallel": {"hypergraph": 2}}}
SAME_BITS = 2  # the first so many of these ways


def one(c, model, way, steps):
    """(median ms a step, MB sent a step, sha256 after a few)"""
    c.submit("short", spec(c, model, SHORT, WAYS[way]))
    sha = c.finish("short", 600)
    c.submit("job", spec(c, model, lab.ENDLESS, WAYS[way]))
    c.wait("job", f"step={WARM}", 300)
    first, before = c.status("job")["step"], c.sent()
    c.wait("job", f"step={first + steps}", 600)
    last, sent = c.status("job")["step"], c.sent() - before
    middle = statistics.fmean if way == "spectrain" else statistics.median
    took = middle(row["step_ms"] for row in c.metrics("job") if first < row["step"] <= last)
    c.drop("job")
    return took, sent / 1e6 / (last - first), sha


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("usage: ")[1].split("\n")[0])
    parser.add_argument("--models", type=lambda text: text.split(","), default=["mlp", "vgg", "gpt"])
    parser.add_argument("--mbit", type=lambda text: [int(word) for word in text.split(",")],
                        default=[0, 1000, 200, 50])
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--json", default="bench-links.json")
    parser.add_argument("--patience", type=int, default=0, help="seconds to wait for a quiet machine")
    options = parser.parse_args()
    print(lab.machine(options.patience) + "\n")
    found, rows = {}, []
    for mbit in options.mbit:
        for model in options.models:
            lab.say(f"{model} at {mbit or 'unlimited'} Mbit/s")
            with Linked(2, mbit) as c:
                got = {way: one(c, model, way, options.steps) for way in WAYS
                       if model != "gpt" or way != "filters split"}
            check(len({sha for _, _, sha in list(got.values())[:SAME_BITS]}) == 1, f"{model}: the ways differ in bits")
            found[f"{model} {mbit}"] = got
            data = got["data parallel"][0]
            rows += [[model, mbit or "unlimited", way, took, sent, data / took] for way, (took, sent, _) in got.items()]
    lab.table(["model", "Mbit/s", "way", "ms a step", "MB sent", "times as fast"], rows)
    lab.keep(options.json, found)
    print(lab.machine())


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failure as failure:
        sys.exit(f"links.py: {failure}")
