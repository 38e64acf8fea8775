#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A pause changes nothing. State in shards is gathered on one worker first, which stands then: no step is trained, none
that was told is taken back, also where it dies; and a pause whose state cannot be saved is taken back by resume."""
import glob
import json
import os
import signal

import cluster
import laps
import split
from cluster import ENDLESS, check, until
from delicate import gpt_spec, models
from faulty import faulty


def in_shards(c, replicas, want):
    return gpt_spec(c, ENDLESS, want, state={"replicas": replicas}, parallel={"pipeline": 1})


def same_as_alone(c, what):
    c.same_as_alone("job", in_shards(c, "all", 1), what)


def pause(c):
    c.ctl("pause", "job")
    until("the pause", lambda: c.status("job")["phase"] == "Paused")


def check_each_step_once(c, what):
    """And no row was ever taken back."""
    rows = [row["step"] for row in c.metrics("job")]
    check(rows == list(range(1, len(rows) + 1)), f"{what}: steps in metrics are not 1, 2, 3 ...: {rows}")
    told = json.loads(c.ctl("-o", "json", "metrics", "job", "--lost"))
    check(len(told) == len(rows), f"{what}: {len(told)} rows were told, and {len(rows)} steps count")


def kept_bits(c, what, spec):
    """The bits of these follow from how many devices they have: a step on one alone would be seen."""
    devices = spec["devices"]["min"]
    c.submit("job", spec)
    for _ in range(2):
        c.train_on("job", devices)
        pause(c)
        c.ctl("resume", "job")
    c.train_on("job", devices)
    check(c.kinds("job").count("gathered") == 2, f"{what}: events: {c.kinds('job')}")
    pause(c)
    parked = glob.glob(os.path.join(c.nodes[0].state, "jobs", "*", "park", "step-*"))
    check(len(parked) == 1, f"{what}: kept are {parked}")
    check_each_step_once(c, what)
    check({int(row["devices"]) for row in c.metrics("job")} == {devices}, f"{what}: fewer devices than min")
    steps, sha = c.break_off("job")
    c.submit("job", {**spec, "train": {**spec["train"], "steps": steps}})
    check(c.finish("job") == sha, f"{what}: it was paused, and has other bits")


def pauses_keep_the_bits():
    """Of split filters and asynchronous pipelines too, however late it is heard that the state is gathered."""
    with faulty("daemon.heard:do=30ms,worker.vote:rank=0:do=50ms"), cluster.Cluster(devices=2) as c:
        c.model("mlp", inputs=48, hidden=64, depth=2, classes=10)
        kept_bits(c, "2 parts of the filters", split.spec_of(c, "mlp", (48,), ENDLESS, 2, 2))
        c.model("mlp", inputs=64, hidden=256, depth=3)
        spec = laps.spec(c, ENDLESS, 2, 2, state={"replicas": "1"})
        spec["devices"]["min"] = 2
        kept_bits(c, "an asynchronous pipeline", spec)


def gatherer_killed():
    """kill -9 of who has gathered: the others have it still, and do it again."""
    with cluster.Cluster(devices=3) as c:
        fired = c.path("fired")
        c.nodes[0].stop()
        with faulty("worker.stands:do=kill", fired):
            c.nodes[0].start()
        models(c)
        c.submit("job", in_shards(c, "2", 3))
        c.train_on("job", 3)
        pause(c)
        check(os.path.exists(fired + ".0"), "nobody stood")
        check("worker-died" in c.kinds("job") and "restarted" not in c.kinds("job"), f"events: {c.kinds('job')}")
        check_each_step_once(c, "who gathered was killed")
        c.ctl("resume", "job")
        status = c.train_on("job", 3)
        os.kill(status["devices"][2]["pid"], signal.SIGKILL)  # and of a member, right before another pause
        pause(c)
        check_each_step_once(c, "a member was killed")
        c.ctl("resume", "job")
        c.train_on("job", 3)
        check("restarted" not in c.kinds("job"), f"events: {c.kinds('job')}")
        same_as_alone(c, "killed and paused")


def resumed_where_it_cannot_be_saved():
    """All of them go on with what they have, no process is a new one, and the next pause is like any; rubatod may have
    been killed in between."""
    with cluster.Cluster(devices=3) as c:
        models(c)
        for replicas in "all", "1":
            job = c.submit("job", in_shards(c, replicas, 3))["id"]
            pids = {device["pid"] for device in c.train_on("job", 3)["devices"]}
            park = os.path.join(c.nodes[0].state, "jobs", job, "park")
            for killed in (False, True) if replicas == "1" else (False,):
                with open(park, "w"):
                    pass
                c.ctl("pause", "job")
                until("the reason", lambda: "could not be saved" in (c.status("job")["reason"] or ""))
                if killed:
                    c.nodes[0].stop(signal.SIGKILL)
                    c.nodes[0].start()
                    until("the reason again", lambda: "could not be saved" in (c.status("job")["reason"] or ""))
                c.ctl("resume", "job")
                status = c.train_on("job", 3)
                check({device["pid"] for device in status["devices"]} == pids, f"{replicas} replicas: other processes")
                check(not status["reason"] or "saved" not in status["reason"], f"it still says {status['reason']}")
                os.remove(park)
            kinds = c.kinds("job")
            check(kinds.count("park-failed") == (2 if replicas == "1" else 1) and "restarted" not in kinds, f"events: {kinds}")
            pause(c)
            check_each_step_once(c, f"{replicas} replicas, taken back")
            c.ctl("resume", "job")
            c.train_on("job", 3)
            same_as_alone(c, f"{replicas} replicas, pauses were taken back")


class Linked(cluster.Cluster):
    """Its rubatod knows its folder by a link."""

    def place_nodes(self):
        (node,) = self.nodes
        os.mkdir(node.state + ".real")
        os.symlink(node.state + ".real", node.state)


def why_it_does_not_end():
    """Behind the last step status says what the end waits for."""
    with faulty("worker.vote:rank=0:do=50ms"), Linked(devices=2) as c:
        models(c)
        job = c.submit("job", gpt_spec(c, 60, 2))["id"]
        final = os.path.join(c.nodes[0].state, "jobs", job, "final")
        until("its folder", lambda: os.path.isdir(os.path.dirname(final)))
        with open(final, "w"):
            pass
        c.wait("job", "step=1")
        c.ctl("export", "job", "--out", "first.safetensors")
        until("the reason", lambda: (c.status("job")["reason"] or "").startswith("all steps are done: the final state"))
        until("the event", lambda: "final-failed" in c.kinds("job"))
        os.remove(final)
        c.wait("job", "done")
        check(not c.status("job")["reason"], f"it still says {c.status('job')['reason']}")


if __name__ == "__main__":
    cluster.main(pauses_keep_the_bits, gatherer_killed, resumed_where_it_cannot_be_saved, why_it_does_not_end)
