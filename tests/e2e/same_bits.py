#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""One job file, one sha256: at 1, 2, 3 and 5 devices, resized six times, stopped and resumed.

The models have what is hardest to keep equal: dropout and BatchNormalization; the batch is divisible
by no device count.
"""
import os

import cluster
import corpus
from cluster import check


def cnn_spec(c, steps):
    features, targets = corpus.classes(c.folder, 331, (3, 16, 16), 10)
    return {
        "model": {"onnx": "cnn.onnx"},
        "data": {"train": {"path": features, "targets": targets}},
        "train": {"steps": steps, "globalBatch": 29, "microBatch": 4, "seed": 3,
                  "optimizer": {"type": "sgd", "lr": 0.02, "momentum": 0.9, "weightDecay": 1.0e-4},
                  "schedule": {"type": "cosine", "warmup": 3}, "clipNorm": 1.0},
        "devices": {"min": 1, "max": 5, "want": 1},
    }


def gpt_spec(c, steps):
    corpus.text(c.path("corpus.txt"), 40000)
    return {
        "model": {"onnx": "gpt.onnx"},
        "data": {"train": {"path": "corpus.txt", "format": "text", "seqLen": 32}},
        "train": {"steps": steps, "globalBatch": 14, "microBatch": 2,
                  "optimizer": {"type": "adamw", "lr": 1.0e-3}, "clipNorm": 1.0},
        "devices": {"min": 1, "max": 5, "want": 1},
    }


def models(c):
    c.model("cnn", image=16, batchnorm=1, dropout=0.1)
    c.model("gpt", layers=2, width=64, heads=2, seq=32, dropout=0.1)
    return {"cnn": cnn_spec, "gpt": gpt_spec}


def run_fixed(c, kind, spec, devices):
    spec["devices"]["want"] = devices
    c.submit(f"{kind}-{devices}", spec)
    c.wait(f"{kind}-{devices}", "done")
    check(c.status(f"{kind}-{devices}")["step"] == spec["train"]["steps"], "the last step is not the step asked for")
    rows = c.metrics(f"{kind}-{devices}")
    check([row["step"] for row in rows] == list(range(1, spec["train"]["steps"] + 1)), "a row a step")
    check(rows[-1]["devices"] == devices, f"trained on {rows[-1]['devices']} devices, not {devices}")
    sha = c.export(f"{kind}-{devices}")
    c.ctl("delete", f"{kind}-{devices}")
    return sha


def fixed_counts():
    with cluster.Cluster(devices=5) as c:
        for kind, make in models(c).items():
            shas = {n: run_fixed(c, kind, make(c, 24), n) for n in (1, 2, 3, 5)}
            check(len(set(shas.values())) == 1, f"{kind}: {shas}")


def resized_and_resumed():
    with cluster.Cluster(devices=5) as c:
        for kind, make in models(c).items():
            steps = 520 if kind == "cnn" else 440
            alone = run_fixed(c, kind, make(c, steps), 1)
            spec = make(c, steps)
            name = f"{kind}-elastic"
            c.submit(name, spec)
            c.wait(name, "step=5")
            for change in (("grow", 2), ("shrink", 1), ("grow", 3), ("shrink", 4), ("grow", 1), ("grow", 2), ("shrink", 2)):
                receipt = c.json(change[0], name, change[1], "--wait", "--timeout", "60")
                check(receipt["steps_lost"] == 0 and receipt["samples_repeated"] == 0 and
                      receipt["samples_skipped"] == 0, f"{kind}: {receipt}")
            check(c.status(name)["phase"] == "Running", f"{kind}: over before the resizes were: raise its steps")
            check(c.finish(name) == alone, f"{kind}: resized seven times and the bits differ")

            spec["checkpoint"] = {"path": c.path(f"{kind}-checkpoints"), "every": 20, "keep": 2}
            c.submit(name, spec)
            c.wait(name, "step=45")
            c.ctl("cancel", name)
            c.wait(name, "devices=0")
            c.ctl("delete", name)
            kept = sorted(f for f in os.listdir(spec["checkpoint"]["path"]) if f.startswith("step-"))
            check(kept and len(kept) <= 2, f"checkpoints kept: {kept}")
            spec["devices"]["want"] = 2
            again = c.submit(name, spec)
            check(again["resumeStep"] >= 40, f"resumed from {again}")
            check(c.finish(name) == alone, f"{kind}: resumed from a checkpoint and the bits differ")


cluster.main(fixed_counts, resized_and_resumed)
