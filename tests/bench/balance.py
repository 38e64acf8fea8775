#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Devices of speed 1, 1, 0.5 and 0.25: even shares against shares by measured speed.

    balance.py [--microbatches 16,44,64] [--steps 60] [--sleep 10]

Speeds are emulated: behind each microbatch of a tiny model a worker sleeps, so that its device seems to need `--sleep`
ms (speed 1) to four times as much (0.25).  So the clock says what it would say of such devices, whatever the cores are
busy with.  The ideal is what the speeds that the workers measured allow: microbatches / sum of 1 / (ms a microbatch).
"Variation": of the times that the devices compute in a step, standard deviation over mean; the median over steps."""
import argparse
import os
import statistics
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../e2e"))
import cluster  # noqa: E402
import corpus  # noqa: E402
import lab  # noqa: E402
from cluster import check, until  # noqa: E402

SPEEDS = (1, 1, 0.5, 0.25)
ARMS = {"even shares": "even", "shares by speed": "auto"}


def spec(c, microbatches, steps, want, balance):
    corpus.text(c.path("corpus.txt"), 40000)
    return {
        "model": {"onnx": "gpt.onnx"},
        "data": {"train": {"path": "corpus.txt", "format": "text", "seqLen": 16}},
        "train": {"steps": steps, "globalBatch": microbatches, "microBatch": 1, "clipNorm": 1.0},
        "devices": {"min": 1, "max": 4, "want": want}, "parallel": {"balance": balance},
    }


def reference(microbatches, steps):
    os.environ.pop("RUBATO_FAULT", None)
    with cluster.Cluster(devices=1) as c:
        c.model("gpt", layers=1, width=32, heads=2, seq=16)
        c.submit("gpt", spec(c, microbatches, steps, 1, "even"))
        return c.finish("gpt")


def settled(c, balance):
    """The configuration that it trains in for good."""
    if balance == "even":
        return c.status("gpt")["configuration"]
    until("shares by speed", lambda: any(item["cause"] == "balance" and item["state"] == "ACTIVE"
                                         for item in c.json("get", "configurations", "gpt")["items"]), 200)
    return c.status("gpt")["configuration"]


def run(name, microbatches, steps, sleep):
    """A row of the table, and the sha256."""
    os.environ["RUBATO_FAULT"] = ",".join(f"worker.computed:rank={rank}:do={sleep / speed:.0f}ms"
                                          for rank, speed in enumerate(SPEEDS))
    with cluster.Cluster(devices=4) as c:
        c.model("gpt", layers=1, width=32, heads=2, seq=16)
        c.submit("gpt", spec(c, microbatches, steps, 4, ARMS[name]))
        c.wait("gpt", "step=8")
        number = settled(c, ARMS[name])
        c.wait("gpt", f"step={steps - 5}", 600)
        status = c.status("gpt")
        devices = status["devices"]
        check(status["configuration"] == number, f"it has changed again: {status['plan']}")
        rows = [row for row in c.metrics("gpt") if row["configuration"] == number][2:]
        ideal = microbatches / sum(1 / device["microbatchMs"] for device in devices)
        took = statistics.median(row["step_ms"] for row in rows)
        spread = sorted(row["step_ms"] for row in rows)
        sha = c.finish("gpt", 600)
    return [microbatches, name, " ".join(str(device["microbatches"]) for device in devices), ideal, took,
            f"{100 * (took / ideal - 1):+.1f} %", f"{statistics.median(row['variation'] for row in rows):.3f}",
            f"{spread[len(spread) // 20]:.0f} to {spread[-1 - len(spread) // 20]:.0f}", len(rows)], sha


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--microbatches", default="16,44,64")
    options.add_argument("--steps", type=int, default=100)
    options.add_argument("--sleep", type=int, default=10)
    options = options.parse_args()
    rows = []
    print(lab.machine() + "\n")
    for microbatches in map(int, options.microbatches.split(",")):
        alone = reference(microbatches, options.steps)
        for name in ARMS:
            row, sha = run(name, microbatches, options.steps, options.sleep)
            check(sha == alone, f"{name}, {microbatches} microbatches: the bits differ")
            rows.append(row)
            lab.say(str(row))
    lab.table(["microbatches", "arm", "shares", "ideal ms", "step ms", "over ideal", "variation", "5 to 95 % of steps",
               "steps"], rows)
    print("The sha256 of the weights is that of one device in every run.")


main()
