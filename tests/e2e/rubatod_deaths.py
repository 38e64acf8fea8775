#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""rubatod dies, or is told to stop, and the next one finds what goes on, what stands still and what was saved meanwhile."""
import concurrent.futures
import glob
import os
import signal
import subprocess
import sys
import tempfile
import time

import cluster
from cluster import ENDLESS, check, until
from faulty import faulty
from gpt_job import model, pids, registered, same_as_alone, saved, spec


def rubatod_killed():
    """kill -9 of rubatod: the workers train on and the next one adopts them."""
    with cluster.Cluster(devices=2) as c:
        model(c)
        c.submit("gpt", spec(c, ENDLESS, 2))
        c.wait("gpt", "devices=2")
        c.wait("gpt", "step=10")
        workers = pids(c)
        c.nodes[0].stop(signal.SIGKILL)
        check(workers <= set(c.processes("rubato-worker")), "workers died with rubatod")
        c.nodes[0].start()
        c.train_on("gpt", 2)
        check(pids(c) == workers, "they were not adopted")
        same_as_alone(c, "rubatod was killed")


def stopped_while_rubatod_was_away():
    """A worker whose socket takes a connection, but which says nothing, is not adopted: it is killed."""
    with cluster.Cluster(devices=2) as c:
        model(c)
        c.submit("gpt", spec(c, ENDLESS, 2))
        c.wait("gpt", "devices=2")
        c.wait("gpt", "step=10")
        pid = c.status("gpt")["devices"][1]["pid"]
        c.nodes[0].stop(signal.SIGKILL)
        os.kill(pid, signal.SIGSTOP)
        c.nodes[0].start()
        until("the stopped worker's end", lambda: not os.path.exists(f"/proc/{pid}") and pid not in pids(c))
        c.train_on("gpt", 2)
        same_as_alone(c, "a worker was stopped")


HANGS_UP = """
import os, socket, sys
door = socket.socket(socket.AF_UNIX)
door.bind(sys.argv[1] + ".new")
door.listen()
os.rename(sys.argv[1] + ".new", sys.argv[1])
while True:
    door.accept()[0].close()
"""


def hangs_up_instead_of_being_adopted():
    """A process has the socket of a worker, and hangs up before it says which worker it is: rubatod kills it, and the
    log says why."""
    with cluster.Cluster(devices=1) as c:
        c.nodes[0].stop()
        door = os.path.join(c.nodes[0].state, "run", "d0-gone.sock")
        with subprocess.Popen([sys.executable, "-c", HANGS_UP, door]) as other:
            until("its door", lambda: os.path.exists(door))
            c.nodes[0].start()
            check(other.wait(10) == -signal.SIGKILL, f"its exit status: {other.returncode}")
        check(not os.path.exists(door), "the socket is still there")
        with open(c.nodes[0].log) as log:
            said = [line for line in log if f"process {other.pid}" in line]
        check(len(said) == 1 and "hung up before its Hello" in said[0], f"the log says {said}")


def killed_while_rubatod_is_away():
    """Workers that train on write checkpoints that rubatod does not hear of, and remove the one that facts have."""
    with cluster.Cluster(devices=2) as c:
        model(c)
        c.submit("gpt", spec(c, ENDLESS, 2, checkpoint={"path": c.path("ckpt"), "every": 10, "keep": 1}))
        until("a checkpoint", lambda: len(registered(c)) and c.status("gpt")["step"] > 30)
        workers = pids(c)
        c.nodes[0].stop(signal.SIGKILL)
        before = until("a checkpoint", lambda: saved(c))
        until("only such as are not registered", lambda: min(saved(c), default="") > max(before))
        for pid in workers:
            os.kill(pid, signal.SIGKILL)
        c.nodes[0].start()
        until("the restart", lambda: c.events("restarted", "gpt"))
        c.train_on("gpt", 2, 20)
        check(not [e for e in c.json("events", "gpt")["items"] if "cannot load" in e["text"]], "a start has failed")
        c.same_as_alone("gpt", spec(c, ENDLESS), "killed while rubatod was away", heard=False)


def told_of_what_has_gone():
    """The next rubatod is told of all checkpoints once more: those that were removed for newer ones must not count."""
    def gone():
        return [item["path"] for item in c.json("get", "checkpoints", "gpt")["items"] if not os.path.exists(item["path"])]

    with faulty("worker.row:at=60:do=3000ms"), cluster.Cluster(devices=1) as c:  # it writes no more for 15 s
        model(c)
        c.submit("gpt", spec(c, ENDLESS, 1, checkpoint={"path": c.path("ckpt"), "every": 5, "keep": 1}))
        c.wait("gpt", "step=59")
        until("the last one", lambda: len(registered(c)) == 1)
        c.nodes[0].stop(signal.SIGKILL)
        c.nodes[0].start()
        for _ in range(20):
            check(len(gone()) <= 1, f"facts have checkpoints that are not there: {gone()}")
            time.sleep(0.1)
        c.ctl("cancel", "gpt", "--now")
        until("the worker to end", lambda: not c.processes("rubato-worker"))  # it sleeps longer than a node waits for it


def asked_for_before_rubatod_died():
    """A checkpoint that is on its way to the disk while rubatod dies is registered."""
    with faulty("worker.save.written:do=1000ms"), cluster.Cluster(devices=1) as c:
        model(c)
        c.submit("gpt", spec(c, ENDLESS, 1))
        c.wait("gpt", "step=5")
        with concurrent.futures.ThreadPoolExecutor() as pool:
            asked = pool.submit(c.run, "checkpoint", "gpt", "--wait")
            until("the save", lambda: glob.glob(os.path.join(c.nodes[0].state, "jobs", "*", "checkpoints", ".tmp-*step-*")))
            c.nodes[0].stop(signal.SIGKILL)
            c.nodes[0].start()
            asked.result()
        until("the checkpoint", lambda: registered(c))


def parked_as_rubatod_died():
    """rubatod dies as it hears that the state is saved, after Hello, Ready and Flipped: the next one finds the
    state."""
    with tempfile.TemporaryDirectory() as folder, faulty("daemon.heard:at=4", folder + "/fired"), cluster.Cluster(devices=1) as c:
        model(c)
        c.submit("gpt", spec(c, ENDLESS, 1))
        c.wait("gpt", "step=20")
        c.run("pause", "gpt")
        until("rubatod to die", lambda: c.nodes[0].process.poll() is not None)
        c.nodes[0].start()
        until("the pause", lambda: c.status("gpt")["phase"] == "Paused")
        check(not {"saver-lost", "restarted"} & set(c.kinds("gpt")), f"events: {c.kinds('gpt')}")
        c.ctl("resume", "gpt")
        c.train_on("gpt", 1)
        check("restarted" not in c.kinds("gpt"), f"events: {c.kinds('gpt')}")
        same_as_alone(c, "parked as rubatod died")


def stopped_and_started():
    """SIGTERM on a single node: stops within 10 s, goes on from there when started again."""
    with cluster.Cluster(devices=2) as c:
        model(c)
        c.submit("gpt", spec(c, ENDLESS, 2))
        c.wait("gpt", "step=40")
        at = time.monotonic()
        check(c.nodes[0].stop(signal.SIGTERM) == 0, "exit status")
        check(time.monotonic() - at < 10, f"took {time.monotonic() - at:.1f} s")
        check(not c.processes(), f"left behind: {c.processes()}")
        c.nodes[0].start()
        c.train_on("gpt", 2)
        same_as_alone(c, "stopped and started")


def stopped_while_it_profiles():
    """Measuring a model for `submit` (9 s) does not keep rubatod from stopping, and no process measures on."""
    with cluster.Cluster(devices=2) as c, concurrent.futures.ThreadPoolExecutor() as beside:
        c.model("gpt", layers=6, width=1024, heads=16, seq=256)
        job = spec(c, 10, 2)
        job["data"]["train"]["seqLen"] = 256
        submitted = beside.submit(c.run, "submit", "-f", c.job_file("gpt", job))
        until("the measurements", lambda: c.processes("rubato-worker") or submitted.done(), 60)
        check(not submitted.done(), "nothing was measured")
        at = time.monotonic()
        check(c.nodes[0].stop(signal.SIGTERM) == 0, "exit status")
        check(time.monotonic() - at < 10, f"took {time.monotonic() - at:.1f} s")
        until("those who measure to end", lambda: not c.processes())
        check(submitted.result().returncode == 5, submitted.result().stderr)


cluster.main(rubatod_killed, stopped_while_rubatod_was_away, hangs_up_instead_of_being_adopted,
             killed_while_rubatod_is_away, told_of_what_has_gone, asked_for_before_rubatod_died,
             parked_as_rubatod_died, stopped_and_started, stopped_while_it_profiles)
