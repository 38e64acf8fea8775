#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Devices that differ: microbatches change hands, shares follow the speeds that workers measure, and the sha256 is
that of one device.

Speeds are emulated: the worker of rank r sleeps after each microbatch (base/fault.h), many times as long as its tiny
model computes, so that a slow worker is slow, whatever the two cores are busy with."""
import contextlib
import math
import os
import signal
import statistics

import cluster
import corpus
from cluster import ENDLESS, check, check_nothing_lost, until
from faulty import faulty

SLEEPS = (20, 20, 40, 80)  # ms a microbatch, by rank: speeds 1, 1, 0.5 and 0.25
MICROBATCHES = 22          # shares of 8 8 4 2 end at the same time


def spec(c, steps, want, **more):
    corpus.text(c.path("corpus.txt"), 40000)
    return {
        "model": {"onnx": "gpt.onnx"},
        "data": {"train": {"path": "corpus.txt", "format": "text", "seqLen": 16}},
        "train": {"steps": steps, "globalBatch": MICROBATCHES, "microBatch": 1, "clipNorm": 1.0},
        "devices": {"min": 1, "max": 4, "want": want}, "parallel": {"pipeline": 1}, **more,
    }


@contextlib.contextmanager
def slowed(sleeps):
    """A cluster where rank r sleeps sleeps[r] ms after each microbatch."""
    fault = ",".join(f"worker.computed:rank={r}:do={ms}ms" for r, ms in enumerate(sleeps))
    with faulty(fault), cluster.Cluster(devices=len(sleeps)) as c:
        yield c


def new_model(c):
    c.model("gpt", layers=1, width=32, heads=2, seq=16)


def undisturbed(steps):
    with cluster.Cluster(devices=1) as c:
        new_model(c)
        return c.alone(spec(c, ENDLESS, 1), steps)


def balanced(c, job, beyond=0):
    """The newest configuration with shares by speed (cause `balance`), once it is active and has its receipt."""
    def look():
        found = [item for item in c.json("get", "configurations", job)["items"]
                 if item["cause"] == "balance" and item["number"] > beyond]
        return found[-1] if found and found[-1]["state"] == "ACTIVE" and "receipt" in found[-1] else None

    return until("shares by speed", look, 90)


def counts(item):
    """The shares of a configuration; facts keep them, however soon another configuration follows."""
    return [int(share) for share in item["shares"].split()]


def without(c, job, item):
    """The configuration that follows this one when one of its devices has died."""
    found = [other for other in c.json("get", "configurations", job)["items"] if other["number"] == item["number"] + 1]
    return found[0] if found and found[0]["state"] in ("ACTIVE", "RETIRED") else None


def by_rule(speeds):
    """plan/partition/balance.h, written a second time: whole parts of the ideal shares, the rest where it ends
    soonest."""
    found = [math.floor(MICROBATCHES * speed / sum(speeds) * (1 - 1e-12)) for speed in speeds]
    while sum(found) < MICROBATCHES:
        found[min(range(len(found)), key=lambda r: (found[r] + 1) / speeds[r])] += 1
    return found


def step_ms(c, job, number):
    return statistics.median([row["step_ms"] for row in c.metrics(job) if row["configuration"] == number][2:])


def by_speed():
    """Shares are even, then by speed; a death, whose share is divided by speed; back to four; and not a bit changes."""
    with slowed(SLEEPS) as c:
        new_model(c)
        c.submit("gpt", spec(c, ENDLESS, 4))
        c.wait("gpt", "step=10")
        even = c.json("get", "configurations", "gpt")["items"][0]
        first = even["number"]
        check(counts(even) == [6, 6, 5, 5], f"{even}")
        item = balanced(c, "gpt")
        check_nothing_lost(item["receipt"], "shares by speed")
        check(item["receipt"]["from"] == item["receipt"]["to"] == 4 and item["receipt"]["bytes_moved"] == 0, f"{item}")
        found = [device["microbatches"] for device in c.status("gpt")["devices"]]
        check(found == by_rule([1 / member["microbatchUs"] for member in item["members"]]), f"{found}: {item}")
        check(found[3] < min(found[:2]), f"the slowest has {found[3]} of {found}")
        stolen = [row["stolen"] for row in c.metrics("gpt") if row["configuration"] == first]
        check(sum(stolen) > len(stolen) / 2, f"with even shares hardly anything changed hands: {stolen}")
        print(f"{found}; a step took {step_ms(c, 'gpt', first):.1f} ms, now {step_ms(c, 'gpt', item['number']):.1f}; "
              f"ideal: {MICROBATCHES / sum(1 / ms for ms in SLEEPS):.0f}")
        check("microbatches of" in c.ctl("status", "gpt"), "the status says nothing of shares")
        check(" ".join(map(str, found)) in c.ctl("get", "configurations", "gpt"), "nor do configurations")
        c.kill("gpt", c.status("gpt")["devices"][3])
        behind = until("the job to go on", lambda: without(c, "gpt", item))
        left = counts(behind)
        check(len(left) == 3 and sum(left) == MICROBATCHES and all(map(int.__ge__, left, found)), f"{behind}")
        c.train_on("gpt", 4)
        steps, sha = c.break_off("gpt")
    check(undisturbed(steps) == sha, f"after {steps} steps the bits differ")


def straggler():
    """One of three workers takes three times as long: that is reported once, when it has lasted, though shares even it
    out; and it is over when that worker is gone."""
    def told(kind):
        return [event["text"] for event in c.events(kind, "gpt")]

    def row():
        """(rank, device) of the straggler: the slow rank is not always on the same device."""
        return next((both for both in enumerate(c.status("gpt")["devices"]) if "straggler" in both[1]), None)

    with slowed((20, 20, 60)) as c:
        new_model(c)
        c.submit("gpt", spec(c, ENDLESS, 3))
        balanced(c, "gpt")
        rank, slow = until("a straggler", row, 150)  # a short disturbance begins its time anew
        place = f"{slow['node']}:{slow['device']}"
        check(rank == 2, f"of rank {rank}: {slow}")
        check(slow["straggler"]["microbatchMs"] > 2 * slow["straggler"]["othersMs"], f"{slow}")
        check(len(told("straggler")) == 1 and told("straggler")[0].startswith(f"{place} takes "), f"{told('straggler')}")
        check("a straggler: took" in c.ctl("status", "gpt"), "the status does not say so")
        health = {item["device"]: item.get("slow", "") for item in c.json("get", "devices")["items"]}
        check("for a microbatch" in health[slow["device"]] and sum(map(bool, health.values())) == 1, f"{health}")
        known = [item for item in c.json("describe", "gpt")["state"]["stragglers"] if "told" in item]
        check([item["device"] for item in known] == [slow["device"]], f"{known}")
        check(known[0]["told"] - known[0]["since"] > 5000, f"it was told of at once: {known}")
        os.kill(slow["pid"], signal.SIGKILL)
        until("its end", lambda: told("straggler-over"))
        check(len(told("straggler")) == len(told("straggler-over")) == 1, f"{told('straggler')}")
        c.ctl("cancel", "gpt")


if __name__ == "__main__":
    cluster.main(by_speed, straggler)
