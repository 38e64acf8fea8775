#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""One job file, one sha256: at 1, 2, 3 and 5 devices, resized seven times, stopped and resumed.

The models have what is hardest to keep equal: dropout and BatchNormalization; the batch is divisible
by no device count.  In both precisions.
"""
import os

import cluster
import corpus
import nets
from cluster import ENDLESS, check, check_nothing_lost, until
from delicate import models


def run_fixed(c, kind, spec, devices):
    spec["devices"] |= {"min": devices, "want": devices}  # not fewer because the last job's workers are still leaving
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
            spec = make(c, 24)
            spec["train"]["precision"] = "bf16"
            rounded = {n: run_fixed(c, f"{kind}-bf16", spec, n) for n in (1, 2, 3)}
            check(len(set(rounded.values())) == 1, f"{kind}, bf16: {rounded}")
            check(rounded[1] != shas[1], f"{kind}: the precision makes no difference")


def drawn():
    """Numbers that the model draws: the same with any devices, in a pipeline, and where they are drawn twice."""
    with cluster.Cluster(devices=3) as c:
        nets.variational(c.path("drawn.onnx"))
        features, targets = corpus.classes(c.folder, 61, (48,), nets.CLASSES)
        data = {"path": features, "targets": targets}
        spec = {
            "model": {"onnx": "drawn.onnx"},
            "data": {"train": data, "eval": data},
            "train": {"steps": 12, "globalBatch": 10, "microBatch": 3, "eval": {"every": 6}},
            "devices": {"min": 1, "max": 3},
        }
        shas = {run_fixed(c, f"drawn{i}", dict(spec, **more), n)
                for i, more in enumerate(({}, {"parallel": {"pipeline": 2}}, {"memory": {"recompute": "always"}}))
                for n in (1, 3)}
        check(len(shas) == 1, f"drawn: {shas}")
        spec["train"]["seed"] = 2
        check(run_fixed(c, "drawn", spec, 2) not in shas, "drawn: the seed makes no difference")


def several_files():
    """Data in several files, however they are named, are like one file that has all; files added later are not read."""
    with cluster.Cluster(devices=2) as c:
        c.model("gpt", layers=1, width=32, heads=2, seq=16)
        text = open(corpus.text(c.path("whole.txt"), 5000), "rb").read()
        os.mkdir(c.path("parts"))
        for i, (first, end) in enumerate(((0, 7), (7, 1500), (1500, 5000))):
            corpus.write(c.path(f"parts/{i}.txt"), text[first:end])
        spec = {"model": {"onnx": "gpt.onnx"}, "train": {"steps": 12, "globalBatch": 8, "microBatch": 3},
                "devices": {"min": 1, "max": 2}}

        def trained_on(name, devices, **source):
            spec["data"] = {"train": source, "eval": source}
            spec["train"]["eval"] = {"every": 6}
            return run_fixed(c, name, spec, devices)

        listed = ["parts/0.txt", "parts/1.txt", "parts/2.txt"]
        ways = ["whole.txt", "parts", "parts/*.txt", listed]
        shas = [trained_on(f"way{i}", 1 + i % 2, path=way, seqLen=16) for i, way in enumerate(ways)]
        check(len(set(shas)) == 1, f"the same text, named in other ways: {shas}")
        check(trained_on("turned", 1, path=listed[::-1], seqLen=16) != shas[0], "the order of files makes no difference")

        c.model("mlp", inputs=12, hidden=16, classes=4)
        spec["model"]["onnx"] = "mlp.onnx"
        features, targets = corpus.classes(c.folder, 40, (12,), 4)
        rows = open(features, "rb").read()[-40 * 48:]
        corpus.npy(c.path("a.npy"), "<f4", (13, 12), rows[:13 * 48])
        corpus.npy(c.path("b.npy"), "<f4", (27, 12), rows[13 * 48:])
        shas = [trained_on(f"rows{i}", 1 + i, path=path, targets=targets)
                for i, path in enumerate((features, "[ab].npy"))]
        check(len(set(shas)) == 1, f"the same rows in one array and in two: {shas}")

        spec["train"] = {"steps": ENDLESS, "globalBatch": 8, "microBatch": 3}
        spec["data"] = {"train": {"path": "parts", "seqLen": 16}}
        spec["model"]["onnx"] = "gpt.onnx"
        spec["devices"] |= {"min": 1, "want": 1}
        c.submit("watched", spec)
        c.wait("watched", "step=3")
        c.ctl("pause", "watched")
        until("the pause", lambda: c.status("watched")["phase"] == "Paused" and not c.processes("rubato-worker"))
        corpus.write(c.path("parts/3.txt"), text)
        c.ctl("resume", "watched")
        c.train_on("watched", 1)
        c.ctl("pause", "watched")
        until("the pause", lambda: c.status("watched")["phase"] == "Paused" and not c.processes("rubato-worker"))
        corpus.write(c.path("parts/1.txt"), text[:1493])
        c.ctl("resume", "watched")
        until("the file that has changed",
              lambda: any("parts/1.txt does not hold what it did when the job was submitted" in event["text"]
                          for event in c.json("events", "watched")["items"]))
        c.ctl("delete", "watched")


def resized_and_resumed():
    with cluster.Cluster(devices=5) as c:
        for kind, make in models(c).items():
            spec = make(c, ENDLESS)
            name = f"{kind}-elastic"
            c.submit(name, spec)
            c.wait(name, "step=5")
            for change in (("grow", 2), ("shrink", 1), ("grow", 3), ("shrink", 4), ("grow", 1), ("grow", 2), ("shrink", 2)):
                receipt = c.json(change[0], name, change[1], "--wait", "--timeout", "180")
                check_nothing_lost(receipt, kind)
            c.train_on(name, 2)
            c.same_as_alone(name, spec, f"{kind}, resized seven times")

            spec["checkpoint"] = {"path": c.path(f"{kind}-checkpoints"), "every": 20, "keep": 2}
            c.submit(name, spec)
            c.wait(name, "step=50")
            c.ctl("cancel", name)
            c.wait(name, "devices=0")
            until("its worker to end what it saves", lambda: not c.processes("rubato-worker"))
            c.ctl("delete", name)
            kept = sorted(f for f in os.listdir(spec["checkpoint"]["path"]) if f.startswith("step-"))
            check(kept and len(kept) <= 2, f"checkpoints kept: {kept}")
            spec["devices"]["want"] = 2
            again = c.submit(name, spec)
            check(again["resumeStep"] >= 40, f"resumed from {again}")
            c.wait(name, f"step={again['resumeStep'] + 20}")
            c.same_as_alone(name, spec, f"{kind}, resumed from a checkpoint", again["resumeStep"])


cluster.main(fixed_counts, drawn, several_files, resized_and_resumed)
