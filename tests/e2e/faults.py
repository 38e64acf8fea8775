#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Deaths: of workers, of rubatod, of all. The job goes on by itself and the bits are the same."""
import concurrent.futures
import contextlib
import glob
import json
import math
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

import cluster
import corpus
from cluster import ENDLESS, check, until
from faulty import faulty


def spec(c, steps, want=3, **more):
    return {**corpus.text_job(c, want, 4, steps=steps, globalBatch=12, microBatch=2, clipNorm=1.0), **more}


def start(c):
    c.model("gpt", layers=2, width=64, heads=2, seq=32, dropout=0.1)


def pids(c):
    return {device["pid"] for device in c.status("gpt")["devices"]}


def same_as_alone(c, what):
    c.same_as_alone("gpt", spec(c, ENDLESS), what)


def kill_workers():
    """Each rank in turn, rank 0 too: its agent reaps it and says so, and nothing is lost."""
    with cluster.Cluster(devices=4) as c:
        start(c)
        c.submit("gpt", spec(c, ENDLESS))
        for rank in (0, 1, 2):
            status = c.train_on("gpt", 3)
            at = time.time()
            c.kill("gpt", status["devices"][rank])
            died = until("the death to be noticed",
                         lambda: [e for e in c.events("worker-died", "gpt") if e["time"] >= at * 1000 - 5])
            check("signal 9" in died[0]["text"], died[0]["text"])
        c.train_on("gpt", 3)
        same_as_alone(c, "workers were killed")


def stop_workers():
    """SIGSTOP: nobody may wait for it for ever. Its agent kills it, says so, and nothing is lost."""
    with cluster.Cluster(devices=4) as c:
        start(c)
        c.submit("gpt", spec(c, ENDLESS))
        for rank in (0, 1, 2):
            status = c.train_on("gpt", 3)
            at = time.time()
            c.kill("gpt", status["devices"][rank], signal.SIGSTOP)
            said = until("the stop to be noticed",
                         lambda: [e for e in c.events("worker-killed", "gpt") if e["time"] >= at * 1000 - 5])
            check("stopped" in said[0]["text"], said[0]["text"])
        c.train_on("gpt", 3)
        same_as_alone(c, "workers were stopped")


def stopped_while_rubatod_was_away():
    """Nobody who answers is adopted as one who trains."""
    with cluster.Cluster(devices=2) as c:
        start(c)
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
    """What has the socket of a worker, and ends the call before it says which: it is killed, and the log says for what."""
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


def kill_the_only_worker():
    """No survivor: the newest checkpoint, or the start, and it says so."""
    with cluster.Cluster(devices=1) as c:
        start(c)
        for checkpoint in ({}, {"path": c.path("ckpt"), "every": 10}):
            c.submit("gpt", spec(c, ENDLESS, 1, checkpoint=checkpoint))
            c.wait("gpt", "step=30")
            until("a checkpoint", lambda: not checkpoint or registered(c))
            c.kill("gpt", c.status("gpt")["devices"][0])
            until("the restart", lambda: c.events("restarted", "gpt"))
            c.train_on("gpt", 1, 40)  # beyond where it was
            same_as_alone(c, f"restarted, {checkpoint or 'no checkpoint'}")


def saved(c):
    return {name for name in os.listdir(c.path("ckpt")) if name.startswith("step-")}


def registered(c):
    return [checkpoint["step"] for checkpoint in c.json("get", "checkpoints", "gpt")["items"]]


def killed_while_rubatod_is_away():
    """Workers that train on write checkpoints that nobody hears of, and remove the one that facts have."""
    with cluster.Cluster(devices=2) as c:
        start(c)
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
    """The next rubatod is told of all checkpoints once more: those that have made way are none."""
    def gone():
        return [item["path"] for item in c.json("get", "checkpoints", "gpt")["items"] if not os.path.exists(item["path"])]

    with faulty("worker.row:at=60:do=3000ms"), cluster.Cluster(devices=1) as c:  # it writes no more for 15 s
        start(c)
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
    """A checkpoint that is on its way to the disk meanwhile is one."""
    with faulty("worker.save.written:do=1000ms"), cluster.Cluster(devices=1) as c:
        start(c)
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
    """As it hears that the state is saved, behind Hello, Ready and Flipped: the next one finds it."""
    with tempfile.TemporaryDirectory() as folder, faulty("daemon.heard:at=4", folder + "/fired"), cluster.Cluster(devices=1) as c:
        start(c)
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


def killed_as_it_saved():
    """Of a job that is over, too, half a checkpoint does not stay."""
    with faulty("worker.save.written:do=60000ms"), cluster.Cluster(devices=1) as c:
        start(c)
        c.submit("gpt", spec(c, ENDLESS, 1, checkpoint={"path": c.path("ckpt"), "every": 5}))
        until("half of one", lambda: glob.glob(c.path("ckpt/.tmp-*")))
        workers = pids(c)
        c.ctl("cancel", "gpt", "--now")
        for pid in workers:  # it would end when that is written
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        until("it to go", lambda: not os.listdir(c.path("ckpt")))


def checkpoint_is_damaged():
    """The newest one cannot be read: an older one, and it says so."""
    with faulty("worker.vote:do=5ms"), cluster.Cluster(devices=1) as c:
        start(c)
        c.submit("gpt", spec(c, ENDLESS, 1, checkpoint={"path": c.path("ckpt"), "every": 100, "keep": 10}))
        until("two checkpoints", lambda: len(registered(c)) > 1)
        node = c.json("get", "nodes")["items"][0]["name"]
        c.ctl("node", "cordon", node)  # so that it does not start again before the damage is done
        c.kill("gpt", c.status("gpt")["devices"][0])
        older, newest = sorted(registered(c))[-2:]
        for name in saved(c):
            if int(name[5:]) >= newest:  # one that is heard of late, too
                os.truncate(c.path(f"ckpt/{name}/model.safetensors"), 1000)
        c.ctl("node", "uncordon", node)
        said = until("the older one", lambda: [e["text"] for e in c.events("checkpoint-unreadable", "gpt")
                                               if f"goes on from step {older} in" in e["text"]], 200)
        check(f"step {newest} in" in said[0], said[0])
        c.train_on("gpt", 1)
        same_as_alone(c, "a checkpoint was damaged")


def damage(path):
    """One bit in its middle."""
    with open(path, "r+b") as file:
        file.seek(os.path.getsize(path) // 2)
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 1]))


def checkpoint_to_go_on_from_is_damaged():
    """A new job takes the newest one that is whole, and `submit` says so; with none it refuses."""
    with cluster.Cluster(devices=1) as c:
        start(c)
        job = spec(c, ENDLESS, 1, checkpoint={"path": c.path("ckpt"), "every": 10, "keep": 2})
        c.submit("gpt", job)
        until("two checkpoints", lambda: len(registered(c)) > 1)
        c.drop("gpt")
        until("the last one", lambda: not c.processes("rubato-worker"))
        older, newest = sorted(saved(c))[-2:]
        damage(c.path(f"ckpt/{newest}/model.safetensors"))
        told = c.submit("gpt", job)
        check(told["resumeStep"] == int(older[5:]), f"{told}")
        check(f"{newest} cannot be loaded" in told["notes"][-1] and f"goes on from {older}" in told["notes"][-1], f"{told}")
        c.train_on("gpt", 1)
        check("abandoned" not in c.kinds("gpt"), "a start has failed")
        c.same_as_alone("gpt", spec(c, ENDLESS), "the newest checkpoint was damaged", int(older[5:]))
        until("the last one", lambda: not c.processes("rubato-worker"))
        for name in saved(c):
            damage(c.path(f"ckpt/{name}/model.safetensors"))
        refused = c.run("submit", "-f", c.job_file("gpt", job))
        check(refused.returncode == 4 and "cannot be loaded" in refused.stderr and "name another folder" in refused.stderr,
              f"exit {refused.returncode}: {refused.stderr}")
        start_from = {"model": {"onnx": "gpt.onnx", "weights": c.path(f"ckpt/{max(saved(c))}")}, "checkpoint": {}}
        refused = c.run("submit", "-f", c.job_file("gpt", {**job, **start_from}))
        check(refused.returncode == 4 and f"{max(saved(c))}: the checkpoint is damaged" in refused.stderr,
              f"exit {refused.returncode}: {refused.stderr}")


def restarts_are_limited():
    with cluster.Cluster(devices=1) as c:
        start(c)
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


def rubatod_killed():
    """kill -9 of rubatod: the workers train on and the next one adopts them."""
    with cluster.Cluster(devices=2) as c:
        start(c)
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


def stopped_and_started():
    """SIGTERM on a single node: stops within 5 s, goes on from there when started again."""
    with cluster.Cluster(devices=2) as c:
        start(c)
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
    """A model that is measured for `submit` keeps nobody from stopping (it takes 9 s), and nobody measures on."""
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


def pause_resume_cancel():
    with cluster.Cluster(devices=2) as c:
        start(c)
        c.submit("gpt", spec(c, ENDLESS, 2))
        c.wait("gpt", "step=20")
        c.ctl("pause", "gpt")
        until("the pause", lambda: c.status("gpt")["phase"] == "Paused" and not c.processes("rubato-worker"))
        held = c.export("gpt")
        check(len(held) == 64, "export of a paused job")
        c.ctl("resume", "gpt")
        c.train_on("gpt", 2)
        same_as_alone(c, "paused and resumed")
        c.submit("gpt", spec(c, ENDLESS, 2))
        c.wait("gpt", "step=5")
        c.ctl("wait", "gpt", "--for", "devices=9", code=4)
        c.ctl("cancel", "gpt")
        c.export("gpt")  # at once: of whoever has the state by then
        c.ctl("wait", "gpt", "--for", "done", "--timeout", "20", code=1)
        until("the workers to leave", lambda: not c.processes("rubato-worker"))
        steps, kept = c.json("describe", "gpt")["state"]["parked"]["step"], c.export("gpt")
        check(steps == int(c.metrics("gpt")[-1]["step"]), f"step {steps} is kept, and is not the last")
        c.ctl("delete", "gpt")
        check(c.alone(spec(c, ENDLESS, 2), steps) == kept, f"cancelled at step {steps}: the bits differ")
        c.submit("gpt", spec(c, ENDLESS, 2))
        c.wait("gpt", "step=5")
        c.ctl("cancel", "gpt", "--now")
        c.ctl("wait", "gpt", "--for", "done", "--timeout", "20", code=1)
        done = c.run("export", "gpt", "--out", c.path("cancelled"))
        check(done.returncode == 4 and "was not kept (Cancelled)" in done.stderr, f"export: {done.stderr}")


def checkpoints_are_removed():
    """Behind rubatod's back, or damaged: what is whole still is exported, the newest of it, and who gets an older one, or
    nothing, is told why."""
    with cluster.Cluster(devices=1) as c:
        start(c)
        folder = c.path("kept")
        job = c.submit("gpt", {**spec(c, 12, 1), "checkpoint": {"path": folder, "every": 4, "keep": 3}})["id"]
        c.ctl("wait", "gpt", "--for", "done")
        until("all checkpoints to be told of",
              lambda: sorted(item["step"] for item in c.json("get", "checkpoints", "gpt")["items"]) == [4, 8, 12])
        paths = {step: os.path.join(folder, f"step-{step:08}") for step in (4, 8, 12)}
        end = os.path.join(c.nodes[0].state, "jobs", job, "final", "step-00000012")

        def exported(path, step, note):
            done = c.run("export", "gpt", "--out", c.path("gpt.safetensors"))
            check(done.returncode == 0 and f"step {step} of gpt" in done.stdout, f"{done.stdout}{done.stderr}")
            check(done.stderr == note, f"not '{note}' but '{done.stderr}'")
            check(cluster.digest(c.path("gpt.safetensors")) == cluster.digest(os.path.join(path, "model.safetensors")),
                  "other bits were exported")

        exported(paths[12], 12, "")
        with open(os.path.join(paths[12], "model.safetensors"), "r+b") as file:
            file.seek(-1, os.SEEK_END)
            last = file.read(1)[0]
            file.seek(-1, os.SEEK_END)
            file.write(bytes([last ^ 1]))
        damaged = (f"its state at step 12 is damaged: {paths[12]}: model.safetensors is not the file that its "
                   "state.json lists\n")
        exported(end, 12, damaged)
        shutil.rmtree(end)
        exported(paths[8], 8, damaged)
        shutil.rmtree(paths[8])
        exported(paths[4], 4, damaged)
        shutil.rmtree(folder)
        done = c.run("export", "gpt", "--out", c.path("gone"))
        check(done.returncode == 4 and f"its state at step 12 is not there any more: {paths[12]}" in done.stderr,
              f"exit {done.returncode}: {done.stderr}")


def check_last_step(c, status):
    last = c.metrics("gpt")[-1]
    told = [status["step"], status["loss"], status["samples"]]
    check(told == [last["step"], last["loss"], last["first_sample"] + last["samples"]],
          f"{status['phase']}, {told} of its last step is told, and that was {last}")


def last_step_is_told():
    """Who hears that a job stands still, or has ended, hears of its last step and of none before it."""
    with cluster.Cluster(devices=2) as c:
        start(c)
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
        start(c)
        c.submit("gpt", spec(c, ENDLESS, 1))
        c.wait("gpt", "step=100")
        with open(slow, "w") as file:  # so that they are not done again before the pause
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


def cannot_be_parked():
    """Who is to save and cannot keeps the state, says why and tries again; a cancelled job's ends."""
    with cluster.Cluster(devices=2) as c:
        start(c)
        for name in ("gpt", "other"):
            job = c.submit(name, spec(c, ENDLESS, 2, failure={"maxRestarts": 0}))["id"]
            park = os.path.join(c.nodes[0].state, "jobs", job, "park")
            c.wait(name, "step=10")
            with open(park, "w"):
                pass
            c.ctl("pause", name)
            until("the reason", lambda: "could not be saved" in (c.status(name)["reason"] or ""))
            until("the event", lambda: c.events("park-failed", name))
            kinds = c.kinds(name)
            check(kinds.count("park-failed") == 1 and "restarted" not in kinds, f"{kinds}")
            if name == "other":
                break
            told = c.json("export", name, "--out", c.path("meanwhile"))
            until(f"{told} to be the state that waits to be saved", lambda: told["step"] == c.status(name)["step"])
            os.remove(park)
            until("the pause", lambda: c.status(name)["phase"] == "Paused")
            step = c.status(name)["step"]
            c.ctl("resume", name)
            c.train_on(name, 2)
            steps = [int(row["step"]) for row in c.metrics(name)]
            check(steps == list(range(1, steps[-1] + 1)) and steps[-1] > step, f"steps lost or done twice: {steps}")
            c.ctl("delete", name)
        c.ctl("cancel", "other")
        until("why it does not end yet",
              lambda: (c.status("other")["reason"] or "").startswith("cancelled: its state could not be saved"))
        for verb in (["resume"], ["pause"], ["resize", "--want", "1"]):
            refused = c.run(verb[0], "other", *verb[1:])
            check(refused.returncode == 4 and "was cancelled" in refused.stderr, f"{verb[0]}: {refused.stderr}")
        c.ctl("cancel", "other", "--now")
        until("its worker to end", lambda: not c.processes("rubato-worker"))


def exported_at_once():
    """Many exports while it trains: what each tells of is what it gets."""
    with cluster.Cluster(devices=2) as c, concurrent.futures.ThreadPoolExecutor(8) as pool:
        start(c)
        c.submit("gpt", spec(c, ENDLESS, 2))
        c.wait("gpt", "step=1")

        def export(number):
            path = c.path(f"{number}.safetensors")
            return c.json("export", "gpt", "--out", path)["step"], cluster.digest(path)

        told = set(pool.map(export, range(80)))
        steps, digests = {step for step, _ in told}, {digest for _, digest in told}
        check(len(steps) > 1, f"all were asked for within a step: {told}")
        check(len(told) == len(steps) == len(digests), f"exports of other steps than they say: {sorted(told)}")


def fails_at(fault):
    """The step at which a job gives up for a sample that is no number."""
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
    """Whether a job gives up depends on its steps alone, and not on who died in the evaluation behind one."""
    step = fails_at("")
    check(1 < step < 16, f"step {step}")
    check(fails_at(f"worker.committed:rank=1:at={step}:do=kill") == step, "it went on")


def evaluations(fault):
    """What metrics and status say of the evaluations of a job, in the words of whoever told them."""
    with faulty(fault), cluster.Cluster(devices=3) as c:
        start(c)
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
    """An evaluation that a death interrupts is made up, also the one behind the last step."""
    alone = evaluations("")
    check(sorted(alone[0]) == [10, 20, 24] and alone[1] == alone[0][24], f"{alone}")
    for step in 10, 24:
        told = evaluations(f"worker.committed:rank=1:at={step}:do=kill")
        check(told == alone, f"a death behind step {step}: {told}, undisturbed {alone}")


def parked_in_a_vote():
    """Who saves has said yes and waits for the others' words: a step that one of them commits is in what it saves."""
    with faulty("worker.vote:rank=1:do=60ms"), cluster.Cluster(devices=2) as c:
        start(c)
        c.submit("gpt", spec(c, ENDLESS, 2))
        for _ in range(3):
            c.train_on("gpt", 2)
            c.ctl("pause", "gpt")
            until("the pause", lambda: c.status("gpt")["phase"] == "Paused" and not c.processes("rubato-worker"))
            c.ctl("resume", "gpt")
        c.train_on("gpt", 2)
        lost = [each["receipt"]["steps_lost"] for each in c.json("get", "configurations", "gpt")["items"]
                if "receipt" in each]
        check(len(lost) > 2 and not any(lost), f"steps lost: {lost}")
        same_as_alone(c, "paused in votes")


def resized_before_it_ran():
    """A resize of a job that waits for devices is answered by its start."""
    with cluster.Cluster(devices=2) as c:
        start(c)
        node = c.json("get", "nodes")["items"][0]["name"]
        c.ctl("node", "cordon", node)
        c.submit("gpt", spec(c, ENDLESS, 1))
        with concurrent.futures.ThreadPoolExecutor() as pool:
            receipt = pool.submit(c.json, "resize", "gpt", "--want", 2, "--wait", "--timeout", 60)
            until("the wish", lambda: c.status("gpt")["want"] == 2)
            c.ctl("node", "uncordon", node)
            receipt = receipt.result()
        check(receipt["from"] == 0 and receipt["to"] == 2 and receipt["step"] == 1, f"{receipt}")


def resized_to_what_it_has():
    """A death has left as many devices as are asked for then: nothing has to be made, and nobody waits for it."""
    with cluster.Cluster(devices=3) as c:
        start(c)
        c.submit("gpt", spec(c, ENDLESS, 3, parallel={"pipeline": 1, "balance": "even"}))
        for _ in range(2):  # behind the second death of a device it is left alone for longer
            c.kill("gpt", c.train_on("gpt", 3)["devices"][2])
        c.wait("gpt", "devices=2")
        receipt = c.json("resize", "gpt", "--want", 2, "--wait", "--timeout", 30)
        check(receipt["from"] == receipt["to"] == 2 and receipt["ready_ms"] == 0, f"not a receipt of no change: {receipt}")


def data_are_replaced():
    """Who comes and finds other data than were submitted does not train on them; the others train on."""
    with cluster.Cluster(devices=2) as c:
        start(c)
        job = spec(c, ENDLESS, 1)
        c.submit("gpt", job)
        c.train_on("gpt", 1)
        data = c.path(job["data"]["train"]["path"])
        with open(data, "rb") as f:
            bytes_of = f.read()
        with open(data + ".new", "wb") as f:
            f.write(bytes_of[::-1])
        os.rename(data + ".new", data)
        c.ctl("grow", "gpt", 1)
        until("the reason", lambda: any("does not hold what it did when the job was submitted" in event["text"]
                                        for event in c.json("events", "gpt")["items"]))
        step = c.status("gpt")["step"]
        until("more steps", lambda: c.status("gpt")["step"] > step)
        check(len(c.status("gpt")["devices"]) == 1, "it trains on other data")
        with open(data + ".new", "wb") as f:
            f.write(bytes_of)
        os.rename(data + ".new", data)
        c.train_on("gpt", 2)
        c.same_as_alone("gpt", job, "data that came back")


cluster.main(kill_workers, stop_workers, stopped_while_rubatod_was_away,
             hangs_up_instead_of_being_adopted, kill_the_only_worker,
             killed_while_rubatod_is_away, told_of_what_has_gone, asked_for_before_rubatod_died,
             parked_as_rubatod_died, killed_as_it_saved, checkpoint_is_damaged, checkpoint_to_go_on_from_is_damaged,
             restarts_are_limited, rubatod_killed, stopped_and_started,
             stopped_while_it_profiles, pause_resume_cancel,
             checkpoints_are_removed, last_step_is_told, lost_steps_are_told_on_request, cannot_be_parked,
             exported_at_once,
             fails_behind_a_death, evaluates_behind_a_death, parked_in_a_vote, resized_before_it_ran, resized_to_what_it_has,
             data_are_replaced)
