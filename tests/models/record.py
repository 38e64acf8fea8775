#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Exports the families with this machine's torch and records PyTorch's losses.

usage: record.py [--keep OPSET,...] [--into FOLDER] [FAMILY...]        needs torch and onnx; README.md

FOLDER/FAMILY-[EXPORTER-]OPSET.onnx.gz hold the graph, the parameters zeroed (families.weight makes them);
FOLDER/optimized-FAMILY.onnx.gz is a file that must not be trained; FOLDER/index[-newer].json has for each family the
parameters' shapes, the losses of the first 20 steps and how far PyTorch's own losses get from those.  The exporters are
torch 1's, without a name, or those of torch 2: `script` and `dynamo`.  Every opset that an exporter writes is exported;
of those, --keep are kept (13 and 17; script 20, dynamo 18 and 23).
"""
import gzip
import io
import json
import os
import sys
import tempfile
import warnings

import onnx
import torch

import reference

NEWER = int(torch.__version__.split(".")[0]) >= 2
EXPORTERS = {"script": range(18, 21), "dynamo": range(18, 24)} if NEWER else {"": range(13, 18)}
KEEP = {"script": [20], "dynamo": [18, 23], "": [13, 17]}
OPTIMIZED = "bert"  # also exported by the newer exporter's default, to be refused
INDEX = "index-newer.json" if NEWER else "index.json"
warnings.filterwarnings("ignore")


def example(family):
    return reference.batch(family, 0, lambda seed, n, i: i)[0][:2],


def export_script(module, inputs, opset, names=("input",)):
    out = io.BytesIO()
    torch.onnx.export(module, inputs, out, opset_version=opset,
                      training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False,
                      input_names=list(names), output_names=["output"],
                      dynamic_axes={name: {0: "batch"} for name in names}, **({"dynamo": False} if NEWER else {}))
    return onnx.load_from_string(out.getvalue())


def export_dynamo(module, inputs, opset, optimize=False):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.onnx")
        torch.onnx.export(module, inputs, path, dynamo=True, optimize=optimize, opset_version=opset,
                          input_names=["input"], output_names=["output"],
                          dynamic_shapes=({0: torch.export.Dim("batch")},), verbose=False)
        proto = onnx.load(path)
    written = [o.version for o in proto.opset_import if o.domain == ""][0]
    if written != opset:
        print(f"  asked for opset {opset}, the exporter wrote {written}")
    return proto


def strip_newer(proto, calls):
    """Leaves only the metadata that say which tensor is a parameter and, with `calls`, what nodes came from."""
    graph = proto.graph
    kept = [[(entry.key, entry.value) for entry in node.metadata_props if calls and entry.key.endswith("fx_node")]
            for node in graph.node]
    for part in [proto, *graph.input, *graph.output, *graph.initializer, *graph.node, *proto.functions,
                 *(node for function in proto.functions for node in function.node)]:
        del part.metadata_props[:]
    for node, entries in zip(graph.node, kept):
        for key, value in entries:
            node.metadata_props.add(key=key, value=value)
    for function in proto.functions:
        del function.value_info[:]
    kept = [entry for entry in graph.metadata_props if entry.key.endswith("ExportedProgram.graph_signature")]
    del graph.metadata_props[:]
    graph.metadata_props.extend(kept)


def strip(proto, names, calls=False):
    """Zeroes the parameters, which gzip then packs to nothing, and removes what exporters write for people."""
    for tensor in proto.graph.initializer:
        if tensor.name in names:
            tensor.raw_data = bytes(len(tensor.raw_data))
    for node in proto.graph.node:
        node.doc_string = ""
    del proto.graph.value_info[:]
    if NEWER:
        strip_newer(proto, calls)
    missing = names - {tensor.name for tensor in proto.graph.initializer}
    if missing:
        print(f"  the export has no {sorted(missing)}")
    return proto.SerializeToString()


def save(path, model):
    with open(path, "wb") as out:
        out.write(gzip.compress(model, 9, mtime=0))
    print(f"{path}: {os.path.getsize(path)} bytes of {len(model)}")


def record(family, folder, keep):
    module = reference.make(family)
    names = {name for name, _ in module.named_parameters()}
    for exporter, opsets in EXPORTERS.items():
        export = export_dynamo if exporter == "dynamo" else export_script
        for opset in opsets:
            try:
                model = strip(export(module, example(family), opset), names)
            except Exception as error:  # an exporter's own limits
                print(f"{family}, {exporter} {opset}: {str(error).splitlines()[0]}")
                continue
            if opset in (keep or KEEP[exporter]):
                save(os.path.join(folder, "-".join(filter(None, (family, exporter, str(opset)))) + ".onnx.gz"),
                     model)
    if family == OPTIMIZED and NEWER:
        proto = export_dynamo(reference.make(family), example(family), 18, optimize=True)
        save(os.path.join(folder, f"optimized-{family}.onnx.gz"),
             strip(proto, {tensor.name for tensor in proto.graph.initializer}, calls=True))
    module = reference.make(family)
    return {
        "torch": torch.__version__,
        "parameters": {n: list(p.shape) for n, p in module.named_parameters()},
        "losses": reference.losses(module, family),
        "spread": reference.spread(family),
    }


def main():
    keep, chosen, folder = [], [], os.path.join(reference.HERE, "fixtures")
    words = sys.argv[1:]
    while words:
        word = words.pop(0)
        if word == "--keep":
            keep = [int(n) for n in words.pop(0).split(",")]
        elif word == "--into":
            folder = words.pop(0)
        else:
            chosen.append(word)
    path = os.path.join(folder, INDEX)
    index = json.load(open(path)) if os.path.exists(path) else {}
    torch.set_num_threads(1)
    for family in chosen or reference.MAKE:
        index[family] = record(family, folder, keep)
        print(family, index[family]["losses"][0], index[family]["losses"][-1])
    with open(path, "w") as out:
        json.dump(index, out, sort_keys=True)
        out.write("\n")


if __name__ == "__main__":
    main()
