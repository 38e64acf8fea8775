#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A cluster is upgraded while jobs train (docs/operations.md, Upgrading): to a version with the same bits, and to one
with other bits, which here is the same version with other instructions of the processor."""
import os
import shutil
import signal

import cluster
import corpus
from cluster import ENDLESS, check, until

OTHERS = ["env", "ONEDNN_MAX_CPU_ISA=SSE41"]  # a numeric class that no processor has by itself


def same_bits():
    """An upgrade to a version with the same bits: node by node, and the job is back on all nodes."""
    with cluster.Cluster(nodes=2, devices=1) as c:
        c.model("gpt", layers=1, width=64, heads=2, seq=32, dropout=0.1)
        c.submit("gpt", spec := corpus.text_job(c, 2, 6, steps=ENDLESS, globalBatch=12, microBatch=2))
        for node in c.nodes:
            c.train_on("gpt", 2)
            check(node.stop(signal.SIGTERM, 40) == 0, "rubatod's exit status")
            node.start()
        c.train_on("gpt", 2)
        c.same_as_alone("gpt", spec | {"devices": {"min": 1, "max": 1, "want": 1}}, "upgraded while it trained")


def numeric_class(c):
    return c.json("get", "nodes")["items"][0]["numericClass"]


def upgrade(c):
    """As if rubatod were killed and another version of it started: its workers live on."""
    c.nodes[0].stop(signal.SIGKILL)
    c.nodes[0].prefix = OTHERS
    c.nodes[0].start()


def other_bits():
    """A job keeps the devices that it trains on, but gets no others; another job goes on from its checkpoint where that
    is asked for, and only then."""
    with cluster.Cluster(devices=3) as c:
        c.model("gpt", layers=1, width=64, heads=2, seq=32, dropout=0.1)
        spec = corpus.text_job(c, 2, 6, steps=ENDLESS, globalBatch=12, microBatch=2)
        spec["checkpoint"] = {"path": "saved"}
        c.submit("gpt", spec)
        c.train_on("gpt", 2)
        older = numeric_class(c)
        check(" numerics-" in older and c.json("version")["rubatod"]["version"] not in older, f"the class is {older}")
        upgrade(c)
        newer = until("another class", lambda: (now := numeric_class(c)) != older and now)
        c.train_on("gpt", 2)
        c.kill("gpt", c.status("gpt")["devices"][0])
        c.train_on("gpt", 1, 500)
        c.ctl("pause", "gpt")
        c.wait("gpt", "paused")
        c.ctl("resume", "gpt")
        until("why it waits", lambda: "other bits" in (c.status("gpt").get("reason") or ""))  # "paused" was a reason, too
        check(older in c.status("gpt")["reason"], "the class that it needs is not named")
        goes_on(c, spec, older, newer)


def checkpoint_of_parked(c):
    step = c.status("gpt")["step"]
    folder = c.path(f"saved/step-{step:08}")
    os.makedirs(folder)
    with open(os.path.join(folder, "notes"), "w"):
        pass
    asked = c.run("checkpoint", "gpt")
    check(asked.returncode == 4 and "is there already" in asked.stderr, f"exit {asked.returncode}: {asked.stderr}")
    check(os.listdir(c.path("saved")) == [os.path.basename(folder)], f"left behind: {os.listdir(c.path('saved'))}")
    shutil.rmtree(folder)
    for _ in range(2):
        check(c.json("checkpoint", "gpt")["path"] == folder, "where the checkpoint is")
    return step


def goes_on(c, spec, older, newer):
    step = checkpoint_of_parked(c)
    c.ctl("delete", "gpt")
    file = c.job_file("gpt", spec | {"train": spec["train"] | {"steps": step + 60}})
    asked = c.run("submit", "-f", file)
    check(asked.returncode == 4 and older in asked.stderr and newer in asked.stderr, asked.stderr)
    asked = c.run("submit", "-f", file, "--set", "spec.checkpoint.numericClass=any")
    check(asked.returncode == 0 and older in asked.stderr and newer in asked.stderr, asked.stderr)
    c.wait("gpt", "done")
    check(c.metrics("gpt")[0]["step"] == step + 1, f"went on from step {step}: {c.metrics('gpt')[0]}")
    check("are the same on 2 devices" in c.ctl("verify", "gpt", "--devices", 2), "others follow from it on other devices")


cluster.main(same_bits, other_bits)
