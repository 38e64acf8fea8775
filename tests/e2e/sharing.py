#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Several jobs on one node: by priority, then age; what a higher job takes is a planned shrink with the same bits."""
import cluster
import corpus
from cluster import ENDLESS, check, check_nothing_lost, until


def spec(c, steps, want, least=1, priority=0):
    return {
        "model": {"onnx": "gpt.onnx"},
        "data": {"train": {"path": "corpus.txt", "format": "text", "seqLen": 32}},
        "train": {"steps": steps, "globalBatch": 12, "microBatch": 2},
        "devices": {"min": least, "max": 4, "want": want},
        "priority": priority,
    }


def devices(c, job):
    status = c.status(job)
    return len(status["devices"]) if status["phase"] == "Running" else 0


def receipts_are_clean(c, job):
    for item in c.json("get", "configurations", job)["items"]:
        receipt = item.get("receipt")
        if receipt:
            check_nothing_lost(receipt, f"{job}: {item}")


def end(c, job):
    """Ends a job that gave devices away; returns (steps, sha256)."""
    kinds = c.kinds(job)
    check("preempted" in kinds and "restarted" not in kinds and "worker-died" not in kinds, f"{job}: {kinds}")
    receipts_are_clean(c, job)
    return c.break_off(job)


def three_priorities():
    with cluster.Cluster(devices=4) as c:
        corpus.text(c.path("corpus.txt"), 40000)  # once: jobs that train have it in memory
        c.model("gpt", layers=1, width=64, heads=2, seq=32, dropout=0.1)
        c.submit("low", spec(c, ENDLESS, 4))
        c.wait("low", "devices=4")
        # A later job of equal priority gets nothing, and is told which job has the devices that it waits for.
        c.submit("equal", spec(c, ENDLESS, 1))
        node = c.json("get", "nodes")["items"][0]["name"]
        held = f"low has {node}:0, {node}:1, {node}:2, {node}:3"
        until(f"equal to be told that {held}", lambda: held in (c.status("equal")["reason"] or ""))
        c.ctl("delete", "equal")
        # A higher job takes what it wants, but leaves the other its min.
        c.submit("middle", spec(c, ENDLESS, 2, priority=5))
        c.wait("middle", "devices=2")
        check(devices(c, "low") == 2, f"low has {devices(c, 'low')}")
        # The highest job takes from the lowest first, then from the middle one.
        c.submit("high", spec(c, ENDLESS, 2, least=2, priority=9))
        c.wait("high", "devices=2")
        check((devices(c, "low"), devices(c, "middle")) == (1, 1),
              f"low has {devices(c, 'low')}, middle {devices(c, 'middle')}")
        # No job may be pushed below its min: one more job waits, and says for what.
        c.submit("last", spec(c, ENDLESS, 1, priority=20))
        until("high to give", lambda: "waits for 1 device" in (c.status("last")["reason"] or "") )
        c.ctl("delete", "last")
        # The devices come back, to the higher job first.
        c.drop("high")
        c.train_on("middle", 2)
        found = {"middle": end(c, "middle")}
        c.train_on("low", 4)
        found["low"] = end(c, "low")
        for job, (steps, sha) in found.items():
            check(c.alone(spec(c, ENDLESS, 1), steps) == sha, f"{job} shared its devices and the bits differ")


cluster.main(three_priorities)
