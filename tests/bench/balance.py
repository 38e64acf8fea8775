#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Devices of speed 1, 1, 0.5 and 0.25: even shares, shares by measured speed, and stealing on top.

    balance.py [--microbatches 16,44] [--steps 80] [--sleep 40] [--json FILE]

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
ARMS = {"even": "even", "by speed": "shares", "by speed, stealing": "auto"}


HEAD = ["microbatches", "arm", "shares", "ideal ms", "step ms", "over ideal", "variation", "5 to 95 % of steps",
        "stolen a step", "steps"]


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
    """The configuration in which the job trains to its end."""
    if balance == "even":
        return c.status("gpt")["configuration"]
    until("shares by speed", lambda: any(item["cause"] == "balance" and item["state"] == "ACTIVE"
                                         for item in c.json("get", "configurations", "gpt")["items"]), 200)
    return c.status("gpt")["configuration"]


def slow(sleep, more=()):
    """Sets the speeds of workers that start from now on."""
    os.environ["RUBATO_FAULT"] = ",".join([f"worker.computed:rank={rank}:do={sleep / speed:.0f}ms"
                                           for rank, speed in enumerate(SPEEDS)] + list(more))


def describe(rows, microbatches, name, shares, ideal):
    took = statistics.median(row["step_ms"] for row in rows)
    spread = sorted(row["step_ms"] for row in rows)
    return [microbatches, name, shares, ideal, took, f"{100 * (took / ideal - 1):+.1f} %",
            f"{statistics.median(row['variation'] for row in rows):.3f}",
            f"{spread[len(spread) // 20]:.0f} to {spread[-1 - len(spread) // 20]:.0f}",
            statistics.mean(row["stolen"] for row in rows), len(rows)]


def shares_of(c):
    return " ".join(str(device["microbatches"]) for device in c.status("gpt")["devices"])


def ideal_of(c, microbatches):
    return microbatches / sum(1 / device["microbatchMs"] for device in c.status("gpt")["devices"])


def run(name, microbatches, steps, sleep):
    """Rows of the first table, and the sha256."""
    slow(sleep)
    with cluster.Cluster(devices=4) as c:
        c.model("gpt", layers=1, width=32, heads=2, seq=16)
        c.submit("gpt", spec(c, microbatches, steps, 4, ARMS[name]))
        c.wait("gpt", "step=8")
        first, even = c.status("gpt")["configuration"], shares_of(c)
        number = settled(c, ARMS[name])
        c.wait("gpt", f"step={steps - 5}", 600)
        check(c.status("gpt")["configuration"] == number, "it has changed again")
        shares, ideal, rows = shares_of(c), ideal_of(c, microbatches), c.metrics("gpt")
        found = [describe([row for row in rows if row["configuration"] == number][2:], microbatches, name, shares,
                          ideal)]
        if name.endswith("stealing"):  # until the speeds are known it has even shares
            found.insert(0, describe([row for row in rows if row["configuration"] == first][10:], microbatches,
                                     "even, stealing", even, ideal))
        return found, c.finish("gpt", 600)


def slow_down(name, microbatches, sleep):
    """A row of the second table: the first device becomes half as fast."""
    steps, at = 75, 16 * microbatches
    slow(sleep, [f"worker.computed:rank=0:at={at}:do={sleep}ms"])
    with cluster.Cluster(devices=4) as c:
        c.model("gpt", layers=1, width=32, heads=2, seq=16)
        c.submit("gpt", spec(c, microbatches, steps, 4, ARMS[name]))
        c.wait("gpt", "step=8")
        number = settled(c, ARMS[name])
        c.wait("gpt", f"step={steps - 2}", 600)
        check(c.status("gpt")["configuration"] == number, "it has changed again")
        row = describe([row for row in c.metrics("gpt") if row["step"] > 60], microbatches, name, shares_of(c),
                       ideal_of(c, microbatches))
        return row, c.finish("gpt", 600)


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--microbatches", default="16,44")
    options.add_argument("--steps", type=int, default=80)
    options.add_argument("--sleep", type=int, default=40)
    options.add_argument("--json")
    options = options.parse_args()
    counts, rows, slowed = list(map(int, options.microbatches.split(","))), [], []
    print(lab.machine() + "\n")
    for microbatches in counts:
        alone = reference(microbatches, options.steps)
        for name in ARMS:
            found, sha = run(name, microbatches, options.steps, options.sleep)
            check(sha == alone, f"{name}, {microbatches} microbatches: the bits differ")
            rows += found
            lab.say(str(found))
    lab.table(HEAD, rows)
    print("The first device becomes half as fast; the steps until shares follow:\n")
    digests = set()
    for name in list(ARMS)[1:]:
        row, sha = slow_down(name, counts[-1], options.sleep)
        slowed.append(row)
        digests.add(sha)
        lab.say(str(row))
    check(len(digests) == 1, "the bits differ")
    lab.table(HEAD, slowed)
    if options.json:
        lab.keep(options.json, [dict(zip([*HEAD, "slowed"], [*row, row in slowed])) for row in rows + slowed])
    print("The sha256 is that of one device in every run of the first table, and the same in the second.")


main()
