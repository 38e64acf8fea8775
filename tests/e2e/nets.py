# SPDX-License-Identifier: Apache-2.0
"""Small nets with the shapes of known ones, written as ONNX by hand: groups, branches, norms and dense ends."""
import struct

import corpus

CLASSES = 10


def varint(n):
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    return bytes(out) + bytes([n])


def field(number, value):
    """A field of a protobuf message: a number, or bytes."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    value = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(value)) + value


def attribute(name, value):
    if isinstance(value, float):
        return field(1, name) + varint(2 << 3 | 5) + struct.pack("<f", value) + field(20, 1)
    if isinstance(value, int):
        return field(1, name) + field(3, value) + field(20, 2)
    return field(1, name) + b"".join(field(8, part) for part in value) + field(20, 7)


def value_info(name, dims):
    shape = b"".join(field(1, field(1, dim) if isinstance(dim, int) else field(2, dim)) for dim in dims)
    return field(1, name) + field(2, field(1, field(1, 1) + field(2, shape)))


class Net:
    """Nodes one after the other; a name stands for a value, whose channels the net keeps."""

    def __init__(self, shape):
        self.shape, self.nodes, self.weights = shape, [], []
        self.channels = {"features": shape[0]}

    def weight(self, name, dims, scale):
        size = 1
        for dim in dims:
            size *= dim
        data = struct.pack(f"<{size}f", *(scale * value for value in corpus.noise(len(self.weights) + 5, size)))
        self.weights.append(b"".join(field(1, dim) for dim in dims) + field(2, 1) + field(8, name) + field(9, data))
        return name

    def node(self, op, inputs, outputs=1, channels=None, **attributes):
        name = f"{op.lower()}{len(self.nodes)}"
        made = [name] + [f"{name}.{i}" for i in range(1, outputs)]
        self.nodes.append(b"".join(field(1, one) for one in inputs) + b"".join(field(2, one) for one in made) +
                          field(3, name) + field(4, op) +
                          b"".join(field(5, attribute(key, value)) for key, value in attributes.items()))
        self.channels[name] = channels or self.channels[inputs[0]]
        return name

    def conv(self, x, filters, kernel=3, group=1, relu=True):
        reads = self.channels[x] // group
        n, bound = len(self.nodes), (reads * kernel * kernel) ** -0.5
        y = self.node("Conv", [x, self.weight(f"c{n}.weight", (filters, reads, kernel, kernel), 2 * bound),
                               self.weight(f"c{n}.bias", (filters,), bound)], channels=filters,
                      kernel_shape=[kernel] * 2, pads=[kernel // 2] * 4, strides=[1, 1], group=group)
        return self.node("Relu", [y]) if relu else y

    def norm(self, x):
        n = len(self.nodes)
        names = [self.weight(f"b{n}.{part}", (self.channels[x],), 0.5) for part in ("weight", "bias")]
        self.weights.append(field(1, self.channels[x]) + field(2, 1) + field(8, f"b{n}.mean") +
                            field(9, b"\0" * 4 * self.channels[x]))
        self.weights.append(field(1, self.channels[x]) + field(2, 1) + field(8, f"b{n}.var") +
                            field(9, struct.pack("<f", 1) * self.channels[x]))
        return self.node("BatchNormalization", [x, *names, f"b{n}.mean", f"b{n}.var"], outputs=3, epsilon=1e-5,
                         momentum=0.9, training_mode=1)

    def pool(self, x, kind="MaxPool", kernel=2, stride=2, pad=0):
        return self.node(kind, [x], kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[pad] * 4)

    def join(self, parts):
        return self.node("Concat", parts, channels=sum(self.channels[part] for part in parts), axis=1)

    def flat(self, x, pixels):
        return self.node("Flatten", [x], channels=self.channels[x] * pixels, axis=1)

    def dense(self, x, neurons, relu=True):
        n, bound = len(self.nodes), self.channels[x] ** -0.5
        y = self.node("Gemm", [x, self.weight(f"f{n}.weight", (neurons, self.channels[x]), bound),
                               self.weight(f"f{n}.bias", (neurons,), bound)], channels=neurons, transB=1)
        return self.node("Relu", [y]) if relu else y

    def write(self, path, logits):
        graph = b"".join(field(1, node) for node in self.nodes) + field(2, "net")
        graph += b"".join(field(5, weight) for weight in self.weights)
        graph += field(11, value_info("features", ("batch", *self.shape)))
        graph += field(12, value_info(logits, ("batch", CLASSES)))
        with open(path, "wb") as out:
            out.write(field(1, 8) + field(7, graph) + field(8, field(1, "") + field(2, 17)))


def vgg(path, shape=(3, 16, 16), widths=(16, 32, 32), dense=48):
    """Pairs of convolutions between pools, and a dense end."""
    net = Net(shape)
    x = "features"
    for filters in widths:
        x = net.pool(net.conv(net.conv(x, filters), filters))
    x = net.flat(x, (shape[1] >> len(widths)) * (shape[2] >> len(widths)))
    net.write(path, net.dense(net.dense(x, dense), CLASSES, relu=False))


def alexnet(path):
    """Convolutions in two groups where the original was on two GPUs, and an average at the end of the filters."""
    net = Net((3, 16, 16))
    x = net.pool(net.conv("features", 16, 5))
    x = net.pool(net.conv(x, 40, 5, group=2))
    x = net.conv(net.conv(net.conv(x, 24), 24, group=2), 20, group=2)
    x = net.flat(net.node("GlobalAveragePool", [net.pool(x)]), 1)
    net.write(path, net.dense(net.dense(x, 64), CLASSES, relu=False))


def inception(path):
    """A block of four branches, with norms."""
    net = Net((3, 16, 16))
    x = net.pool(net.norm(net.conv("features", 24)))
    parts = [net.conv(x, 8, 1), net.conv(net.conv(x, 8, 1), 16), net.conv(net.conv(x, 4, 1), 8, 5),
             net.conv(net.pool(x, kernel=3, stride=1, pad=1), 8, 1)]
    x = net.norm(net.conv(net.join(parts), 24, 1, relu=False))
    x = net.pool(net.node("Relu", [x]), "AveragePool", kernel=4, stride=4)
    net.write(path, net.dense(net.flat(x, 4), CLASSES, relu=False))


def residual(path):
    """ResNet's shape: an identity over each of two blocks, and a block of more filters, with a convolution beside it."""
    net = Net((3, 16, 16))
    x = net.node("Relu", [net.norm(net.conv("features", 16, relu=False))])
    for filters in 16, 16, 24:
        y = net.node("Relu", [net.norm(net.conv(x, filters, relu=False))])
        y = net.norm(net.conv(y, filters, relu=False))
        beside = x if net.channels[x] == filters else net.norm(net.conv(x, filters, 1, relu=False))
        x = net.node("Relu", [net.node("Add", [y, beside])])
    net.write(path, net.dense(net.flat(net.node("GlobalAveragePool", [x]), 1), CLASSES, relu=False))


def variational(path):
    """Between two layers it computes the mean and the deviation of numbers, and draws them."""
    net = Net((48,))
    x = net.dense("features", 32)
    mean, spread = net.dense(x, 12, relu=False), net.dense(x, 12, relu=False)
    drawn = net.node("Mul", [net.node("RandomNormalLike", [spread]), net.node("Exp", [spread])])
    net.write(path, net.dense(net.node("Add", [mean, drawn]), CLASSES, relu=False))


def sloped(path):
    """An MLP whose activation has one slope, which is trained."""
    net = Net((48,))
    x = net.dense("features", 64, relu=False)
    net.write(path, net.dense(net.node("PRelu", [x, net.weight("slope", (1,), 0.25)]), CLASSES, relu=False))
