#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Models as PyTorch exports them (tests/models) train here as they do there: 20 losses to 1e-4 relative, or to twice as
much as PyTorch's own losses differ where weights begin half a unit in the last place apart; the same weights and
batches; the same bits at 1, 2 and 3 devices; and the bits that tests/models/bits.json has for their numeric class.
Where the bits differ from those, RB_NUMERICS (kernels/device.h) is to be raised, and the bits are recorded anew, with
--record-bits. (No bits of GPUs are recorded.)

NAME-OPSET is by torch 1.13; NAME-script-OPSET and NAME-dynamo-OPSET are by the two exporters of a newer torch, and are
held to that torch's own losses.

usage: families.py [--from FOLDER] [--record-bits] [FAMILY...]          FOLDER: fixtures of record.py's
"""
import glob
import hashlib
import json
import os
import struct
import sys

import cluster
from cluster import check

MODELS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../models")
sys.path.insert(0, MODELS)
import families  # noqa: E402

TOLERANCE = 1e-4
EVERYWHERE = ("lstm-17", "resnet18-17", "llama-13", "modern-dynamo-23", "vit-dynamo-18", "bert-script-20")
# these train at 1, 2 and 3 devices; others at 1


def run(c, name, family, devices, expected, spread):
    spec = families.spec(family, name + ".onnx")
    spec["devices"]["want"] = devices
    job = f"{name}-{devices}"
    c.submit(job, spec)
    c.wait(job, "done")
    found = [row["loss"] for row in c.metrics(job)]
    check(len(found) == len(expected), f"{job}: {len(found)} rows")
    differences = [abs(a - b) / b for a, b in zip(found, expected)]
    print(f"{job}: largest relative difference in {len(found)} steps {max(differences):.1e}", flush=True)
    check(all(d < max(TOLERANCE, 2 * s) for d, s in zip(differences, spread)), f"{job}: {differences}, {spread}")
    return c.export(job)


def refuses_optimized(c, folder):
    """The newer exporter's default files are refused: equal biases are one, small matrices were transposed."""
    for path in glob.glob(os.path.join(folder, "optimized-*.onnx.gz")):
        families.unpack(path, c.path("optimized.onnx"))
        report = c.json("model", "check", "optimized.onnx", code=4)
        check(not report["trainable"] and "were replaced" in report["reason"], report)
        check("optimize=False" in report["export"], report["export"])


def starts_again(c, shapes):
    """An exported file starts another job, from a folder as loaders of other frameworks have it; submit says which
    weights the file lacks and which of its tensors the model lacks."""
    with open(c.path("mlp-17-1.safetensors"), "rb") as file:
        size, = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(size))
    check(header["__metadata__"] == {"format": "pt"}, header["__metadata__"])
    os.mkdir(c.path("pretrained"))
    os.rename(c.path("mlp-17-1.safetensors"), c.path("pretrained/model.safetensors"))
    some = dict(list(shapes.items())[1:], **{"aux.weight": [2, 3], "bn.num_batches_tracked": [1]})
    families.write_safetensors(c.path("some.safetensors"), {
        name: families.weight(name, tuple(shape)) for name, shape in some.items()})
    spec = families.spec("mlp", "mlp-17.onnx")
    for weights, words in (("pretrained", []), ("some.safetensors", ["aux.weight", "1 of the model's weights"])):
        spec["model"]["weights"] = weights
        done = c.run("submit", "-f", c.job_file("again", spec))
        check(done.returncode == 0, done.stderr)
        check(("spec.model.weights" in done.stderr) == bool(words), done.stderr)
        check(all(word in done.stderr for word in words) and "num_batches" not in done.stderr, done.stderr)
        c.wait("again", "done")
        c.ctl("delete", "again")


def run_bf16(c, name, family):
    """Trains in bf16, for the bits alone."""
    spec = families.spec(family, name + ".onnx")
    spec["devices"]["want"] = 1
    spec["train"]["precision"] = "bf16"
    c.submit(name + "-bf16", spec)
    c.wait(name + "-bf16", "done")
    c.export(name + "-bf16")


def bits(path):
    """The sha256 of the data of a safetensors file, whatever its header says."""
    with open(path, "rb") as file:
        size, = struct.unpack("<Q", file.read(8))
        file.seek(8 + size)
        return hashlib.sha256(file.read()).hexdigest()


def record(found, of_class):
    path = os.path.join(MODELS, "bits.json")
    known = read(MODELS, "bits.json")
    known.setdefault(of_class, {}).update(found)
    with open(path, "w") as file:
        json.dump(known, file, indent=1, sort_keys=True)
        file.write("\n")


def compare(found, of_class):
    known = read(MODELS, "bits.json")
    processor = of_class[:of_class.rindex(" ")]  # and libraries; RB_NUMERICS comes after the space
    if of_class not in known:
        check(not any(name.startswith(processor) for name in known), f"the bits of {of_class} are to be recorded")
        print(f"no bits are recorded of {of_class}", flush=True)
        return
    new = [name for name in found if name not in known[of_class]]
    check(not new, f"the bits of {new} are to be recorded")
    others = [name for name in found if found[name] != known[of_class][name]]
    check(not others, f"{of_class} has other bits than recorded: {others}: raise RB_NUMERICS, and record them")


def read(folder, name):
    path = os.path.join(folder, name)
    if not os.path.exists(path):
        return {}
    with open(path) as file:
        return json.load(file)


def main():
    words, folder = sys.argv[1:], os.path.join(MODELS, "fixtures")
    if words[:1] == ["--from"]:
        folder, words = words[1], words[2:]
    records = "--record-bits" in words
    words = [word for word in words if word != "--record-bits"]
    older, newer = read(folder, "index.json"), read(folder, "index-newer.json")
    chosen, found = words or sorted(newer), {}
    with cluster.Cluster(devices=3) as c:
        refuses_optimized(c, folder)
        families.write_data(c.folder)
        for family in chosen:
            families.write_safetensors(c.path(family + ".safetensors"), {
                n: families.weight(n, tuple(shape)) for n, shape in newer[family]["parameters"].items()})
            for path in sorted(glob.glob(os.path.join(folder, f"{family}-*.onnx.gz"))):
                name = os.path.basename(path)[:-len(".onnx.gz")]
                families.unpack(path, c.path(name + ".onnx"))
                index = newer if name.count("-") > 1 else older
                counts = (1, 2, 3) if name in EVERYWHERE else (1,)
                spread = older.get(family, newer[family]).get("spread", [0] * families.STEPS)
                shas = {n: run(c, name, family, n, index[family]["losses"], spread) for n in counts}
                check(len(set(shas.values())) == 1, f"{name}: {shas}")
                found[name] = bits(c.path(name + "-1.safetensors"))
                if name.endswith("-17"):
                    run_bf16(c, name, family)
                    found[name + " bf16"] = bits(c.path(name + "-bf16.safetensors"))
                if name == "mlp-17":
                    starts_again(c, older[family]["parameters"])
        if folder.startswith(MODELS):  # else the files are not our fixtures
            (record if records else compare)(found, c.json("get", "nodes")["items"][0]["numericClass"])


cluster.main(main)
