#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Asynchronous pipelines: a job's sha256 follows from its schedule and its stages, wherever the state is held; the job
is resized, paused and loses workers between laps, and no step that was reported is lost."""

import cluster
import corpus
from cluster import ENDLESS, check, check_nothing_lost, until

LAP = 32


def spec(c, steps, stages, want, schedule="spectrain", **more):
    features, targets = corpus.classes(c.folder, 331, (64,), 10)
    return {
        "model": {"onnx": "mlp.onnx"},
        "data": {"train": {"path": features, "targets": targets}, "eval": {"path": features, "targets": targets}},
        "train": {"steps": steps, "globalBatch": 29, "eval": {"every": 50},
                  "optimizer": {"type": "sgd", "lr": 0.02, "momentum": 0.9}},
        "devices": {"min": 1, "max": stages, "want": want},
        "parallel": {"pipeline": stages, "schedule": schedule}, **more,
    }


def start(c):
    c.model("mlp", inputs=64, hidden=512, depth=3)


def whole(c, job):
    rows = [row["step"] for row in c.metrics(job)]
    check(rows == list(range(1, len(rows) + 1)), "steps in metrics are not 1, 2, 3 ...")


def schedules():
    with cluster.Cluster(devices=3) as c:
        start(c)
        found = {}
        for schedule in "1f1b", "vanilla", "stashing", "2bw", "spectrain", "spectrain-formula":
            for replicas in ("all", "1") if schedule in ("2bw", "spectrain") else ("all",):
                made = spec(c, 80, 3, 3, schedule, state={"replicas": replicas})
                made["devices"]["min"] = 3
                c.submit("job", made)
                c.wait("job", "done")
                says = c.status("job")["plan"]["summary"]
                check("pipeline of 3 stages x3: 1 1 1, " + schedule.replace("1f1b", "1F1B") in says, says)
                whole(c, "job")
                check(c.metrics("job")[-1]["loss"] < 1.5, f"{schedule}: it does not learn")
                sha = c.finish("job")
                check(found.setdefault(schedule, sha) == sha, f"{schedule}: {replicas} replicas give other bits")
        check(len(set(found.values())) == len(found), f"schedules give the same bits: {found}")


def resized_and_paused():
    with cluster.Cluster(devices=3) as c:
        start(c)
        for replicas in "all", "1":
            c.submit("job", spec(c, ENDLESS, 3, 2, state={"replicas": replicas}))
            c.wait("job", "step=5")
            for change in ("grow", 1), ("shrink", 2), ("grow", 1), ("grow", 1), ("shrink", 1):
                receipt = c.json(change[0], "job", change[1], "--wait", "--timeout", "60")
                check_nothing_lost(receipt, f"{replicas} replicas, resized")
            c.ctl("checkpoint", "job", "--wait")
            c.export("job")
            c.ctl("pause", "job")
            until("the pause", lambda: c.status("job")["phase"] == "Paused")
            c.ctl("resume", "job")
            c.train_on("job", 2, 3 * LAP)
            whole(c, "job")
            kinds = c.kinds("job")
            check("restarted" not in kinds, "it was restarted")
            check("in laps of 48 steps" in c.ctl("describe", "job"), "describe does not say what it promises")
            c.drop("job")


def killed():
    """With all of the state everywhere a death costs the lap at hand; with one replica the job is restarted."""
    with cluster.Cluster(devices=3) as c:
        start(c)
        for replicas, stages in ("all", 2), ("all", 3), ("1", 2):
            c.submit("job", spec(c, ENDLESS, stages, stages, state={"replicas": replicas}))
            for rank in range(2):
                status = c.train_on("job", stages, LAP)
                c.kill("job", status["devices"][rank])
            c.train_on("job", stages, LAP)
            whole(c, "job")
            kinds = c.kinds("job")
            check(("restarted" in kinds) == (replicas == "1"), f"{replicas} replicas: {kinds}")
            c.drop("job")


def refused():
    """A microbatch that the schedule cannot have is refused; without it the same job runs."""
    with cluster.Cluster(devices=2) as c:
        start(c)
        made = spec(c, 4, 2, 2)
        for change, says in (({"microBatch": 8}, "spec.train.microBatch"), ({}, None)):
            job = {**made, "train": {**made["train"], **change}}
            done = c.run("submit", "-f", c.job_file("job", job))
            check(bool(done.returncode) == bool(says) and (not says or says in done.stderr), f"{change}: {done.stderr}")
        c.finish("job")


if __name__ == "__main__":
    cluster.main(schedules, resized_and_paused, killed, refused)
