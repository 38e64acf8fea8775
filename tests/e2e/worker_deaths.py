#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Workers die, or are stopped. The job goes on by itself, the bits are the same, and so is what users hear of its
steps."""
import json
import math
import os
import random
import signal
import struct
import time

import cluster
import corpus
from cluster import ENDLESS, check, until
from faulty import faulty
from gpt_job import model, registered, same_as_alone, spec


def each_rank(how, kind, word, what):
    """A signal to each rank in turn, rank 0 too: the rank's agent reports it, and nothing is lost."""
    with cluster.Cluster(devices=4) as c:
        model(c)
        c.submit("gpt", spec(c, ENDLESS))
        for rank in (0, 1, 2):
            status = c.train_on("gpt", 3)
            at = time.time()
            c.kill("gpt", status["devices"][rank], how)
            said = until(f"the event {kind}", lambda: [e for e in c.events(kind, "gpt") if e["time"] >= at * 1000 - 5])
            check(word in said[0]["text"], said[0]["text"])
        c.train_on("gpt", 3)
        same_as_alone(c, what)


def kill_workers():
    """The agent of a killed worker reaps it."""
    each_rank(signal.SIGKILL, "worker-died", "signal 9", "workers were killed")


def stop_workers():
    """The others must not wait for a stopped worker for ever: its agent kills it."""
    each_rank(signal.SIGSTOP, "worker-killed", "stopped", "workers were stopped")


def kill_the_only_worker():
    """Without a survivor the job goes on from the newest checkpoint, or from the start, and says so."""
    with cluster.Cluster(devices=1) as c:
        model(c)
        for checkpoint in ({}, {"path": c.path("ckpt"), "every": 10}):
            c.submit("gpt", spec(c, ENDLESS, 1, checkpoint=checkpoint))
            c.wait("gpt", "step=30")
            until("a checkpoint", lambda: not checkpoint or registered(c))
            c.kill("gpt", c.status("gpt")["devices"][0])
            until("the restart", lambda: c.events("restarted", "gpt"))
            c.train_on("gpt", 1, 40)  # beyond where it was
            same_as_alone(c, f"restarted, {checkpoint or 'no checkpoint'}")


def restarts_are_limited():
    with cluster.Cluster(devices=1) as c:
        model(c)
        c.submit("gpt", spec(c, ENDLESS, 1, failure={"maxRestarts": 1, "window": "1h"}))
        for _ in range(2):
            pid = until("a worker", lambda: [d["pid"] for d in c.status("gpt")["devices"] if d.get("pid")])[0]
            c.wait("gpt", "running")
            os.kill(pid, signal.SIGKILL)
            until("its end", lambda: c.status("gpt")["phase"] == "Failed" or
                  pid not in [d.get("pid") for d in c.status("gpt")["devices"]])
        c.ctl("wait", "gpt", "--for", "done", "--timeout", "30", code=1)
        status = c.status("gpt")
        check(status["phase"] == "Failed" and status["reason"], f"{status}")


def check_last_step(c, status):
    last = c.metrics("gpt")[-1]
    told = [status["step"], status["loss"], status["samples"]]
    check(told == [last["step"], last["loss"], last["first_sample"] + last["samples"]],
          f"{status['phase']}, {told} of its last step is told, and that was {last}")


def last_step_is_told():
    """A user who hears that a job stands still, or has ended, hears of its last step, not of an earlier one."""
    with cluster.Cluster(devices=2) as c:
        model(c)
        for devices in (1, 2):
            c.submit("gpt", spec(c, ENDLESS, devices, failure={"maxRestarts": 0}))
            for _ in range(2):
                c.train_on("gpt", devices, 30)
                c.ctl("pause", "gpt")
                c.wait("gpt", "devices=0")
                check_last_step(c, c.status("gpt"))
                c.ctl("resume", "gpt")
            for device in c.train_on("gpt", devices, 30)["devices"]:
                os.kill(device["pid"], signal.SIGKILL)
            check_last_step(c, c.json("wait", "gpt", "--for", "done", code=1))
            c.ctl("delete", "gpt")


def lost_steps_are_told_on_request():
    """A fall back takes steps out of `metrics`, until they are done again."""
    c = cluster.Cluster(devices=1)
    slow = c.path("slow")
    with faulty("@" + slow), c:
        model(c)
        c.submit("gpt", spec(c, ENDLESS, 1))
        c.wait("gpt", "step=100")
        with open(slow, "w") as file:  # so that the lost steps are not done again before the pause
            file.write("worker.vote:do=300ms")
        c.kill("gpt", c.status("gpt")["devices"][0])
        until("the restart", lambda: c.events("restarted", "gpt"))
        c.wait("gpt", "running")
        until("a step", lambda: 0 < c.status("gpt")["step"] < 100)
        c.ctl("pause", "gpt")
        c.wait("gpt", "devices=0")
        status = c.status("gpt")
        check(status["step"] < 100, f"at step {status['step']} already")
        check_last_step(c, status)
        rows = json.loads(c.ctl("-o", "json", "metrics", "gpt", "--lost"))
        check({row["step"] for row in rows} >= set(range(1, 100)), "what was lost is not told")


def fails_at(fault):
    """The step at which a job gives up because of a sample that is not a number."""
    with faulty(fault), cluster.Cluster(devices=2) as c:
        draw = random.Random(1)
        values = [draw.gauss(0, 1) for _ in range(256 * 16)]
        corpus.npy(c.path("held-out.npy"), "<f4", (256, 16), struct.pack(f"<{len(values)}f", *values))
        values[77 * 16] = float("nan")
        c.model("mlp", inputs=16, hidden=32, depth=1, classes=4)
        corpus.npy(c.path("x.npy"), "<f4", (256, 16), struct.pack(f"<{len(values)}f", *values))
        corpus.npy(c.path("y.npy"), "<i8", (256,), struct.pack("<256q", *[draw.randrange(4) for _ in range(256)]))
        c.submit("mlp", {"model": {"onnx": "mlp.onnx"},
                         "data": {"train": {"path": "x.npy", "targets": "y.npy"},
                                  "eval": {"path": "held-out.npy", "targets": "y.npy"}},
                         "train": {"steps": 16, "globalBatch": 16, "eval": {"every": 1},
                                   "onNonFinite": {"action": "stop"}},
                         "devices": {"min": 1, "max": 2, "want": 2}})
        until("the end", lambda: c.status("mlp")["phase"] in ("Failed", "Succeeded"))
        status = c.status("mlp")
        check("not finite" in (status["reason"] or ""), f"{status['phase']} at {status['step']}: {status['reason']}")
        return int(status["step"])


def fails_behind_a_death():
    """Whether a job gives up depends on its steps alone, and not on which worker died in the evaluation after one."""
    step = fails_at("")
    check(1 < step < 16, f"step {step}")
    check(fails_at(f"worker.committed:rank=1:at={step}:do=kill") == step, "it went on")


def evaluations(fault):
    """What metrics and status say of the evaluations of a job, in the words of whoever told them."""
    with faulty(fault), cluster.Cluster(devices=3) as c:
        model(c)
        corpus.text(c.path("held-out.txt"), 4000)
        job = spec(c, 24, 2)
        job["data"]["eval"] = {"path": "held-out.txt"}
        job["train"]["eval"] = {"every": 10}
        c.submit("gpt", job)
        c.wait("gpt", "done")
        rows = c.metrics("gpt")
        check([row["step"] for row in rows] == list(range(1, 25)), f"{rows}")
        status = c.status("gpt")
        check(status["step"] == 24, f"status says step {status['step']}")
        return {row["step"]: row["eval_loss"] for row in rows if not math.isnan(row["eval_loss"])}, status["evalLoss"]


def evaluates_behind_a_death():
    """An evaluation that a death interrupts is made up for, also the one after the last step."""
    alone = evaluations("")
    check(sorted(alone[0]) == [10, 20, 24] and alone[1] == alone[0][24], f"{alone}")
    for step in 10, 24:
        told = evaluations(f"worker.committed:rank=1:at={step}:do=kill")
        check(told == alone, f"a death behind step {step}: {told}, undisturbed {alone}")


cluster.main(kill_workers, stop_workers, kill_the_only_worker, restarts_are_limited, last_step_is_told,
             lost_steps_are_told_on_request, fails_behind_a_death, evaluates_behind_a_death)
