# SPDX-License-Identifier: Apache-2.0
"""A model of several inputs, as a text classifier is fine-tuned: tokens, a mask of truth values, kinds of tokens as
int32; and the same with its loss inside, whose labels are one more input.  The data and the job specs need no torch.

usage: several.py        with Debian's torch: writes fixtures/several*.onnx.gz and fixtures/several.json anew
"""
import json
import os
import sys

import numpy

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import families  # noqa: E402

NAMES = {"several": ["input_ids", "attention_mask", "token_type_ids"]}
NAMES["severalloss"] = NAMES["several"] + ["labels"]


def arrays():
    """A row for each sample: tokens, mask, kinds; and the labels.  The mask hides the padding, which is token 0, and
    more; the padding's row of the table gets no gradient in PyTorch."""
    tokens, labels = families.arrays("tokens")
    draw = numpy.random.RandomState(8)
    mask = (draw.random_sample(tokens.shape) < 0.7) & (tokens != 0)
    mask[:, 0] = True
    kinds = draw.randint(0, 2, tokens.shape).astype("int32")
    return [tokens, mask, kinds, labels]


def write_data(folder):
    for name, array in zip(NAMES["severalloss"], arrays()):
        numpy.save(f"{folder}/{name}.npy", array)


def spec(name, **more):
    source = {"path": "input_ids.npy", "targets": "labels.npy",
              "inputs": [{"name": n, "path": n + ".npy"} for n in NAMES["several"][1:]]}
    train = dict(families.spec("bert", "")["train"], eval={"every": 10})
    return {
        "model": {"onnx": name + ".onnx", "weights": "several.safetensors"},
        "loss": {"type": "graph" if name == "severalloss" else "cross_entropy"},
        "data": {"train": source, "eval": source}, "train": train,
        "devices": {"min": 1, "max": 3, "want": 1}, **more,
    }


def main():
    import record
    import reference
    import torch
    import torch.nn.functional as F
    from language import BERT

    class Several(BERT):
        def forward(self, tokens, mask, kinds, labels=None):
            x = self.word(tokens) + self.kind(kinds) + self.position(self.position_ids[:, :tokens.size(1)])
            x, hides = self.norm(x), (1.0 - mask[:, None, None, :].to(x.dtype)) * torch.finfo(x.dtype).min
            for layer in self.layers:
                x = layer(x, hides)
            y = self.classifier(torch.tanh(self.pooler(x[:, 0])))
            return y if labels is None else F.cross_entropy(y, labels)

    reference.MAKE["several"] = Several
    module, data, folder = reference.make("several"), arrays(), os.path.join(reference.HERE, "fixtures")
    parameters = {name: list(p.shape) for name, p in module.named_parameters()}
    for model, names in NAMES.items():
        inputs = tuple(torch.from_numpy(array[:2]) for array in data[:len(names)])
        proto = record.export_script(module, inputs, 17, names)
        record.save(os.path.join(folder, model + ".onnx.gz"), record.strip(proto, set(parameters)))

    def batch(_, step, which):
        size = families.FAMILIES["bert"][3]
        rows = [which(1, len(data[0]), step * size + j) for j in range(size)]
        return [torch.from_numpy(array[rows]) for array in data]

    families.FAMILIES["several"] = families.FAMILIES["bert"]
    reference.batch, reference.loss_of = batch, lambda module, *row: module(*row)
    with open(os.path.join(folder, "several.json"), "w") as out:
        json.dump({"torch": torch.__version__, "parameters": parameters,
                   "losses": reference.losses(module, "several")}, out)
        out.write("\n")


if __name__ == "__main__":
    main()
