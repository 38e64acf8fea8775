#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Pipelines of GPUs, and filters that are split over GPUs: the bits are those of one GPU, whichever worker dies.  The
host stands in for GPUs (gpus.py)."""
import os
import tempfile

import cluster
import corpus
import gpus
import split
from cluster import ENDLESS, check
from faulty import faulty
from gpus import armed_workers, on, same_as_alone, saved_in


def stages():
    """A pipeline's sums, and weights where the state is in shards, go from GPU to GPU; whichever worker dies, the bits
    are those of one device."""
    for replicas in "all", "1", "2":
        with gpus.gpus(3), cluster.Cluster(devices=1) as c:
            gpus.models(c)

            def make(steps, **more):
                return on("cuda", gpus.gpt_spec(c, steps, 3), state={"replicas": replicas},
                          parallel={"pipeline": 2}, **more)

            c.submit("job", make(ENDLESS, checkpoint=saved_in(c)))
            devices = c.train_on("job", 3, 5)["devices"]
            check("sums go from GPU to GPU" in c.ctl("logs", "job"), f"{replicas} replicas: {c.ctl('logs', 'job')}")
            if replicas == "2":
                c.ctl("node", "cordon", devices[1]["node"])  # no newcomer comes before the survivors go on
                c.kill("job", devices[1])
                cluster.until("sums from GPU to GPU again",
                              lambda: c.ctl("logs", "job").count("sums go from GPU to GPU again") == 2)
                c.ctl("node", "uncordon", devices[1]["node"])
            same_as_alone(c, make)


def dies_between_stages():
    """A worker dies before the sum of a circle, after a microbatch, or when one peer has all of a message, which may be
    the word of a shelf, while other workers are in that sum or between stages."""
    if not armed_workers():
        return print("  not here: this build has no faults")
    for replicas, last in ("all", 0), ("2", 2):
        for point, rank, at in ("worker.reduce", last, 8), ("worker.computed", 1, 20), ("worker.frame", 0, 90):
            with tempfile.TemporaryDirectory() as folder, gpus.gpus(3):
                fault = f"{point}:rank={rank}:at={at}:do=kill"
                with faulty(fault, folder + "/fired"), cluster.Cluster(devices=1) as c:
                    gpus.models(c)

                    def make(steps, **more):
                        return on("cuda", gpus.gpt_spec(c, steps, 3), state={"replicas": replicas},
                                  parallel={"pipeline": 2}, **more)

                    c.submit("job", make(ENDLESS, checkpoint=saved_in(c)))
                    cluster.until(f"a death at {point}", lambda: {"worker-died", "abandoned"} & set(c.kinds("job")))
                    check(os.path.exists(folder + "/fired.0"), f"it was not at {point} that somebody died")
                    c.train_on("job", 3, 5)
                    same_as_alone(c, make)


def wide_stages():
    """What goes from stage to stage does not fit a link: a worker that already sums sends the rest of it meanwhile."""
    with gpus.gpus(2), cluster.Cluster(devices=1) as c:
        c.model("mlp", inputs=8, hidden=64, depth=3, classes=64)
        features, targets = corpus.classes(c.folder, 12000, (8,), 64)
        shas = {}
        for devices in 1, 2:
            c.submit("job", {
                "model": {"onnx": "mlp.onnx"},
                "data": {"train": {"path": features, "targets": targets}},
                "train": {"steps": 4, "globalBatch": 12000, "microBatch": 6000,
                          "optimizer": {"type": "sgd", "lr": 0.01}},
                "devices": {"kind": "cuda", "min": devices, "max": 2, "want": devices},
                "parallel": {"pipeline": 2}})
            shas[devices] = c.finish("job")
        check(shas[1] == shas[2], f"the bits differ: {shas}")


def parts():
    """Filters that are split over GPUs sum in circles too: the bits are those of sums by links."""
    with gpus.gpus(4):
        shas = set()
        for nccl in None, "":
            os.environ |= {} if nccl is None else {"RUBATO_NCCL": nccl}
            with cluster.Cluster(devices=1) as c:
                c.model("mlp", inputs=48, hidden=64, depth=2, classes=10)
                for replicas in "1", "all", "2":
                    spec = on("cuda", split.spec_of(c, "mlp", (48,), 12, 2, 4, replicas))
                    c.submit("job", spec)
                    c.wait("job", "done")
                    said = "through the hosts" if nccl == "" else "from GPU to GPU"
                    check("sums go " + said in c.ctl("logs", "job"), f"{replicas} replicas: {c.ctl('logs', 'job')}")
                    shas.add(c.finish("job"))
        check(len(shas) == 1, f"the bits differ: {shas}")


def parts_resized():
    """A worker that changes to other filters has sums of its old ones, which no circle may add."""
    with gpus.gpus(4), cluster.Cluster(devices=1) as c:
        for replicas, cut in ("2", "layers"), ("all", "words"):
            split.regrouped(c, lambda spec: on("cuda", spec), replicas, cut)


def laps():
    """Stages that update their own weights: losses are a core's but for rounding, and the bits do not depend on where
    the state is held."""
    with gpus.gpus(2), cluster.Cluster(devices=2) as c:
        # Without dropout: attention in one node does not drop what a core drops.
        c.model("gpt", layers=2, width=gpus.WIDTH, heads=2, seq=gpus.SEQ)

        def make(kind, schedule, **more):
            spec = on(kind, gpus.gpt_spec(c, 40, 2, parallel={"pipeline": 2, "schedule": schedule}), **more)
            spec["devices"] |= {"min": 2, "max": 2}
            del spec["train"]["microBatch"]
            return spec

        for schedule in "vanilla", "stashing", "2bw", "spectrain":
            found = {}
            for kind, replicas in ("cuda", "all"), ("cuda", "1"), ("cpu", "all"):
                c.submit("job", make(kind, schedule, state={"replicas": replicas}))
                c.wait("job", "done")
                losses = [row["loss"] for row in c.metrics("job")]
                found[kind, replicas] = c.finish("job"), losses
            check(found["cuda", "all"][0] == found["cuda", "1"][0], f"{schedule}: the bits differ")
            far = max(abs(a - b) for a, b in zip(found["cuda", "all"][1], found["cpu", "all"][1]))
            check(far < 5e-3, f"{schedule}: losses differ by {far} from a core's")


if __name__ == "__main__":
    gpus.main(stages, dies_between_stages, wide_stages, parts, parts_resized, laps)
