#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Devices that differ: microbatches change hands, shares follow the speeds that workers measure, and the sha256 is
that of one device.

Speeds are emulated: a worker of rank r sleeps behind each microbatch (base/fault.h), many times as long as its tiny
model computes, so that a step takes what its largest sleep takes, whatever the two cores are busy with."""
import os
import signal
import statistics

import cluster
import corpus
from cluster import check, check_nothing_lost, until

SLEEPS = (20, 20, 40, 80)  # ms a microbatch, by rank: speeds 1, 1, 0.5 and 0.25
MICROBATCHES = 22          # 8 8 4 2 are done at once


def spec(c, steps, want, **more):
    corpus.text(c.path("corpus.txt"), 40000)
    return {
        "model": {"onnx": "gpt.onnx"},
        "data": {"train": {"path": "corpus.txt", "format": "text", "seqLen": 16}},
        "train": {"steps": steps, "globalBatch": MICROBATCHES, "microBatch": 1, "clipNorm": 1.0},
        "devices": {"min": 1, "max": 4, "want": want}, **more,
    }


def slowed():
    os.environ["RUBATO_FAULT"] = ",".join(f"worker.computed:rank={r}:do={ms}ms" for r, ms in enumerate(SLEEPS))
    return cluster.Cluster(devices=4)


def new_model(c):
    c.model("gpt", layers=1, width=32, heads=2, seq=16)


def undisturbed(steps):
    os.environ.pop("RUBATO_FAULT", None)
    with cluster.Cluster(devices=1) as c:
        new_model(c)
        c.submit("gpt", spec(c, steps, 1))
        return c.finish("gpt")


def balanced(c, job, beyond=0):
    """The newest configuration with shares by speed that nobody asked for, when it is active."""
    def look():
        found = [item for item in c.json("get", "configurations", job)["items"]
                 if item["cause"] == "balance" and item["number"] > beyond]
        return found[-1] if found and found[-1]["state"] == "ACTIVE" and "receipt" in found[-1] else None

    return until("shares by speed", look, 90)


def shares(c, job):
    return [device["microbatches"] for device in c.status(job)["devices"]]


def follow_speed(shares):
    """As far as can be told where others keep the cores busy too."""
    return sum(shares) == MICROBATCHES and min(shares[:2]) > shares[2] > max(shares[3:], default=0)


def step_ms(c, job, number):
    return statistics.median([row["step_ms"] for row in c.metrics(job) if row["configuration"] == number][2:])


def by_speed():
    """Even, then by speed; a death, whose share goes on by speed; back to four; all of it without a bit's change."""
    alone = undisturbed(100)
    with slowed() as c:
        new_model(c)
        c.submit("gpt", spec(c, 100, 4))
        c.wait("gpt", "step=10")
        first = c.status("gpt")["configuration"]
        check(shares(c, "gpt") == [6, 6, 5, 5], f"{shares(c, 'gpt')}")
        item = balanced(c, "gpt")
        check_nothing_lost(item["receipt"], "shares by speed")
        check(item["receipt"]["from"] == item["receipt"]["to"] == 4 and item["receipt"]["bytes_moved"] == 0, f"{item}")
        found = shares(c, "gpt")
        check(follow_speed(found), f"{c.status('gpt')}")
        before, after = step_ms(c, "gpt", first), step_ms(c, "gpt", item["number"])
        print(f"a step took {before:.1f} ms, now {after:.1f}; ideal: {MICROBATCHES / sum(1 / ms for ms in SLEEPS):.0f}")
        even = max(sleep * share for sleep, share in zip(SLEEPS, (6, 6, 5, 5)))
        check(after < even, "a step is hardly quicker than with even shares")
        stolen = [row["stolen"] for row in c.metrics("gpt") if row["configuration"] == first]
        check(sum(stolen) > len(stolen) / 2, f"with even shares hardly anything changed hands: {stolen}")
        check("microbatches of" in c.ctl("status", "gpt"), "the status says nothing of shares")
        check(" ".join(map(str, found)) in c.ctl("get", "configurations", "gpt"), "nor do configurations")
        os.kill(c.status("gpt")["devices"][3]["pid"], signal.SIGKILL)
        until("the job to go on", lambda: c.status("gpt")["configuration"] == item["number"] + 1)
        left = shares(c, "gpt")
        check(follow_speed(left) and all(n >= before for n, before in zip(left, found)), f"behind a death: {left}")
        c.train_on("gpt", 4)
        check(c.finish("gpt") == alone, "the bits differ")


if __name__ == "__main__":
    cluster.main(by_speed)
