#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Disks without room: a checkpoint's, a node's state folder, that of the private etcd.  Root alone can mount small ones."""
import contextlib
import os
import subprocess
import sys
import tempfile

import cluster
import corpus
from cluster import BUILD, ENDLESS, check


@contextlib.contextmanager
def small_disk(folder, options):
    """A disk at `folder`."""
    os.makedirs(folder, exist_ok=True)
    if subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], check=False).returncode:
        print("no disk can be mounted here: not shown")
        sys.exit(77)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=False)


def fill(folder):
    """Not a byte is left."""
    with contextlib.suppress(OSError), open(os.path.join(folder, "filler"), "wb", buffering=0) as filler:
        while True:
            filler.write(bytes(4096))


def checkpoints():
    """A checkpoint that does not fit: the job says so and trains on; the old checkpoints stay."""
    with cluster.Cluster(devices=1) as c, small_disk(c.path("small"), "size=1m") as small:
        c.model("cnn", image=8)
        features, targets = corpus.classes(c.folder, 64, (3, 8, 8), 10)
        c.submit("full", {"model": {"onnx": "cnn.onnx"}, "data": {"train": {"path": features, "targets": targets}},
                          "train": {"steps": 30, "globalBatch": 8}, "devices": {"min": 1, "max": 2, "want": 1},
                          "checkpoint": {"path": small, "every": 10}})
        c.wait("full", "done")
        events = c.events("checkpoint-failed", "full")
        check(events and "space" in events[0]["text"], f"events: {events}")
        told = c.ctl("status", "full")
        check(events[-1]["text"] in told, f"status does not tell of it: {told}")
        check(not [n for n in os.listdir(small) if n.startswith("step-")], "half a checkpoint was left")
        check(len(c.export("full")) == 64, "the result is not lost")


def private_etcd():
    """rubatod on a disk without room names the disk, and not etcd, which cannot run there."""
    for options, *words in (("size=20m", "etcd cannot run: the disk of {}/etcd is full: ",
                             " of its 20 MiB are free, and 64 are needed: make room there"),
                            ("nr_inodes=1", "the disk of {} takes no further file")):
        with tempfile.TemporaryDirectory(prefix="rubato-e2e.") as folder, small_disk(folder, options) as small:
            state = os.path.join(small, "state")
            done = subprocess.run([os.path.join(BUILD, "rubatod"), "--single-node", "--state-dir", state],
                                  capture_output=True, text=True, timeout=60)
            check(done.returncode == 69, f"exit {done.returncode}: {done.stderr}")
            for word in words:
                check(word.format(state) in done.stderr, f"{options}: '{word}' is not in: {done.stderr}")


def state_folder():
    """A job leaves a node whose state folder is full, as if nothing were: its plans are kept in memory there."""
    c = cluster.Cluster(nodes=2, devices=1, paced=True)
    with small_disk(c.path("n1"), "size=16m") as small, c:
        here, there = c.nodes
        check(there.state == small, f"{there.state} is not {small}")
        spec = corpus.text_job(c, 1, 2, steps=ENDLESS, globalBatch=12, microBatch=2)
        c.model("gpt", layers=1, width=64, heads=2, seq=32, dropout=0.1)
        c.ctl("node", "cordon", here.name)
        c.submit("moves", spec)
        c.wait("moves", "step=20")
        c.ctl("node", "uncordon", here.name)
        fill(small)
        c.ctl("node", "drain", there.name, "--wait", "--timeout", 60)
        status = c.status("moves")
        check({device["node"] for device in status["devices"]} == {here.name}, f"{status}")
        check(not {"abandoned", "park-failed", "restarted"} & set(c.kinds("moves")), f"{c.kinds('moves')}")
        c.same_as_alone("moves", spec, "its node's disk was full")


if __name__ == "__main__":
    cluster.main(checkpoints, private_etcd, state_folder)
