#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Pinned to a pipeline: the sha256 is that of data parallelism, whatever the number of stages and of devices,
resized, paused, with workers killed, and with the state in shards.

The models have what is hardest to keep equal: weights that the first and the last stage share, dropout,
BatchNormalization, and a last microbatch that is smaller."""

import cluster
import delicate
from cluster import ENDLESS, check, check_nothing_lost, until
from delicate import models


def pinned(make, c, steps, stages, want, **more):
    return make(c, steps, want, parallel={"pipeline": stages}, **more)


def plan_of(c, job):
    return c.status(job)["plan"]["summary"]


def fixed_counts():
    with cluster.Cluster(devices=4) as c:
        for kind, make in models(c).items():
            c.submit("alone", make(c, 24))
            alone = c.finish("alone")
            for stages, devices, replicas in ((2, 2, "all"), (2, 2, "1"), (2, 3, "2"), (3, 3, "1"), (2, 4, "1"),
                                              (4, 2, "all"), (3, 1, "1")):
                spec = pinned(make, c, 24, stages, devices, state={"replicas": replicas})
                spec["devices"]["min"] = devices
                c.submit("job", spec)
                c.wait("job", "done")
                used = min(stages, devices)
                says = f"pipeline of {used} stages x{devices}" if used > 1 else "data parallel x1"
                check(says in plan_of(c, "job"), plan_of(c, "job"))
                check([row["step"] for row in c.metrics("job")] == list(range(1, 25)), "a row a step")
                check(c.finish("job") == alone, f"{kind}: {stages} stages on {devices}: the bits differ")


def both_precisions_and_recomputed():
    with cluster.Cluster(devices=2) as c:
        models(c)
        for more in {}, {"memory": {"recompute": "always"}}:
            spec = delicate.gpt_spec(c, 16)
            spec["train"]["precision"] = "bf16"
            c.submit("alone", spec)
            alone = c.finish("alone")
            spec = pinned(delicate.gpt_spec, c, 16, 2, 2, **more)
            spec["train"]["precision"] = "bf16"
            spec["devices"]["min"] = 2
            c.submit("job", spec)
            check(c.finish("job") == alone, f"bf16 {more}: the bits differ")


def resized_and_paused():
    """From one device to a pipeline, to more replicas of its stages, and back; with the state everywhere, and in
    shards."""
    with cluster.Cluster(devices=4) as c:
        models(c)
        for replicas in "all", "1":
            c.submit("job", pinned(delicate.gpt_spec, c, ENDLESS, 2, 1, state={"replicas": replicas}))
            c.wait("job", "step=5")
            for change in (("grow", 1), ("grow", 2), ("shrink", 3), ("grow", 2), ("shrink", 1)):
                receipt = c.json(change[0], "job", change[1], "--wait", "--timeout", "60")
                check_nothing_lost(receipt, f"{replicas} replicas")
            c.ctl("grow", "job", 1, "--wait")
            check("pipeline of 2 stages x3: 2 1" in plan_of(c, "job"), plan_of(c, "job"))
            c.ctl("checkpoint", "job", "--wait")
            c.export("job")
            c.ctl("pause", "job")
            until("the pause", lambda: c.status("job")["phase"] == "Paused")
            c.ctl("resume", "job")
            c.wait("job", "running")
            c.train_on("job", 3, 5)
            c.same_as_alone("job", delicate.gpt_spec(c, ENDLESS), f"{replicas} replicas, resized and paused")


def killed():
    """A death anywhere in the pipeline: the devices that are left make a pipeline, or one of them does it all."""
    with cluster.Cluster(devices=4) as c:
        models(c)
        for replicas, ranks in ("all", (0, 3)), ("2", (1,)):
            c.submit("job", pinned(delicate.gpt_spec, c, ENDLESS, 3, 4, state={"replicas": replicas}))
            for rank in ranks:
                status = c.train_on("job", 4)
                c.kill("job", status["devices"][rank])
                until("the job to go on", lambda: c.status("job")["step"] > status["step"] + 5)
            c.ctl("resize", "job", "--want", 1, "--wait")
            kinds = c.kinds("job")
            check("restarted" not in kinds, "it was restarted")
            c.same_as_alone("job", delicate.gpt_spec(c, ENDLESS), f"{replicas} replicas, workers were killed")


def refused():
    """Pins that cannot run are refused, with the key that is wrong."""
    with cluster.Cluster(devices=2) as c:
        models(c)
        for parallel, says in (({"pipeline": 0}, "spec.parallel.pipeline"), ({"pipeline": 65}, "spec.parallel.pipeline"),
                               ({"pipeline": 2, "schedule": "gpipe"}, "spec.parallel.schedule"),
                               ({"pipeline": 2, "schedule": "spectrain"}, "spec.devices.max"),
                               ({"schedule": "1f1b"}, "spec.parallel.schedule")):
            done = c.run("submit", "-f", c.job_file("job", delicate.gpt_spec(c, 4, parallel=parallel)))
            check(done.returncode and says in done.stderr, f"{parallel}: {done.stderr}")


if __name__ == "__main__":
    cluster.main(fixed_counts, both_precisions_and_recomputed, resized_and_paused, killed, refused)
