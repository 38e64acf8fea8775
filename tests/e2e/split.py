#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Filters split over workers: losses and weights agree with one device to 1e-5, and the state survives workers that
come, go and die."""
import gzip
import json
import os
import struct
import sys

import cluster
import corpus
import nets
from cluster import ENDLESS, check, check_nothing_lost, until

MODELS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../models")
sys.path.insert(0, MODELS)

TOLERANCE = 1e-5


def weights_of(path):
    """name -> floats, of a safetensors file."""
    with open(path, "rb") as file:
        size, = struct.unpack("<Q", file.read(8))
        header, data = json.loads(file.read(size)), file.read()
    header.pop("__metadata__", None)
    return {name: struct.unpack(f"<{(end - begin) // 4}f", data[begin:end])
            for name, part in header.items() if part["dtype"] == "F32"
            for begin, end in [part["data_offsets"]]}


def distance(a, b):
    """The largest difference of a weight over the largest weight of its variable."""
    check(a.keys() == b.keys(), f"{a.keys()} and {b.keys()}")
    return max(max(abs(x - y) for x, y in zip(a[name], b[name])) / max(1e-3, max(map(abs, a[name]))) for name in a)


def take(c, job):
    """Losses and weights of a job that ends."""
    c.wait(job, "done")
    losses = [row["loss"] for row in c.metrics(job)]
    c.export(job)
    weights = weights_of(c.path(job + ".safetensors"))
    c.ctl("delete", job)
    return losses, weights


def compare(what, found, alone):
    check(len(found[0]) == len(alone[0]), f"{what}: {len(found[0])} rows")
    loss = max(abs(a - b) / max(abs(b), 1e-3) for a, b in zip(found[0], alone[0]))
    weight = distance(found[1], alone[1])
    print(f"{what}: losses differ by {loss:.1e}, weights by {weight:.1e}", flush=True)
    check(loss < TOLERANCE and weight < TOLERANCE, f"{what}: {loss} and {weight}: {found[0]} and {alone[0]}")


def spec_of(c, model, shape, steps, parts=None, want=1, replicas="1", cut="words", **train):
    name = "x".join(map(str, shape))
    features, targets = corpus.classes(c.folder, 131, shape, 10, name=name)
    spec = {
        "model": {"onnx": model + ".onnx"},
        "data": {"train": {"path": features, "targets": targets}},
        "train": {"steps": steps, "globalBatch": 22, "microBatch": 4, "seed": 3,
                  "optimizer": {"type": "sgd", "lr": 0.01, "momentum": 0.9, "weightDecay": 1.0e-4}, **train},
        "devices": {"min": 1, "max": 4, "want": want},
    }
    if parts:
        spec["parallel"] = {"hypergraph": parts, "cut": cut}
        spec["state"] = {"replicas": replicas}
        spec["devices"]["min"] = want
    return spec


def plan_of(c, job):
    return c.status(job)["plan"]["summary"]


def agree(c, model, shape, steps, counts, cuts=("words", "layers"), **train):
    c.submit("alone", spec_of(c, model, shape, steps, **train))
    alone = take(c, "alone")
    for parts, want, replicas in counts:
        for cut in cuts:
            c.submit("split", spec_of(c, model, shape, steps, parts, want, replicas, cut, **train))
            says = f"filters split in {parts} parts x{want}, 6 microbatches"
            c.wait("split", "done")
            check(says in plan_of(c, "split"), plan_of(c, "split"))
            compare(f"{model}: {parts} parts on {want}, replicas {replicas}, cut for {cut}", take(c, "split"), alone)


def neurons():
    with cluster.Cluster(devices=4) as c:
        c.model("mlp", inputs=48, hidden=64, depth=2, classes=10)
        agree(c, "mlp", (48,), 40, ((2, 2, "1"), (2, 2, "all"), (4, 4, "1"), (2, 4, "2"), (2, 3, "1")))
        c.model("mlp", "wide", inputs=784, hidden=1024, depth=2, classes=10)  # more than a core keeps: in lanes
        agree(c, "wide", (784,), 10, ((2, 2, "1"), (2, 4, "2")), ("layers",))


def filters():
    """VGG's shape, AlexNet's with its groups, an Inception block and ResNet's; where filters of a norm keep statistics
    too."""
    with cluster.Cluster(devices=4) as c:
        for name, counts in (("vgg", ((2, 2, "1"), (4, 4, "1"))), ("alexnet", ((2, 2, "1"), (3, 3, "1"), (4, 4, "all"))),
                             ("inception", ((2, 2, "1"), (4, 4, "2"))),
                             ("residual", ((2, 2, "1"), (3, 4, "1"), (4, 4, "2")))):
            getattr(nets, name)(c.path(name + ".onnx"))
            # where rounding carries an activation across a ReLU's 0, the difference is more than rounding, and grows
            agree(c, name, (3, 16, 16), 10 if name == "residual" else 20, counts)


def exported():
    """A narrow ResNet-18 as PyTorch writes it."""
    import families  # which needs numpy: a machine that only has GPUs may have none

    with cluster.Cluster(devices=2) as c:
        fixtures = os.path.join(MODELS, "fixtures")
        families.write_data(c.folder)
        with open(os.path.join(fixtures, "index-newer.json")) as file:
            parameters = json.load(file)["resnet18"]["parameters"]
        families.write_safetensors(c.path("resnet18.safetensors"),
                                   {n: families.weight(n, tuple(shape)) for n, shape in parameters.items()})
        with open(c.path("resnet18.onnx"), "wb") as out, gzip.open(os.path.join(fixtures, "resnet18-17.onnx.gz")) as model:
            out.write(model.read())
        spec = families.spec("resnet18", "resnet18.onnx")
        spec["train"]["steps"] = 10
        c.submit("alone", spec)
        alone = take(c, "alone")
        c.submit("split", {**spec, "parallel": {"hypergraph": 2}, "state": {"replicas": "1"},
                           "devices": {"min": 2, "max": 2, "want": 2}})
        c.wait("split", "done")
        check("filters split in 2 parts x2" in plan_of(c, "split"), plan_of(c, "split"))
        compare("ResNet-18 in 2 parts", take(c, "split"), alone)


def long_job(c, steps, parts=None, want=1, replicas="1", cut="words"):
    """Much to compute and little state, so that newcomers keep up with one device on a busy machine."""
    c.model("mlp", inputs=48, hidden=192, depth=3, classes=10)
    return {**spec_of(c, "mlp", (48,), steps, parts, want, replicas, cut, globalBatch=210, microBatch=40),
            "devices": {"min": 1, "max": 4, "want": want}}


def pause(c, job):
    c.ctl("pause", job)
    until("the pause", lambda: c.status(job)["phase"] == "Paused")


def compare_paused(c, what):
    """Each step has a row, and the weights are those of one device after as many steps."""
    pause(c, "split")
    rows = [row["step"] for row in c.metrics("split")]
    check(rows == list(range(1, len(rows) + 1)), f"{what}: steps in metrics are not 1, 2, 3 ...")
    c.export("split")
    weights = weights_of(c.path("split.safetensors"))
    c.ctl("cancel", "split")
    c.ctl("delete", "split")
    with c.unpaced():
        c.submit("alone", long_job(c, len(rows)))
        worst = distance(weights, take(c, "alone")[1])
    print(f"{what}, after {len(rows)} steps: weights differ by {worst:.1e}", flush=True)
    # rounding grows with the steps; a block that was lost or torn is far beyond that
    check(worst < 1e-3, f"{what}: weights differ by {worst}")


def changed(c, replicas):
    """From one device to parts, to more and fewer of them, paused, and back: nothing is lost."""
    c.submit("split", long_job(c, ENDLESS, 3, 1, replicas))
    c.wait("split", "running")
    for change, count, says in (("grow", 1, "2 parts x2"), ("grow", 2, "3 parts x4"), ("shrink", 1, "3 parts x3"),
                                ("shrink", 2, "data parallel x1"), ("grow", 2, "3 parts x3")):
        c.train_on("split", len(c.status("split")["devices"]), 5)
        receipt = c.json(change, "split", count, "--wait", "--timeout", "150")
        check_nothing_lost(receipt, says)
        check(says in plan_of(c, "split"), plan_of(c, "split"))
    c.ctl("checkpoint", "split", "--wait")
    c.export("split")
    pause(c, "split")
    c.ctl("resume", "split")
    c.wait("split", "running")
    c.train_on("split", 3, 5)
    compare_paused(c, f"resized with {replicas} replicas")


def regrouped(c, place, replicas, cut):
    """Two parts on two devices, four, three and four: some workers change filters, and have sums of their old ones."""
    c.submit("split", place(long_job(c, ENDLESS, 2, 2, replicas, cut)))
    for devices in 2, 4, 3, 4:
        c.ctl("resize", "split", "--want", devices)
        c.train_on("split", devices, 5)
    compare_paused(c, f"regrouped with {replicas} replicas, cut for {cut}")


def resized():
    with cluster.Cluster(devices=4, paced=True) as c:
        for replicas in "1", "2", "all":
            changed(c, replicas)
        for replicas, cut in ("2", "layers"), ("all", "words"), ("all", "layers"):
            regrouped(c, lambda spec: spec, replicas, cut)


def killed():
    """kill -9 of a part, with a second replica of the state or all of it everywhere: nothing is lost."""
    with cluster.Cluster(devices=4) as c:
        for replicas, ranks in ("2", (1,)), ("all", (0, 2)):
            c.submit("split", long_job(c, ENDLESS, 3, 4, replicas, "layers"))
            for rank in ranks:
                devices = 4 if rank == ranks[0] else 3
                status = c.train_on("split", devices, 5)
                c.kill("split", status["devices"][rank])
                c.ctl("resize", "split", "--want", devices - 1)  # no newcomer takes its place
                until("the job to go on", lambda: c.status("split")["step"] > status["step"] + 5)
            kinds = c.kinds("split")
            check("restarted" not in kinds, "it was restarted")
            compare_paused(c, f"killed with {replicas} replicas")


def refused():
    """What cannot be split is refused, with its key, or with its node and operator."""
    with cluster.Cluster(devices=2) as c:
        c.model("cnn", name="dropped", image=16, dropout=0.1)
        c.model("gpt", layers=1, width=32, heads=2, seq=16)
        c.model("mlp", inputs=48, hidden=64, depth=1, classes=10)
        nets.sloped(c.path("sloped.onnx"))
        corpus.text(c.path("corpus.txt"), 4000)
        gpt = {**spec_of(c, "gpt", (48,), 4, 2), "data": {"train": {"path": "corpus.txt", "format": "text", "seqLen": 16}}}
        both = spec_of(c, "mlp", (48,), 4, 2)
        both["parallel"]["pipeline"] = 2
        for name, spec, says in (("dropout", spec_of(c, "dropped", (3, 16, 16), 4, 2), "(Dropout) cannot be split"),
                                 ("a trained number", spec_of(c, "sloped", (48,), 4, 2), "node 'prelu1'"),
                                 ("attention", gpt, "cannot be split over devices"),
                                 ("both", both, "spec.parallel.hypergraph"),
                                 ("bf16", spec_of(c, "mlp", (48,), 4, 2, precision="bf16"), "fp32")):
            done = c.run("submit", "-f", c.job_file("job", spec))
            print(done.stderr.strip(), flush=True)
            check(done.returncode and says in done.stderr, f"{name}: {done.stderr}")


def on_gpus():
    """The host stands in for GPUs, in memory that only copies reach: each exchange goes through the host's side."""
    module = os.path.join(cluster.BUILD, "tests/kernels/librubato-cuda-host.so")
    if not os.path.exists(module):
        print("  not here: no module was built")
        return
    os.environ |= {"RUBATO_CUDA_MODULE": module, "RUBATO_HOST_GPUS": "3"}
    with cluster.Cluster(devices=1) as c:
        nets.vgg(c.path("vgg.onnx"))
        alone, split = spec_of(c, "vgg", (3, 16, 16), 12), spec_of(c, "vgg", (3, 16, 16), 12, 3, 3)
        for spec in alone, split:
            spec["devices"]["kind"] = "cuda"
        c.submit("alone", alone)
        alone = take(c, "alone")
        c.submit("split", split)
        c.wait("split", "done")
        check("filters split in 3 parts x3" in plan_of(c, "split"), plan_of(c, "split"))
        compare("3 parts on GPUs", take(c, "split"), alone)


def planned():
    """`plan` says what would run, and that is what runs."""
    with cluster.Cluster(devices=2) as c:
        c.model("mlp", inputs=48, hidden=64, depth=2, classes=10)
        spec = spec_of(c, "mlp", (48,), 10, 2, 2)
        plan = c.json("plan", "-f", c.job_file("job", spec), "--devices", "1,2")
        check("filters split over 2" in json.dumps(plan), plan)
        spec["parallel"]["cut"] = "layers"
        verdicts = {one["name"]: one["verdict"] for one in
                    c.json("plan", "-f", c.job_file("job", spec), "--devices", "2")["plans"][0]["candidates"]}
        check(verdicts["filters split over 2, layer by layer"] == "chosen" and verdicts["filters split over 2"] == "runs",
              verdicts)
        print(c.ctl("plan", "-f", c.path("job.yaml"), "--devices", "2"), flush=True)
        nets.residual(c.path("residual.onnx"))
        wide = spec_of(c, "residual", (3, 16, 16), 10)  # not pinned: splitting is one of the ways that are compared
        plan = json.dumps(c.json("plan", "-f", c.job_file("wide", wide), "--devices", "2"))
        check("filters split over 2" in plan and "words a sample change devices" in plan, plan)
        c.submit("job", spec)
        c.wait("job", "done")
        check("filters split in 2 parts x2" in plan_of(c, "job"), plan_of(c, "job"))
        check("filters split in 2 parts x2" in c.ctl("describe", "job"), c.ctl("describe", "job"))


if __name__ == "__main__":
    cluster.main(neurons, filters, exported, resized, killed, refused, planned, on_gpus)
