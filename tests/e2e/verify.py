#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""`verify` trains again, on other devices, what a job has trained: not a bit differs; where one does, verify says
which. However it ends, nothing is left of what it started."""
import json
import os
import shutil
import signal
import subprocess

import cluster
import laps
import split
from cluster import ENDLESS, check, until
from delicate import gpt_spec, models
from faulty import faulty


def verify(c, job, devices, *words, code=0, **more):
    """(what verify says as JSON, its talk); and what it started is gone."""
    done = c.run("-o", "json", "verify", job, "--devices", devices, *words, **more)
    check(done.returncode == code, f"verify {job} on {devices}: exit {done.returncode}, not {code}\n{done.stdout}{done.stderr}")
    until("what was started to be gone", lambda: started(c, job) == [])
    return json.loads(done.stdout) if done.stdout else None, done.stderr


def started(c, job):
    return [item["name"] for item in c.json("get", "jobs")["items"] if item["name"].startswith(job + "-verify")]


def check_same(said, steps, devices, first=1):
    check(said["same"] and said["difference"] is None, f"it says {said}")
    check((said["first"], said["last"], said["rows"]) == (first, steps, steps - first + 1), f"it says {said}")
    check(said["again"] == {"least": devices, "most": devices}, f"it was to be {devices} devices: {said}")


def whole_jobs():
    """Jobs with dropout, statistics and a batch that no device count divides, which lost a worker and grew; the model's
    file is needed no more."""
    with faulty("worker.vote:do=20ms"), cluster.Cluster(devices=3) as c:
        for kind, spec in models(c).items():
            c.submit("job", spec(c, 100, 2))
            c.wait("job", "step=5")
            c.kill("job", c.status("job")["devices"][1])
            c.run("grow", "job", 1)  # on a slow machine it may be over
            c.wait("job", "done")
            os.remove(c.path(kind + ".onnx"))
            sha = c.export("job")
            for devices in 1, 3:
                said, _ = verify(c, "job", devices)
                check_same(said, 100, devices)
                check(said["devices"]["most"] > 1, f"{kind}: nobody was there to be killed: {said}")
                check(said["sha256"] == {"job": sha, "again": sha}, f"{kind}: {said}")
            text = c.ctl("verify", "job", "--devices", 2)
            check(text.startswith("job: steps 1 to 100 are the same on 2 devices as on ") and sha in text, text)
            c.ctl("delete", "job")


def while_it_trains():
    """The job keeps its devices all the while; where none are free for verify, verify says which job has them."""
    with cluster.Cluster(devices=3) as c:
        models(c)
        c.submit("job", gpt_spec(c, ENDLESS))
        c.wait("job", "step=40")
        said, _ = verify(c, "job", 2, "--steps", 20)
        check_same(said, 20, 2)
        check(said["sha256"] is None and said["devices"] == {"least": 1, "most": 1}, f"it says {said}")
        said, _ = verify(c, "job", 1)
        check_same(said, said["last"], 1)
        check(said["last"] >= 40, f"not all that it had done: {said}")
        _, talk = verify(c, "job", 3, "--timeout", 2, code=124)
        check("job-verify-3 waits for 3 devices: 2 of 3 are free; job has" in talk and "timed out" in talk, talk)
        check("cancelled" not in c.kinds("job") and c.status("job")["devices"], "the job was disturbed")
        c.drop("job")


def finds_a_bit():
    """verify finds a change to the last digit of one number of one row."""
    with cluster.Cluster(devices=2) as c:
        models(c)
        job = c.submit("job", gpt_spec(c, 60, 2))["id"]
        c.wait("job", "done")
        path = os.path.join(c.nodes[0].state, "jobs", job, "metrics")
        with open(path, "r+") as file:
            lines = file.readlines()
            (at,) = [i for i, line in enumerate(lines) if line.startswith("31 ")]
            cells = lines[at].split(" ")
            loss, cells[2] = cells[2], cells[2][:-1] + ("1" if cells[2][-1] != "1" else "2")
            lines[at] = " ".join(cells)
            file.seek(0)
            file.writelines(lines)
        said, _ = verify(c, "job", 1, code=1)
        difference = said["difference"]
        check(not said["same"] and (difference["step"], difference["column"]) == (31, "loss"), f"it says {said}")
        check(difference["again"] == float(loss) != difference["job"], f"{loss}: it says {said}")
        done = c.run("verify", "job", "--devices", 2)
        check(done.returncode == 1 and "step 31 differs: loss was " in done.stdout, done.stdout + done.stderr)
        said, _ = verify(c, "job", 1, "--steps", 30)
        check_same(said, 30, 1)


def goes_on_from_a_checkpoint():
    with cluster.Cluster(devices=2) as c:
        models(c)
        more = {"checkpoint": {"path": c.path("kept"), "every": 20, "keep": 1000}}
        c.submit("job", gpt_spec(c, ENDLESS, **more))
        until("a checkpoint", lambda: os.path.exists(c.path("kept/latest")))
        c.ctl("cancel", "--now", "job")
        c.wait("job", "devices=0")
        c.ctl("delete", "job")
        spec = gpt_spec(c, ENDLESS, **more)
        reply = c.submit("job", spec)
        first = reply["resumeStep"] + 1
        c.wait("job", f"step={first + 30}")
        c.ctl("pause", "job")
        until("the pause", lambda: c.status("job")["phase"] == "Paused")
        check(first > 1, f"it did not go on from a checkpoint: {reply}")
        steps = c.status("job")["step"]
        said, _ = verify(c, "job", 2)
        check_same(said, steps, 2, first)
        shutil.rmtree(c.path("kept"))
        _, talk = verify(c, "job", 2, code=1)
        check("job-verify-2 ended" in talk and "cannot load the state to start from" in talk, talk)


def broken_off():
    """verify is ended by ctrl-c, SIGTERM, a terminal that is closed, and a user who deletes its job; with nohup it goes
    on without the terminal, and a rubatod that dies in the middle does no harm."""
    with faulty("worker.vote:do=20ms"), cluster.Cluster(devices=2) as c:
        models(c)
        c.submit("job", gpt_spec(c, ENDLESS))
        c.wait("job", "step=150")
        c.ctl("pause", "job")
        until("the pause", lambda: c.status("job")["phase"] == "Paused")
        signals = {"ctrl-c": signal.SIGINT, "terminated": signal.SIGTERM, "hung up": signal.SIGHUP}
        for how in *signals, "nohup", "deleted", "rubatod":
            words = [*(["nohup"] if how == "nohup" else []), os.path.join(cluster.BUILD, "rubatoctl"),
                     "--endpoint", c.nodes[0].endpoint, "verify", "job", "--devices", "1"]
            with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
                until("a step of it", lambda: started(c, "job") and c.status("job-verify-1")["step"] > 0)
                if how in signals or how == "nohup":
                    running.send_signal(signals.get(how, signal.SIGHUP))
                elif how == "deleted":
                    c.ctl("delete", "job-verify-1")
                else:
                    c.nodes[0].stop(signal.SIGKILL)
                    c.nodes[0].start()
                out, talk = running.communicate(timeout=200)
            expected = {**dict.fromkeys(signals, (130, "interrupted")), "nohup": (0, ""),
                        "deleted": (3, "job-verify-1 was deleted meanwhile"), "rubatod": (0, "")}
            check(running.returncode == expected[how][0] and expected[how][1] in talk, f"{how}: {running.returncode} {out}{talk}")
            until("nothing to be left", lambda: started(c, "job") == [])
        check(" are the same on 1 device as on 1 device" in out, out)


def refused():
    with cluster.Cluster(devices=2) as c:
        models(c)
        c.model("mlp", inputs=48, hidden=64, depth=2, classes=10)
        c.submit("job", gpt_spec(c, 10))
        c.wait("job", "done")
        c.submit("parts", split.spec_of(c, "mlp", (48,), 10, 2, 2))
        c.wait("parts", "done")
        c.model("mlp", inputs=64, hidden=64, depth=3)
        c.submit("laps", laps.spec(c, 10, 2, 2))
        c.wait("laps", "done")
        spec = gpt_spec(c, 10)
        c.submit("waits", {**spec, "devices": {"min": 3, "max": 5, "want": 3}})
        c.submit("job-verify-1", spec)
        for job, words, code, why in (("job", ["--devices", 3], 4, "the cluster has 2"),
                                      ("job", ["--devices", 0], 2, "--devices 0"),
                                      ("job", [], 2, "--devices says"),
                                      ("job", ["--devices", 2, "--steps", 11], 4, "has done 10 steps"),
                                      ("job", ["--devices", 1], 4, "there is a job job-verify-1 already"),
                                      ("parts", ["--devices", 1], 4, "2 parts of its filters"),
                                      ("laps", ["--devices", 1], 4, "asynchronous pipeline"),
                                      ("waits", ["--devices", 1], 4, "has done no step"),
                                      ("nobody", ["--devices", 1], 3, "there is no job")):
            done = c.run("verify", job, *words)
            check(done.returncode == code and why in done.stderr, f"{job} {words}: {done.returncode} {done.stderr}")
        c.wait("job-verify-1", "done")  # it is a user's, and still there


def over_nodes():
    """verify is asked of each node, one of which does not coordinate; no node alone has as many devices."""
    with cluster.Cluster(nodes=2, devices=2) as c:
        models(c)
        c.submit("job", gpt_spec(c, 100, 2))
        c.wait("job", "done")
        for node in c.nodes:
            said, _ = verify(c, "job", 3, endpoint=node.endpoint)
            check_same(said, 100, 3)
            check(said["sha256"]["job"] == said["sha256"]["again"] == c.export("job"), f"it says {said}")


if __name__ == "__main__":
    cluster.main(whole_jobs, while_it_trains, finds_a_bit, goes_on_from_a_checkpoint, broken_off, refused, over_nodes)
