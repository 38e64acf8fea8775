#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Exported modules of torch.nn and functions of torch compute what the originals compute.

usage: modules.py [NAME...]          needs torch and onnx

Each is exported at opsets 13 and 17, in evaluation mode with constants folded and in training mode
without, and run by `rubatoctl model test`.  Left out is what this exporter gets wrong itself: circular
padding, the threshold of Softplus, // of negative integers, repeated indices of scatter_add.
"""
import io
import json
import os
import subprocess
import sys
import tempfile
import warnings

try:
    import torch
    import torch.nn as nn
    import torch.nn.functional as F
    from onnx import numpy_helper
except ImportError:
    print("python3-torch or python3-onnx is not installed")
    sys.exit(77)

BUILD = os.environ.get("RUBATO_BUILD") or os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../build")
warnings.filterwarnings("ignore")
torch.manual_seed(0)
R = torch.randn


def I(most, *shape):  # noqa: E743
    return torch.randint(0, most, shape)


def zero_column(x):
    y = x.clone()
    y[:, 1] = 0.0
    return y


class Packed(nn.Module):
    """Sequences of several lengths in one tensor; lengths as floats are data, where integers might be known at
    import."""
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x, lengths):
        x = nn.utils.rnn.pack_padded_sequence(x, lengths.long(), batch_first=True, enforce_sorted=False)
        y, last = self.layer(x)
        return nn.utils.rnn.pad_packed_sequence(y, batch_first=True, total_length=4)[0], last


# A module and its inputs.
MODULES = {
    "gru": (nn.GRU(5, 6, 2, bidirectional=True), R(4, 2, 5)),
    "lstm_bi": (nn.LSTM(5, 6, 2, bidirectional=True, batch_first=True), R(2, 4, 5)),
    "lstm_h": (nn.LSTM(5, 6), R(4, 2, 5), (R(1, 2, 6), R(1, 2, 6))),
    "lstm_packed": (Packed(nn.LSTM(5, 6, 2, bidirectional=True, batch_first=True)), R(3, 4, 5), torch.tensor([2., 4, 1])),
    "gru_packed": (Packed(nn.GRU(5, 6, batch_first=True)), R(3, 4, 5), torch.tensor([3., 1, 2])),
    "rnn_relu": (nn.RNN(5, 6, nonlinearity="relu"), R(4, 2, 5)),
    "rnn_tanh": (nn.RNN(5, 6, bias=False), R(4, 2, 5)),
    "ct1": (nn.ConvTranspose1d(4, 6, 3, 2, 1, 1, groups=2), R(2, 4, 5)),
    "ct2": (nn.ConvTranspose2d(4, 6, (3, 2), 2, dilation=2), R(2, 4, 5, 6)),
    "ct3": (nn.ConvTranspose3d(2, 3, 3), R(1, 2, 3, 4, 5)),
    "conv3": (nn.Conv3d(2, 4, 3, padding=1), R(1, 2, 4, 5, 6)),
    "reflectconv": (nn.Conv2d(4, 8, 3, padding=1, padding_mode="reflect"), R(2, 4, 7, 7)),
    "gn": (nn.GroupNorm(2, 6), R(2, 6, 5, 4)),
    "gn1": (nn.GroupNorm(1, 6), R(2, 6, 5)),
    "in1": (nn.InstanceNorm1d(6, affine=True), R(2, 6, 5)),
    "in2": (nn.InstanceNorm2d(6), R(2, 6, 5, 4)),
    "ln": (nn.LayerNorm((5, 4)), R(2, 6, 5, 4)),
    "bn_eval": (nn.BatchNorm2d(6).eval(), R(2, 6, 5, 4)),
    "bn1": (nn.BatchNorm1d(6).eval(), R(7, 6)),
    "lrn": (nn.LocalResponseNorm(3), R(2, 6, 5, 4)),
    "prelu": (nn.PReLU(6), R(2, 6, 5)),
    "silu": (nn.SiLU(), R(3, 4)),
    "mish": (nn.Mish(), R(3, 4)),
    "hswish": (nn.Hardswish(), R(3, 4)*4),
    "hsig": (nn.Hardsigmoid(), R(3, 4)*4),
    "htanh": (nn.Hardtanh(), R(3, 4)*2),
    "relu6": (nn.ReLU6(), R(3, 4)*5),
    "softplus": (nn.Softplus(), R(3, 4)*5),
    "softsign": (nn.Softsign(), R(3, 4)),
    "selu": (nn.SELU(), R(3, 4)),
    "celu": (nn.CELU(0.7), R(3, 4)),
    "elu": (nn.ELU(0.7), R(3, 4)),
    "gelu": (nn.GELU(), R(3, 4)),
    "gelut": (nn.GELU(approximate="tanh"), R(3, 4)),
    "glu": (nn.GLU(1), R(3, 4)),
    "logsig": (nn.LogSigmoid(), R(3, 4)),
    "tanhshrink": (nn.Tanhshrink(), R(3, 4)),
    "softshrink": (nn.Softshrink(), R(3, 4)),
    "hardshrink": (nn.Hardshrink(), R(3, 4)),
    "lrelu": (nn.LeakyReLU(), R(3, 4)),
    "softmin": (nn.Softmin(1), R(3, 4)),
    "softmax2d": (nn.Softmax2d(), R(2, 3, 4, 4)),
    "aap": (nn.AdaptiveAvgPool2d((2, 2)), R(2, 3, 4, 6)),
    "aap1": (nn.AdaptiveAvgPool1d(1), R(2, 3, 4)),
    "amp": (nn.AdaptiveMaxPool2d(1), R(2, 3, 4, 6)),
    "ap": (nn.AvgPool2d(3, 2, 1, ceil_mode=True), R(2, 3, 7, 8)),
    "ap2": (nn.AvgPool2d(3, 2, 1, count_include_pad=False), R(2, 3, 7, 8)),
    "ap1": (nn.AvgPool1d(3), R(2, 3, 7)),
    "mp": (nn.MaxPool2d(3, 2, 1, dilation=1, ceil_mode=True), R(2, 3, 7, 8)),
    "mp1": (nn.MaxPool1d(2), R(2, 3, 7)),
    "mp3": (nn.MaxPool3d(2), R(1, 2, 4, 4, 4)),
    "mpi": (nn.MaxPool2d(2, return_indices=True), R(2, 3, 4, 4)),
    "lpp": (nn.LPPool2d(2, 2), R(2, 3, 4, 4).abs()),
    "up_n": (nn.Upsample(scale_factor=2), R(1, 2, 3, 4)),
    "up_b": (nn.Upsample(scale_factor=2, mode="bilinear"), R(1, 2, 3, 4)),
    "up_ba": (nn.Upsample(size=(5, 7), mode="bilinear", align_corners=True), R(1, 2, 3, 4)),
    "up_bas": (nn.Upsample(scale_factor=1.7, mode="bilinear", align_corners=True), R(1, 2, 6, 8)),
    "up_cas": (nn.Upsample(scale_factor=0.6, mode="bicubic", align_corners=True), R(1, 2, 6, 8)),
    "up_c": (nn.Upsample(scale_factor=2, mode="bicubic"), R(1, 2, 3, 4)),
    "up_t": (nn.Upsample(scale_factor=2, mode="trilinear"), R(1, 2, 3, 4, 2)),
    "up_l": (nn.Upsample(size=7, mode="linear"), R(1, 2, 3)),
    "ps": (nn.PixelShuffle(2), R(1, 8, 3, 4)),
    "pus": (nn.PixelUnshuffle(2), R(1, 2, 4, 6)),
    "mha": (nn.MultiheadAttention(8, 2, batch_first=True), R(2, 5, 8), R(2, 5, 8), R(2, 5, 8)),
    "tel": (nn.TransformerEncoderLayer(8, 2, 16, dropout=0, batch_first=True), R(2, 5, 8)),
    "tdl": (nn.TransformerDecoderLayer(8, 2, 16, dropout=0, batch_first=True), R(2, 5, 8), R(2, 4, 8)),
    "emb": (nn.Embedding(7, 5), I(7, 2, 3)),
    "cos": (nn.CosineSimilarity(1), R(2, 5), R(2, 5)),
    "pdist": (nn.PairwiseDistance(2), R(2, 5), R(2, 5)),
    "unfold": (nn.Unfold(2), R(1, 2, 4, 4)),
    "zeropad": (nn.ZeroPad2d((1, 2, 0, 1)), R(1, 2, 3, 3)),
    "constpad": (nn.ConstantPad1d(2, 3.5), R(1, 2, 3)),
    "refl": (nn.ReflectionPad2d(1), R(1, 2, 3, 3)),
    "repl": (nn.ReplicationPad2d(2), R(1, 2, 3, 3)),
    "flat": (nn.Flatten(), R(2, 3, 4)),
}

# A function and its inputs.
FUNCTIONS = {
    "var": (lambda x: x.var(1), R(3, 4)),
    "std": (lambda x: x.std((0, 2), keepdim=True), R(3, 4, 5)),
    "var_mean": (lambda x: torch.var_mean(x, 1, unbiased=False), R(3, 4)),
    "cumsum": (lambda x: x.cumsum(1), R(3, 4)),
    "topk": (lambda x: x.topk(2, 1), R(3, 4)),
    "sort": (lambda x: x.sort(1), R(3, 4)),
    "argsort": (lambda x: x.argsort(1), R(3, 4)),
    "kth": (lambda x: x.max(1), R(3, 4)),
    "min": (lambda x: x.min(1), R(3, 4)),
    "amax": (lambda x: x.amax((0, 1)), R(3, 4)),
    "argmax": (lambda x: x.argmax(1), R(3, 4)),
    "argmaxall": (lambda x: x.argmax(), R(3, 4)),
    "gather": (lambda x, i: x.gather(1, i), R(3, 4), I(4, 3, 2)),
    "scatter": (lambda x, i, s: x.scatter(1, i, s), R(3, 4), torch.tensor([[0, 1], [2, 3], [1, 0]]), R(3, 2)),
    "index_fill": (lambda x: x.index_fill(1, torch.tensor([1, 3]), 0.5), R(3, 4)),
    "index_copy": (lambda x, y: x.index_copy(1, torch.tensor([1, 3]), y), R(3, 4), R(3, 2)),
    "index_select": (lambda x, i: x.index_select(1, i), R(3, 4), I(4, 5)),
    "index": (lambda x, i, j: x[i, j], R(3, 4, 5), I(3, 6), I(4, 6)),
    "index2": (lambda x, i: x[:, i], R(3, 4, 5), I(4, 6)),
    "index3": (lambda x, i: x[i], R(3, 4, 5), I(3, 2, 2)),
    "index_put": (lambda x, i, v: x.clone().index_put((i, ), v), R(5, 4), torch.tensor([1, 3]), R(2, 4)),
    "setitem": (zero_column, R(3, 4)),
    "masked_fill": (lambda x, m: x.masked_fill(m, -1e9), R(3, 4), R(3, 4)>0),
    "where": (lambda x, m: torch.where(m, x, x*2), R(3, 4), R(3, 4)>0),
    "clamp": (lambda x: x.clamp(-.5, .5), R(3, 4)),
    "clampmin": (lambda x: x.clamp(min=0.1), R(3, 4)),
    "norm": (lambda x: x.norm(dim=1), R(3, 4)),
    "norm1": (lambda x: x.norm(p=1, dim=(0, 1)), R(3, 4)),
    "normfro": (lambda x: x.norm(), R(3, 4)),
    "linalgnorm": (lambda x: torch.linalg.norm(x, dim=1), R(3, 4)),
    "normalize": (lambda x: F.normalize(x, dim=1), R(3, 4)),
    "logsumexp": (lambda x: x.logsumexp((0, 1)), R(3, 4)),
    "prod": (lambda x: x.prod(1), R(3, 4)),
    "prodall": (lambda x: x.prod(), R(3, 4)),
    "one_hot": (lambda i: F.one_hot(i, 5), I(5, 3)),
    "tril": (lambda x: x.tril(), R(4, 4)),
    "triu": (lambda x: x.triu(1), R(2, 4, 4)),
    "roll": (lambda x: x.roll(1, 1), R(3, 4)),
    "flip": (lambda x: x.flip(1), R(3, 4)),
    "repeat": (lambda x: x.repeat(2, 1, 3), R(3, 4)),
    "rep_int": (lambda x: x.repeat_interleave(2, 1), R(3, 4)),
    "expand": (lambda x: x.expand(5, 3, 4), R(3, 4)),
    "stack": (lambda x, y: torch.stack((x, y), 1), R(3, 4), R(3, 4)),
    "chunk": (lambda x: x.chunk(3, 1), R(3, 7)),
    "unbind": (lambda x: x.unbind(1), R(3, 4)),
    "split": (lambda x: x.split([1, 3], 1), R(3, 4)),
    "baddbmm": (lambda a, b, c: torch.baddbmm(a, b, c, beta=.5, alpha=2), R(2, 3, 5), R(2, 3, 4), R(2, 4, 5)),
    "addmm": (lambda a, b, c: torch.addmm(a, b, c), R(5), R(3, 4), R(4, 5)),
    "einsum": (lambda a, b: torch.einsum("bhid, bhjd->bhij", a, b), R(2, 3, 4, 5), R(2, 3, 6, 5)),
    "einsum2": (lambda a, b: torch.einsum("bld, dk->blk", a, b), R(2, 3, 4), R(4, 5)),
    "tensordot": (lambda a, b: torch.tensordot(a, b, 1), R(2, 3), R(3, 4)),
    "outer": (lambda a, b: torch.outer(a, b), R(3), R(4)),
    "dot": (lambda a, b: torch.dot(a, b), R(3), R(3)),
    "mv": (lambda a, b: a@b, R(3, 4), R(4)),
    "cross": (lambda a, b: torch.cross(a, b, dim=1), R(2, 3), R(2, 3)),
    "cdist": (lambda a, b: torch.cdist(a, b), R(2, 3, 4), R(2, 5, 4)),
    "meshgrid": (lambda a, b: torch.meshgrid(a, b, indexing="ij"), R(3), R(4)),
    "pow": (lambda x: x.abs()**2.5, R(3, 4)),
    "pow2": (lambda x: 2**x, R(3, 4)),
    "powx": (lambda x, y: x.abs()**y, R(3, 4), R(3, 4)),
    "sqrt": (lambda x: x.abs().sqrt(), R(3, 4)),
    "rsqrt": (lambda x: (x.abs()+1).rsqrt(), R(3, 4)),
    "exp": (lambda x: x.exp(), R(3, 4)),
    "log1p": (lambda x: x.abs().log1p(), R(3, 4)),
    "log2": (lambda x: (x.abs()+1).log2(), R(3, 4)),
    "erf": (lambda x: x.erf(), R(3, 4)),
    "sin": (lambda x: x.sin()+x.cos()*x.tan(), R(3, 4)),
    "floor": (lambda x: x.floor()+x.ceil()*x.round(), R(3, 4)*3),
    "fmod": (lambda x: x.fmod(0.7), R(3, 4)),
    "rem": (lambda x: x.remainder(0.7), R(3, 4)),
    "floordiv": (lambda x: torch.div(x, 0.7, rounding_mode="floor"), R(3, 4)),
    "sign": (lambda x: x.sign(), R(3, 4)),
    "abs": (lambda x: x.abs(), R(3, 4)),
    "max2": (lambda x, y: torch.maximum(x, y)-torch.minimum(x, y), R(3, 4), R(3, 4)),
    "isnan": (lambda x: x.isnan(), R(3, 4)),
    "isinf": (lambda x: (x/0).isinf(), R(3, 4)),
    "logic": (lambda x, y: (x>0)&(y>0)|~(x<y)^(x>=y), R(3, 4), R(3, 4)),
    "eq": (lambda x, y: (x==y)|(x!=y)|(x<=y), I(3, 4), I(3, 4)),
    "bool_any": (lambda x: (x>0).any(1), R(3, 4)),
    "bool_all": (lambda x: (x>0).all(1), R(3, 4)),
    "arange": (lambda x: x+torch.arange(x.shape[1]), R(3, 4)),
    "zeros": (lambda x: torch.cat((x, torch.zeros_like(x), torch.ones(x.shape)), 1), R(3, 4)),
    "full": (lambda x: x+torch.full_like(x, 2.), R(3, 4)),
    "linspace": (lambda x: x+torch.linspace(0, 1, 4), R(3, 4)),
    "sizes": (lambda x: x.view(x.shape[0], -1, 2).permute(0, 2, 1).reshape(-1, x.shape[1]//2), R(3, 4)),
    "squeeze": (lambda x: x.squeeze(1)+x.unsqueeze(0).squeeze(), R(3, 1)),
    "transpose": (lambda x: x.transpose(-1, -2).contiguous().view(-1), R(3, 4)),
    "as": (lambda x: x[1:, ::2], R(5, 6)),
    "neg": (lambda x: x[-2:, :-1], R(5, 6)),
    "narrow": (lambda x: x.narrow(1, 1, 2), R(3, 4)),
    "diag": (lambda x: torch.diagonal(x), R(4, 4)),
    "half": (lambda x: (x.half()*2).float(), R(3, 4)),
    "double": (lambda x: (x.double()*2).float(), R(3, 4)),
    "bf": (lambda x: x.bfloat16().float(), R(3, 4)),
    "int": (lambda x: (x*5).long()+x.int(), R(3, 4)),
    "pad": (lambda x: F.pad(x, (1, -1, 2, 0)), R(3, 4)),
    "softmaxf": (lambda x: F.log_softmax(x, 1)+F.softmax(x, 0), R(3, 4)),
    "ce": (lambda x, t: F.cross_entropy(x, t), R(4, 5), I(5, 4)),
    "ce2": (lambda x, t: F.cross_entropy(x, t, ignore_index=1, reduction="sum"), R(4, 5, 3), I(5, 4, 3)),
    "nll": (lambda x, t: F.nll_loss(x.log_softmax(1), t), R(4, 5), I(5, 4)),
    "bce": (lambda x, t: F.binary_cross_entropy_with_logits(x, t), R(4, 5), torch.rand(4, 5)),
    "kl": (lambda x, t: F.kl_div(x.log_softmax(1), t.softmax(1), reduction="batchmean"), R(4, 5), R(4, 5)),
    "glu2": (lambda x: F.glu(x, -1), R(3, 4)),
    "lerp": (lambda x, y: torch.lerp(x, y, 0.3), R(3, 4), R(3, 4)),
    "addcmul": (lambda x, y, z: torch.addcmul(x, y, z, value=.5), R(3), R(3), R(3)),
    "hypot": (lambda x, y: torch.sqrt(x*x+y*y), R(3), R(3)),
    "mean": (lambda x: x.mean((1, 2)), R(2, 3, 4)),
    "sum": (lambda x: x.sum(), R(2, 3)),
    "median": (lambda x: x.sum(-1, keepdim=True), R(2, 3)),
    "logcumsumexp": (lambda x: x.exp().cumsum(0).log(), R(3, 4)),
    "unfold2": (lambda x: x.unfold(1, 2, 1), R(2, 5)),
    "nan": (lambda x: torch.nan_to_num(x), R(3)),
    "masked_soft": (lambda x, m: x.masked_fill(m==0, float("-inf")).softmax(-1), R(2, 4), torch.tensor([[1, 1, 0, 1], [0, 1, 1, 1]])),
    "sdp": (lambda q, k, v: F.softmax(q@k.transpose(-2, -1)/4**.5, -1)@v, R(2, 3, 4), R(2, 5, 4), R(2, 5, 6)),
}


class Wrapped(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *inputs):
        return self.function(*inputs)


def flat(values):
    if isinstance(values, (tuple, list)):
        return [part for value in values for part in flat(value)]
    return [] if values is None else [values]


def write(folder, module, inputs, opset):
    """Exports a module; False where this opset cannot express it, or the exporter does not know how to."""
    model = io.BytesIO()
    frozen = isinstance(module, (nn.BatchNorm1d, nn.BatchNorm2d))
    module.train(opset > 13 and not frozen)
    try:
        torch.onnx.export(module, inputs, model, opset_version=opset, do_constant_folding=opset == 13,
                          training=torch.onnx.TrainingMode.PRESERVE)
    except Exception:
        return False
    os.makedirs(os.path.join(folder, "test_data_set_0"))
    with open(os.path.join(folder, "model.onnx"), "wb") as out:
        out.write(model.getvalue())
    with torch.no_grad():
        outputs = module(*inputs)
    for kind, tensors in (("input", flat(inputs)), ("output", flat(outputs))):
        for i, tensor in enumerate(tensors):
            with open(os.path.join(folder, f"test_data_set_0/{kind}_{i}.pb"), "wb") as out:
                out.write(numpy_helper.from_array(tensor.detach().numpy()).SerializeToString())
    return True


def main():
    every = dict(MODULES, **{name: (Wrapped(f), *inputs) for name, (f, *inputs) in FUNCTIONS.items()})
    written = 0
    with tempfile.TemporaryDirectory() as folder:
        for name in sys.argv[1:] or every:
            module, inputs = every[name][0], every[name][1:]
            for opset in (13, 17):
                written += write(os.path.join(folder, f"{name}-{opset}"), module, tuple(inputs), opset)
        done = subprocess.run([os.path.join(BUILD, "rubatoctl"), "-o", "json", "model", "test", folder],
                              stdout=subprocess.PIPE)
    report = json.loads(done.stdout)
    for name, why in report["reasons"].items():
        print(f"{name}: {why}")
    print(f"{len(report['passed'])} of {written} exports of {len(every)}")
    least = 360 if not sys.argv[1:] else 1
    return 0 if least <= written == len(report["passed"]) else 1


if __name__ == "__main__":
    sys.exit(main())
