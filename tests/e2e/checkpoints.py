#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Checkpoints that are half written, damaged or removed: a start or an export takes the newest that is whole, and its
user is told so; and the exported state is of the step that the export names."""
import concurrent.futures
import contextlib
import glob
import os
import shutil
import signal

import cluster
from cluster import ENDLESS, check, until
from faulty import faulty
from gpt_job import model, pids, registered, same_as_alone, saved, spec


def killed_as_it_saved():
    """Half a checkpoint does not stay, even when its job is over."""
    with faulty("worker.save.written:do=60000ms"), cluster.Cluster(devices=1) as c:
        model(c)
        c.submit("gpt", spec(c, ENDLESS, 1, checkpoint={"path": c.path("ckpt"), "every": 5}))
        until("half of one", lambda: glob.glob(c.path("ckpt/.tmp-*")))
        workers = pids(c)
        c.ctl("cancel", "gpt", "--now")
        for pid in workers:  # else it would end only when its checkpoint is written
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        until("it to go", lambda: not os.listdir(c.path("ckpt")))


def checkpoint_is_damaged():
    """The newest checkpoint cannot be read: the job goes on from an older one, and says so."""
    with faulty("worker.vote:do=5ms"), cluster.Cluster(devices=1) as c:
        model(c)
        c.submit("gpt", spec(c, ENDLESS, 1, checkpoint={"path": c.path("ckpt"), "every": 100, "keep": 10}))
        until("two checkpoints", lambda: len(registered(c)) > 1)
        node = c.json("get", "nodes")["items"][0]["name"]
        c.ctl("node", "cordon", node)  # so that the job does not start again before the damage is done
        c.kill("gpt", c.status("gpt")["devices"][0])
        older, newest = sorted(registered(c))[-2:]
        for name in saved(c):
            if int(name[5:]) >= newest:  # also one that rubatod hears of late
                os.truncate(c.path(f"ckpt/{name}/model.safetensors"), 1000)
        c.ctl("node", "uncordon", node)
        said = until("the older one", lambda: [e["text"] for e in c.events("checkpoint-unreadable", "gpt")
                                               if f"goes on from step {older} in" in e["text"]], 200)
        check(f"step {newest} in" in said[0], said[0])
        c.train_on("gpt", 1)
        same_as_alone(c, "a checkpoint was damaged")


def damage(path):
    """Flips one bit in the middle of the file."""
    with open(path, "r+b") as file:
        file.seek(os.path.getsize(path) // 2)
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 1]))


def checkpoint_to_go_on_from_is_damaged():
    """A new job goes on from the newest checkpoint that is whole, and `submit` says so; if none is, it refuses."""
    with cluster.Cluster(devices=1) as c:
        model(c)
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


def checkpoints_are_removed():
    """Checkpoints are removed behind rubatod's back, or damaged: the newest that is still whole is exported, and a user
    who gets an older one, or nothing, is told why."""
    with cluster.Cluster(devices=1) as c:
        model(c)
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


def exported_at_once():
    """Many exports while a job trains: each file is of the step that its export names."""
    with cluster.Cluster(devices=2) as c, concurrent.futures.ThreadPoolExecutor(8) as pool:
        model(c)
        c.submit("gpt", spec(c, ENDLESS, 2))
        c.wait("gpt", "step=1")

        def export(number):
            path = c.path(f"{number}.safetensors")
            return c.json("export", "gpt", "--out", path)["step"], cluster.digest(path)

        told = set(pool.map(export, range(80)))
        steps, digests = {step for step, _ in told}, {digest for _, digest in told}
        check(len(steps) > 1, f"all were asked for within a step: {told}")
        check(len(told) == len(steps) == len(digests), f"exports of other steps than they say: {sorted(told)}")


cluster.main(killed_as_it_saved, checkpoint_is_damaged, checkpoint_to_go_on_from_is_damaged,
             checkpoints_are_removed, exported_at_once)
