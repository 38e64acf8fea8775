#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A pause changes nothing. State in shards is gathered on one worker first, which stands then: no step is trained, and
none that was reported is taken back, even if that worker dies. A pause whose state cannot be saved is taken back by
resume, or the save is tried again until it succeeds. A cancelled job's state is kept like a paused one's, unless
`--now` gives it up."""
import concurrent.futures
import contextlib
import glob
import json
import os
import shutil
import signal
import tempfile

import cluster
import gpt_job
import laps
import split
from cluster import ENDLESS, check, digest, until
from delicate import gpt_spec, models
from faulty import faulty


def in_shards(c, replicas, want):
    return gpt_spec(c, ENDLESS, want, state={"replicas": replicas}, parallel={"pipeline": 1})


def same_as_alone(c, what):
    c.same_as_alone("job", in_shards(c, "all", 1), what)


def pause(c, job="job"):
    c.ctl("pause", job)
    until("the pause", lambda: c.status(job)["phase"] == "Paused")


def check_each_step_once(c, what):
    """Each step has one row, and no row was ever taken back."""
    rows = [row["step"] for row in c.metrics("job")]
    check(rows == list(range(1, len(rows) + 1)), f"{what}: steps in metrics are not 1, 2, 3 ...: {rows}")
    told = json.loads(c.ctl("-o", "json", "metrics", "job", "--lost"))
    check(len(told) == len(rows), f"{what}: {len(told)} rows were told, and {len(rows)} steps count")


def kept_bits(c, what, spec):
    """The bits of these jobs depend on their number of devices: a step on one device alone would be seen."""
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
    """Also with split filters and asynchronous pipelines, however late rubatod hears that the state is gathered."""
    with faulty("daemon.heard:do=30ms,worker.vote:rank=0:do=50ms"), cluster.Cluster(devices=2) as c:
        c.model("mlp", inputs=48, hidden=64, depth=2, classes=10)
        kept_bits(c, "2 parts of the filters", split.spec_of(c, "mlp", (48,), ENDLESS, 2, 2))
        c.model("mlp", inputs=64, hidden=256, depth=3)
        spec = laps.spec(c, ENDLESS, 2, 2, state={"replicas": "1"})
        spec["devices"]["min"] = 2
        kept_bits(c, "an asynchronous pipeline", spec)


def gatherer_killed():
    """kill -9 of the worker that has gathered the state: the others still have it, and gather it again."""
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
        os.kill(status["devices"][2]["pid"], signal.SIGKILL)  # a member, right before another pause
        pause(c)
        check_each_step_once(c, "a member was killed")
        c.ctl("resume", "job")
        c.train_on("job", 3)
        check("restarted" not in c.kinds("job"), f"events: {c.kinds('job')}")
        same_as_alone(c, "killed and paused")


def resumed_where_it_cannot_be_saved():
    """All workers go on with what they have, in the same processes, and the next pause is like any other; rubatod may
    have been killed in between."""
    with cluster.Cluster(devices=3, paced=True) as c:
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


def pause_resume_cancel():
    """A paused job is exported and goes on with the same bits; the state of a cancelled job is kept."""
    with cluster.Cluster(devices=2, paced=True) as c:
        gpt_job.model(c)
        c.submit("gpt", gpt_job.spec(c, ENDLESS, 2))
        c.wait("gpt", "step=20")
        c.ctl("pause", "gpt")
        until("the pause", lambda: c.status("gpt")["phase"] == "Paused" and not c.processes("rubato-worker"))
        held = c.export("gpt")
        check(len(held) == 64, "export of a paused job")
        c.ctl("resume", "gpt")
        c.train_on("gpt", 2)
        gpt_job.same_as_alone(c, "paused and resumed")
        c.submit("gpt", gpt_job.spec(c, ENDLESS, 2))
        c.wait("gpt", "step=5")
        c.ctl("wait", "gpt", "--for", "devices=9", code=4)
        c.ctl("cancel", "gpt")
        c.export("gpt")  # at once: from whichever process has the state by then
        c.ctl("wait", "gpt", "--for", "done", "--timeout", "20", code=1)
        until("the workers to leave", lambda: not c.processes("rubato-worker"))
        steps, kept = c.json("describe", "gpt")["state"]["parked"]["step"], c.export("gpt")
        check(steps == int(c.metrics("gpt")[-1]["step"]), f"step {steps} is kept, and is not the last")
        c.ctl("delete", "gpt")
        check(c.alone(gpt_job.spec(c, ENDLESS, 2), steps) == kept, f"cancelled at step {steps}: the bits differ")
        c.submit("gpt", gpt_job.spec(c, ENDLESS, 2))
        c.wait("gpt", "step=5")
        c.ctl("cancel", "gpt", "--now")
        c.ctl("wait", "gpt", "--for", "done", "--timeout", "20", code=1)
        done = c.run("export", "gpt", "--out", c.path("cancelled"))
        check(done.returncode == 4 and "was not kept (Cancelled)" in done.stderr, f"export: {done.stderr}")


def cannot_be_parked():
    """A worker that cannot save the state keeps it, says why and tries again; `cancel --now` ends it."""
    with cluster.Cluster(devices=2, paced=True) as c:
        gpt_job.model(c)
        for name in ("gpt", "other"):
            job = c.submit(name, gpt_job.spec(c, ENDLESS, 2, failure={"maxRestarts": 0}))["id"]
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


def parked_in_a_vote():
    """The worker that saves has voted yes and waits for the others' words: a step that one of them commits is in the
    saved state."""
    with faulty("worker.vote:rank=1:do=60ms"), cluster.Cluster(devices=2) as c:
        gpt_job.model(c)
        c.submit("gpt", gpt_job.spec(c, ENDLESS, 2))
        for _ in range(3):
            c.train_on("gpt", 2)
            c.ctl("pause", "gpt")
            until("the pause", lambda: c.status("gpt")["phase"] == "Paused" and not c.processes("rubato-worker"))
            c.ctl("resume", "gpt")
        c.train_on("gpt", 2)
        lost = [each["receipt"]["steps_lost"] for each in c.json("get", "configurations", "gpt")["items"]
                if "receipt" in each]
        check(len(lost) > 2 and not any(lost), f"steps lost: {lost}")
        gpt_job.same_as_alone(c, "paused in votes")


@contextlib.contextmanager
def other_file_system():
    """A folder that no file reaches by a rename, nor by a copy that the kernel makes by itself."""
    folder = tempfile.mkdtemp(prefix="rubato-e2e.", dir="/dev/shm")
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def copied():
    """A parked state can be copied to the folder of checkpoints, and several calls may ask for that at once: each
    caller that is told of the copy finds all of it, even if the job is deleted meanwhile."""
    with other_file_system() as folder, cluster.Cluster(devices=1) as c:
        c.model("gpt", layers=2, width=256, heads=2, seq=32)
        c.submit("gpt", gpt_job.spec(c, ENDLESS, 1, checkpoint={"path": folder}))
        c.wait("gpt", "step=1")
        pause(c, "gpt")
        parked = c.json("describe", "gpt")["state"]["parked"]["path"]
        for _ in range(4):
            with concurrent.futures.ThreadPoolExecutor(4) as pool:
                paths = {told["path"] for told in pool.map(lambda _: c.json("checkpoint", "gpt"), range(4))}
            check(paths == {os.path.join(folder, os.path.basename(parked))}, f"told of {paths}")
            check(sorted(os.listdir(folder)) == ["latest", os.path.basename(parked)], f"there are {os.listdir(folder)}")
            for name in os.listdir(parked):
                check(digest(os.path.join(parked, name)) == digest(os.path.join(*paths, name)), f"{name} is another")
            shutil.rmtree(*paths)
        names = sorted(os.listdir(parked))
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            asked = pool.submit(c.json, "checkpoint", "gpt")
            until("a copy", lambda: asked.done() or any(name.startswith(".copy-") for name in os.listdir(folder)))
            c.ctl("delete", "gpt")
            check(sorted(os.listdir(asked.result()["path"])) == names, f"there are {os.listdir(folder)}")
        until("the job's folder to go", lambda: not os.listdir(os.path.join(c.nodes[0].state, "jobs")))


def half_copied():
    """A rubatod that ends as it copies leaves half a copy: the next rubatod removes that, and no other job's."""
    with cluster.Cluster(devices=1) as c:
        folder = c.path("checkpoints")
        models(c)
        job = c.submit("job", gpt_spec(c, ENDLESS, 1, checkpoint={"path": folder}))["id"]
        c.wait("job", "step=1")
        pause(c, "job")
        c.nodes[0].stop(signal.SIGKILL)
        for name in (f".copy-{job}-step-00000001", ".copy-other-step-00000001"):
            os.makedirs(os.path.join(folder, name))
            with open(os.path.join(folder, name, "model.safetensors"), "w") as file:
                file.write("half")
        c.nodes[0].start()
        until("the half to go", lambda: os.listdir(folder) == [".copy-other-step-00000001"])
        copy = c.json("checkpoint", "job")["path"]
        check(os.path.dirname(copy) == folder and "model.safetensors" in os.listdir(copy), f"told of {copy}")


class Linked(cluster.Cluster):
    """A cluster whose rubatod knows its folder by a symbolic link."""

    def place_nodes(self):
        (node,) = self.nodes
        os.mkdir(node.state + ".real")
        os.symlink(node.state + ".real", node.state)


def why_it_does_not_end():
    """After the last step, status says what the end waits for."""
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
    cluster.main(pauses_keep_the_bits, gatherer_killed, resumed_where_it_cannot_be_saved, pause_resume_cancel, cannot_be_parked,
                 parked_in_a_vote, copied, half_copied, why_it_does_not_end)
