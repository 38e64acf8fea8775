#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""State in shards, with one and with two replicas of each block: the sha256 is that of a run that holds everything
everywhere, at any device count, resized, paused, killed; and with one replica the job says what a death lost.  All jobs
are data parallel: auto.py has what the planner makes of such jobs."""
import os
import pathlib
import resource
import signal
import time

import cluster
import delicate
from cluster import ENDLESS, check, check_nothing_lost, until
from delicate import models


def sharded(make):
    return lambda c, steps, replicas, want=1, **more: make(c, steps, want, state={"replicas": replicas},
                                                           parallel={"pipeline": 1}, **more)


cnn_spec, gpt_spec = sharded(delicate.cnn_spec), sharded(delicate.gpt_spec)


def same_as_alone(c, job, what):
    c.same_as_alone(job, gpt_spec(c, ENDLESS, "all"), what)


def fixed_counts():
    with cluster.Cluster(devices=3) as c:
        models(c)
        for make in cnn_spec, gpt_spec:
            c.submit("alone", make(c, 24, "all"))
            alone = c.finish("alone")
            for replicas in "1", "2":
                for devices in 1, 2, 3:
                    spec = make(c, 24, replicas, devices)
                    spec["devices"]["min"] = devices  # not fewer because the last job's workers are still leaving
                    c.submit("job", spec)
                    c.wait("job", "done")
                    plan = c.status("job")["plan"]["summary"]
                    check((f"{replicas} replica" in plan) == (devices > int(replicas)), plan)
                    check([row["step"] for row in c.metrics("job")] == list(range(1, 25)), "a row a step")
                    check(c.finish("job") == alone, f"{replicas} replicas on {devices}: the bits differ")


def resized_and_paused():
    """Growing, shrinking, exporting, checkpointing, pausing: a worker that leaves gives the blocks that only it has."""
    with cluster.Cluster(devices=5, paced=True) as c:
        models(c)
        for replicas in "1", "2":
            c.submit("job", gpt_spec(c, ENDLESS, replicas, 2))
            c.wait("job", "step=5")
            for change in (("grow", 2), ("shrink", 1), ("grow", 2), ("shrink", 4), ("grow", 2), ("shrink", 1)):
                receipt = c.json(change[0], "job", change[1], "--wait", "--timeout", "60")
                check_nothing_lost(receipt, f"{replicas} replicas")
            c.ctl("resize", "job", "--want", 3, "--wait")
            c.ctl("checkpoint", "job", "--wait")
            c.export("job")
            c.ctl("pause", "job")
            until("the pause", lambda: c.status("job")["phase"] == "Paused")
            c.ctl("resume", "job")
            c.wait("job", "running")
            c.train_on("job", 3)
            check("restarted" not in c.kinds("job"), "it was restarted")
            same_as_alone(c, "job", f"{replicas} replicas, resized and paused")


def killed():
    """With two replicas no death loses anything, if it comes after the replicas that the last death took are
    rebuilt."""
    with cluster.Cluster(devices=4) as c:
        models(c)
        c.submit("job", gpt_spec(c, ENDLESS, "2", 4))
        for rank in (0, 1, 3):
            status = c.train_on("job", 4)
            c.kill("job", status["devices"][rank])
            until("the job to go on", lambda: c.status("job")["step"] > status["step"] + 5)
        check("restarted" not in c.kinds("job"), "it was restarted")
        same_as_alone(c, "job", "workers were killed")


def lost():
    """With one replica a death loses the blocks of the dead worker: the job goes on from its checkpoint if it has one,
    and says so."""
    with cluster.Cluster(devices=3) as c:
        models(c)
        for job, checkpoint in (("job", {}), ("kept", {"path": c.path("ckpt"), "every": 10})):
            c.submit(job, gpt_spec(c, ENDLESS, "1", 3, checkpoint=checkpoint))
            devices = c.train_on(job, 3, 30)["devices"]
            until("a checkpoint", lambda: not checkpoint or c.json("get", "checkpoints", job)["items"])
            c.kill(job, devices[1])
            said = until("a restart", lambda: [event["text"] for event in c.events("restarted", job)])
            c.train_on(job, 3, 40)
            check(len(said) == 1 and "a part of the state was lost" in said[0], f"events: {said}")
            check(("goes on from step" in said[0]) == bool(checkpoint), said[0])
            same_as_alone(c, job, "restarted")


def by_memory():
    """Left open, the number of replicas follows from the memory of a device; a limit that is too little for any is
    refused."""
    with cluster.Cluster(devices=3) as c:
        models(c)
        spec = gpt_spec(c, 20, "auto", 3, memory={"limit": "1k"})
        spec["devices"]["min"] = 3
        done = c.run("submit", "-f", c.job_file("job", spec))
        check(done.returncode and "spec.memory.limit: 1k is too little" in done.stderr, done.stderr)
        takes = float(done.stderr.split("takes")[1].split()[0])
        for limit, says in (f"{int(takes * 1024 * 1.02)}Ki", "2 replicas"), ("auto", "7 microbatches"):
            spec["memory"]["limit"] = limit
            c.submit("job", spec)
            c.wait("job", "done")
            plan = c.status("job")["plan"]["summary"]
            check(says in plan and ("replica" in says) == ("replica" in plan), plan)
            c.ctl("delete", "job")


def limit_memory(pid, more):
    """Limits the process to what it has, and `more` MB."""
    pages = int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[0])
    resource.prlimit(pid, resource.RLIMIT_AS, (pages * resource.getpagesize() + (more << 20), resource.RLIM_INFINITY))


def no_room():
    """A checkpoint of a state in shards takes memory for all of the state at one rank: without that memory it is
    refused, and training goes on."""
    with cluster.Cluster(devices=2) as c:
        models(c, width=512, seq=8)  # 3 x 26 MB
        c.submit("job", {**gpt_spec(c, ENDLESS, "1", 2, seq=8), "parallel": {"pipeline": 1, "balance": "even"}})
        workers = [d["pid"] for d in c.train_on("job", 2)["devices"]]
        for pid in workers:
            limit_memory(pid, 16)
        done = c.run("checkpoint", "job", "--wait")
        check(done.returncode and "no memory for the whole state" in done.stderr, done.stderr)
        check([d["pid"] for d in c.train_on("job", 2)["devices"]] == workers, "a worker ended")
        for pid in workers:
            limit_memory(pid, 1 << 20)
        c.ctl("checkpoint", "job", "--wait")
        c.same_as_alone("job", gpt_spec(c, ENDLESS, "all", seq=8), "a checkpoint was refused")


def node_lost():
    """Two nodes of two devices: each block is on both nodes, so a node and all its processes may go at once."""
    with cluster.Cluster(nodes=2, devices=2, paced=True) as c:
        models(c)
        c.submit("job", gpt_spec(c, ENDLESS, "2", 4))
        there = [device for device in c.train_on("job", 4)["devices"] if device["node"] == "n1"]
        check(len(there) == 2, f"n1 has {there}")
        os.kill(there[0]["pid"], signal.SIGKILL)
        c.kill("job", there[1])
        c.train_on("job", 4)
        check("restarted" not in c.kinds("job"), "it was restarted")
        same_as_alone(c, "job", "a node's workers were killed")


def node_is_stopped():
    """With one replica the others wait for a node that stands still.  Its rubatod goes on before its worker does, and
    does not kill the worker, which has blocks that no other worker has."""
    with cluster.Cluster(nodes=2, devices=1) as c:
        models(c)
        c.submit("job", gpt_spec(c, ENDLESS, "1", 2))
        lost = next(node for node in c.nodes if node.name != c.json("version")["rubatod"]["leader"])
        pid, = (device["pid"] for device in c.train_on("job", 2)["devices"] if device["node"] == lost.name)
        left = next(node for node in c.nodes if node is not lost).endpoint
        os.kill(lost.process.pid, signal.SIGSTOP)
        os.kill(pid, signal.SIGSTOP)
        until("it to be missed", lambda: "out of reach" in (c.json("status", "job", endpoint=left)["reason"] or ""))
        os.kill(lost.process.pid, signal.SIGCONT)
        time.sleep(0.03)
        os.kill(pid, signal.SIGCONT)
        c.train_on("job", 2)
        check("restarted" not in c.kinds("job"), "it was restarted")
        same_as_alone(c, "job", "a node stood still")


if __name__ == "__main__":
    cluster.main(fixed_counts, resized_and_paused, killed, lost, by_memory, no_room, node_lost, node_is_stopped)
