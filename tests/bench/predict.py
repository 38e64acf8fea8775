#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Step times that `rubatoctl plan` predicts, beside those that workers take: is the planner a judge?

usage: predict.py [CASE:MICROBATCHES ...] [--rounds N] [--steps N] [--json FILE]

CASE is gpt, mlp or cnn at its own size.  Each round predicts, timing a microbatch on one core, and then takes
steps on one and on two workers (bench-parts), each pinned to a core.  Shown are medians over rounds: the predicted
step, the time that the slowest worker had a core for, and the time by the clock, in which other load of the machine
shows.  Error is predicted over measured on the core, less 1: neither has the time that workers wait for each other.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

import lab
from lab import cluster, corpus

CASES = ["gpt:1", "gpt:4", "gpt:8", "mlp:2", "mlp:8", "mlp:32", "cnn:2", "cnn:8", "cnn:16"]
BATCH = {"gpt": 16, "mlp": 128, "cnn": 64}
SGD = {"type": "sgd", "lr": 1.0e-4, "momentum": 0.9}
ADAMW = {"type": "adamw", "lr": 3.0e-4, "betas": [0.9, 0.95], "weightDecay": 0.1}
PARTS = ("compute", "add", "reduce", "vote", "update")


def job(folder, name, microbatches):
    """The job file of a case; its model and data are made once."""
    path = os.path.join(folder, f"{name}-{microbatches}.yaml")
    model = os.path.join(folder, name + ".onnx")
    if not os.path.exists(model):
        subprocess.run([ctl(), "model", "new", name, "--out", model], check=True, stderr=subprocess.DEVNULL)
        if name == "gpt":
            corpus.text(os.path.join(folder, "gpt.txt"), 200000)
        else:
            corpus.classes(folder, 256, (784,) if name == "mlp" else (3, 32, 32), 10, name=name)
    data = ({"path": "gpt.txt", "format": "text", "seqLen": 128} if name == "gpt" else
            {"path": f"{name}.npy", "targets": f"{name}-labels.npy"})
    spec = {"model": {"onnx": f"{name}.onnx"}, "data": {"train": data},
            "train": {"steps": 1000, "globalBatch": BATCH[name], "microBatch": -(-BATCH[name] // microbatches),
                      "optimizer": ADAMW if name == "gpt" else SGD},
            "devices": {"min": 1, "max": 2, "want": 1}}
    with open(path, "w") as file:
        file.write(cluster.to_yaml({"apiVersion": "rubato/v1", "kind": "TrainJob", "metadata": {"name": name},
                                    "spec": spec}))
    return path


def ctl():
    return os.path.join(cluster.BUILD, "rubatoctl")


def predict(path, counts):
    done = subprocess.run(["taskset", "-c", "0", ctl(), "plan", "-f", path, "-o", "json", "--devices",
                           ",".join(map(str, counts))], check=True, capture_output=True, text=True)
    return {one["devices"]: one["candidates"][0] for one in json.loads(done.stdout)["plans"]}


def measure(name, microbatches, workers, steps):
    """The slowest worker's parts of a step, on the core; and the step by the clock."""
    done = subprocess.run([os.path.join(cluster.BUILD, "tests/bench/bench-parts"), name, str(microbatches),
                           str(workers), str(steps)], check=True, capture_output=True, text=True)
    ranks = [json.loads(line) for line in done.stdout.splitlines()]
    slowest = max(ranks, key=lambda rank: rank["step"][0])
    return {**{part: slowest[part][0] for part in ("step", *PARTS)},
            "wall": max(rank["step"][1] for rank in ranks)}


def case(folder, text, options):
    name, microbatches = text.split(":")
    microbatches = int(microbatches)
    counts = [n for n in (1, 2) if n <= microbatches]
    path = job(folder, name, microbatches)
    rounds = []
    for _ in range(options.rounds):
        said = predict(path, counts)
        rounds.append({n: (said[n], measure(name, microbatches, n, options.steps)) for n in counts})
    rows = []
    for n in counts:
        said = {key: statistics.median(one[n][0][key] for one in rounds)
                for key in ("stepMs", "computeMs", "sumMs", "updateMs")}
        took = {key: statistics.median(one[n][1][key] for one in rounds) for key in rounds[0][n][1]}
        error = statistics.median(one[n][0]["stepMs"] / one[n][1]["step"] for one in rounds) - 1
        rows.append({"case": name, "microbatches": microbatches, "workers": n, **said, **took, "error": error})
    return rows


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("cases", nargs="*", default=CASES)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--json")
    options = parser.parse_args()
    rows = []
    print(lab.machine() + "\n", flush=True)
    with tempfile.TemporaryDirectory(prefix="rubato-predict.") as folder:
        for text in options.cases:
            rows += case(folder, text, options)
            lab.say(f"{text}: " + ", ".join(f"{row['workers']}: {100 * row['error']:+.1f} %" for row in rows[-2:]))
    lab.table(["model", "microbatches", "workers", "predicted ms", "on the core", "by the clock", "error %",
               "compute", "measured", "sums", "measured", "update", "measured"],
              [[row["case"], row["microbatches"], row["workers"], row["stepMs"], row["step"], row["wall"],
                f"{100 * row['error']:+.1f}", row["computeMs"], row["compute"] + row["add"], row["sumMs"],
                row["reduce"] + row["vote"], row["updateMs"], row["update"]] for row in rows])
    errors = sorted(abs(row["error"]) for row in rows)
    print(f"median error {100 * statistics.median(errors):.1f} %, largest {100 * errors[-1]:.1f} %; "
          f"{sum(error <= 0.15 for error in errors)} of {len(errors)} within 15 %")
    if options.json:
        lab.keep(options.json, rows)


if not os.path.exists(os.path.join(cluster.BUILD, "tests/bench/bench-parts")):
    sys.exit("first: ninja -C build tests/bench/bench-parts")
main()
