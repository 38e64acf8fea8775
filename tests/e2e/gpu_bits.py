#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The promise of one sha256, on GPUs (gpus.py says which): at any count, and while they come, go and die."""
import os
import shutil

import cluster
import gpus
from cluster import ENDLESS, check, check_nothing_lost
from gpus import REAL, STEPS, libraries, on, same_as_alone, saved_in, table


def fixed_counts():
    with gpus.gpus(3), cluster.Cluster(devices=1) as c:
        for name, make in list(gpus.models(c).items())[-1 if REAL else 0:]:
            shas = {}
            for replicas, devices in ("all", 1), ("all", 2), ("all", 3), ("1", 3), ("2", 3):
                spec = on("cuda", make(c, STEPS, devices), state={"replicas": replicas})
                spec["devices"]["min"] = devices
                c.submit("job", spec)
                c.wait("job", "done")
                losses = [row["loss"] for row in c.metrics("job")]
                shas[f"{replicas} on {devices}"] = c.finish("job")
            check(len(set(shas.values())) == 1, f"{name}: {shas}")
            table(f"sha256 {shas['all on 1'][:16]}: {', '.join(shas)}")
            c.submit("cpu", on("cpu", make(c, STEPS)))
            c.wait("cpu", "done")
            far = max(abs(a - row["loss"]) for a, row in zip(losses, c.metrics("cpu")))
            # A graph for GPUs has attention in one node, so what is dropped out is not what a core drops.
            check(far < (2e-2 if name == "gpt" else 2e-3), f"{name}: losses differ by {far} from a core's")
            c.ctl("delete", "cpu")


def sums_behind_a_death():
    """The survivors make their circle out of the old one, or go on by the links; the bits are the same."""
    ways = [("1", "sums go from GPU to GPU again"), ("0", "through the hosts: this stand-in was told not to")]
    if REAL and not libraries.nccl_is_here():
        return table("sums behind a death: no NCCL here")
    if REAL:
        ways = ways[:1] if libraries.nccl_shrinks() else [("1", "through the hosts: this NCCL cannot shrink")]
    for shrinks, sentence in ways:
        with gpus.gpus(3):
            os.environ["RUBATO_HOST_SHRINKS"] = shrinks
            with cluster.Cluster(devices=1) as c:
                gpus.models(c)

                def make(steps, **more):
                    return on("cuda", gpus.gpt_spec(c, steps, 3), **more)

                c.submit("job", make(ENDLESS, checkpoint=saved_in(c)))
                devices = c.train_on("job", 3)["devices"]
                c.ctl("node", "cordon", devices[1]["node"])  # no newcomer comes before the survivors go on
                c.kill("job", devices[1])
                cluster.until(sentence, lambda: c.ctl("logs", "job").count(sentence) == 2)
                c.ctl("node", "uncordon", devices[1]["node"])
                same_as_alone(c, make)
                table("behind a death: " + sentence)


def disturbed():
    """Grown, shrunk, killed, saved, resumed, fed: state goes through the host each time."""
    with gpus.gpus(3), cluster.Cluster(devices=1) as c:
        gpus.models(c)
        for replicas in "all", "2":
            def make(steps, **more):
                return on("cuda", gpus.gpt_spec(c, steps), state={"replicas": replicas}, **more)

            checkpoint = saved_in(c, every=100 if REAL else 10)
            c.submit("job", make(ENDLESS, checkpoint=checkpoint))
            for change in ("grow", 2), ("shrink", 1), ("grow", 1):
                receipt = c.json(change[0], "job", change[1], "--wait", "--timeout", "60")
                check_nothing_lost(receipt, f"{replicas} replicas")
            c.kill("job", c.train_on("job", 3, 3)["devices"][1])
            c.train_on("job", 3, 3)
            c.ctl("checkpoint", "job", "--wait")
            c.drop("job")
            again = c.submit("job", make(ENDLESS, checkpoint=saved_in(c)))  # same_as_alone's checkpoint is kept
            check(again["resumeStep"] > 0, "no checkpoint to go on from")
            c.train_on("job", 1, 3)
            same_as_alone(c, make)
            shutil.rmtree(checkpoint["path"])


if __name__ == "__main__":
    gpus.main(fixed_counts, sums_behind_a_death, disturbed)
