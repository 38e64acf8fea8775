#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""mlp, cnn and gpt beside PyTorch (losses.json): the first 50 losses to 1e-4 relative, the cnn's as long as no rounding has
flipped a ReLU or the choice of a pool, and in bf16 a curve of 300 steps that keeps to PyTorch's under autocast."""
import json
import os

import cases
import cluster
from cluster import check

TOLERANCE = 1e-4  # the largest difference seen is printed beside it
PARTS = {"cnn": 15}  # steps until a rounding anywhere, which each step doubles, is a flip; then losses are only near
WINDOW = 25       # steps that are averaged, which leaves the course of the curve
NOISE = 1e-2      # of the first loss: the cnn's curves part by 3e-3 for a rounding anywhere


def run(c, kind, precision, steps):
    job = f"{kind}-{precision}"
    spec = cases.spec(kind, c.folder, steps)
    spec["train"]["precision"] = precision
    c.submit(job, spec)
    c.wait(job, "done")
    found = [row["loss"] for row in c.metrics(job)]
    check(len(found) == steps, f"{job}: {len(found)} rows")
    return found


def smooth(losses):
    return [sum(losses[i:i + WINDOW]) / WINDOW for i in range(0, len(losses) - WINDOW + 1, WINDOW)]


def distance(one, other):
    """The distance between two curves, as a part of the loss at which they begin."""
    one, other = smooth(one), smooth(other)
    return max(abs(a - b) for a, b in zip(one, other)) / other[0]


def agrees():
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "losses.json")) as file:
        recorded = json.load(file)
    with cluster.Cluster(devices=2) as c:
        for kind, expected in recorded["losses"].items():
            cases.make(kind, c.folder)
            found = run(c, kind, "fp32", recorded["steps"])
            apart = [abs(a - b) / b for a, b in zip(found, expected)]
            alike = PARTS.get(kind, len(apart))
            print(f"{kind}: largest relative difference in {alike} steps {max(apart[:alike]):.1e}, in {len(apart)} {max(apart):.1e}",
                  flush=True)
            check(max(apart[:alike]) < TOLERANCE, f"{kind}: {max(apart[:alike])}")
            check(max(apart) < NOISE, f"{kind}: {max(apart)}")


def curves_in_bf16():
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "losses.json")) as file:
        recorded = json.load(file)["curves"]
    with cluster.Cluster(devices=2) as c:
        for kind, theirs in recorded.items():
            cases.make(kind, c.folder)
            found = run(c, kind, "bf16", len(theirs["bf16"]))
            noise = distance(theirs["bf16"], theirs["fp32"])
            ours = distance(found, theirs["bf16"])
            first = abs(found[0] - theirs["bf16"][0]) / theirs["bf16"][0]
            print(f"{kind}: {ours:.1e} from PyTorch in bf16, that {noise:.1e} from PyTorch in fp32; first loss {first:.1e}",
                  flush=True)
            check(first < 5e-3, f"{kind}: {found[0]} and {theirs['bf16'][0]}")
            check(ours < NOISE, f"{kind}: {ours}")


cluster.main(agrees, curves_in_bf16)
