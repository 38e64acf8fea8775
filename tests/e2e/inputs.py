#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A model of several inputs (tests/models/several.py): the losses are PyTorch's, the bits the same at any number of
devices, in a pipeline, and whatever happens to the devices; each of its data files is recognized by itself."""
import json
import os
import sys

import cluster
from cluster import ENDLESS, check, until

MODELS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../models")
sys.path.insert(0, MODELS)
import families  # noqa: E402
import several  # noqa: E402

TOLERANCE = 1e-4


def write(c):
    """Writes the models, data and weights; returns the losses that PyTorch recorded."""
    with open(os.path.join(MODELS, "fixtures/several.json")) as file:
        recorded = json.load(file)
    for name in several.NAMES:
        families.unpack(os.path.join(MODELS, "fixtures", name + ".onnx.gz"), c.path(name + ".onnx"))
    several.write_data(c.folder)
    families.write_safetensors(c.path("several.safetensors"), {
        name: families.weight(name, tuple(shape)) for name, shape in recorded["parameters"].items()})
    return recorded["losses"]


def run(c, job, spec, expected):
    c.submit(job, spec)
    c.wait(job, "done")
    rows = c.metrics(job)
    differences = [abs(row["loss"] - loss) / loss for row, loss in zip(rows, expected)]
    print(f"{job}: largest relative difference in {len(rows)} steps {max(differences):.1e}", flush=True)
    check(len(rows) == len(expected) and max(differences) < TOLERANCE, f"{job}: {differences}")
    check(all(0 < row["eval_loss"] < 10 for row in rows if row["step"] % 10 == 0), f"{job} is not evaluated: {rows}")
    return c.finish(job)


def agrees():
    with cluster.Cluster(devices=3) as c:
        losses = write(c)
        shas = {n: run(c, f"on-{n}", several.spec("several", devices={"min": n, "max": 3, "want": n}), losses)
                for n in (1, 2, 3)}
        two = {"min": 2, "max": 2, "want": 2}
        shas["pipeline"] = run(c, "pipeline", several.spec("several", devices=two, parallel={"pipeline": 2}), losses)
        shas["shards"] = run(c, "shards", several.spec("several", devices=two, state={"replicas": "1"}), losses)
        check(len(set(shas.values())) == 1, shas)
        run(c, "own-loss", several.spec("severalloss"), losses)
        report = c.json("model", "check", "severalloss.onnx")
        check(report["trainable"] and any("{name: attention_mask, path: FILE}" in note for note in report["notes"]), report)


def whatever_happens():
    with cluster.Cluster(devices=3, paced=True) as c:
        write(c)
        spec = several.spec("several")
        spec["train"]["steps"] = ENDLESS
        c.submit("job", spec)
        c.train_on("job", 1)
        c.ctl("grow", "job", 2)
        status = c.train_on("job", 3)
        c.kill("job", status["devices"][0])
        until("three again", lambda: len(c.status("job")["devices"]) == 3)
        c.train_on("job", 3)
        c.ctl("shrink", "job", 1)
        c.train_on("job", 2)
        c.same_as_alone("job", spec, "grown, killed and shrunk")


def known_again():
    with cluster.Cluster(devices=1) as c:
        write(c)
        checkpoints = {"path": c.path("kept"), "every": 5}
        c.submit("first", several.spec("several", checkpoint=checkpoints))
        c.finish("first")
        refused = several.spec("several", checkpoint=checkpoints)
        with open(c.path("attention_mask.npy"), "r+b") as file:
            file.seek(-1, os.SEEK_END)
            last = file.read(1)
            file.seek(-1, os.SEEK_END)
            file.write(bytes([1 - last[0]]))
        done = c.run("submit", "-f", c.job_file("second", refused))
        check(done.returncode == 4 and "the data hold something else" in done.stderr, done)
        refused["data"]["train"]["inputs"][1]["path"] = "labels.npy"
        done = c.run("submit", "-f", c.job_file("second", refused))
        check(done.returncode == 4 and "a sample is int64[] and the model's input 'token_type_ids' takes int32[12]" in done.stderr,
              done)


agrees()
whatever_happens()
known_again()
