# SPDX-License-Identifier: Apache-2.0
"""The pictures of docs/theses.md: a function for each, from named numbers to a picture."""
import math
import statistics

from svg import Axis, Picture

T95 = {5: 2.776}  # Student's t by the number of seeds
NAMES = {"mlp": "MLP", "gpt": "GPT", "cnn": "CNN", "vgg": "VGG's shape", "deep": "deep"}
UNLIMITED = 2000  # Mbit/s that stand for no limit, on axes


def table(read, name):
    return [row for row in read("computed") if row["table"] == name]


def percent(*values):
    return [(value, f"{100 * value:g} %") for value in values]


def by(rows, key):
    """Rows by their value of `key`, in their order."""
    found = {}
    for row in rows:
        found.setdefault(row[key], []).append(row)
    return found


# ---- The planner as a judge -------------------------------------------------------------------------

def predict(read):
    rows = read("predict")
    within = sum(abs(row["error"]) <= 0.15 for row in rows)
    picture = Picture(f"{within} of {len(rows)} predicted steps are within 15 % of the measured ones",
                      "a step as the planner predicts it, and as workers take it on their core; medians of three rounds", 320)
    panel = picture.panel(Axis("measured, ms", 5, 500, log=True, ticks=(5, 10, 20, 50, 100, 200, 500)),
                          Axis("predicted, ms", 5, 500, log=True, ticks=(5, 10, 20, 50, 100, 200, 500)))
    low, high, off = 5, 500, 1.15
    panel.band([(low, low), (off * low, low), (high, high / off)], [(low, off * low), (high / off, high), (high, high)],
               "within 15 %")
    panel.line([(low, low), (high, high)], 0, "as predicted", colour="#666666", thick=1)
    for i, (case, some) in enumerate(by(rows, "case").items()):
        for workers in 1, 2:
            panel.points([(row["step"], row["stepMs"]) for row in some if row["workers"] == workers], i,
                         f"{NAMES[case]}, {workers} worker{'s' * (workers > 1)}", hollow=workers == 2)
    return picture


def planning(read):
    rows = read("planning")
    worst = max(row["ms"] for row in rows)
    picture = Picture(f"Planning takes {worst:.0f} ms of a core at most, on up to 1,024 devices",
                      "a GPT of 36 layers, 1,738 instructions; the bound is a second for 64 devices, ten for 1,024")
    panel = picture.panel(Axis("devices", 2, 1024, log=True, ticks=(2, 4, 8, 16, 64, 256, 1024)),
                          Axis("ms of a core", 0.1, 20000, log=True))
    panel.points([(64, 1000), (1024, 10000)], 1, "the bound", hollow=True)
    for i, (what, some) in enumerate(by(rows, "what").items()):
        points = [(row["devices"], row["ms"]) for row in some]
        panel.line(points, (0, 2, 3, 4)[i])
        panel.points(points, (0, 2, 3, 4)[i], what)
    return picture


def auto(read):
    rows = read("auto")
    pins = [{way: ms for way, ms in row["ms"].items() if way != "auto"} for row in rows]
    best = [min(ways.values()) for ways in pins]

    def over_best(kind):
        """The quickest pin of a kind, or the planner's choice."""
        return [(i, min(ms for way, ms in row["ms"].items() if way.startswith(kind)) / least)
                for i, (row, least) in enumerate(zip(rows, best))]

    names = [f"{NAMES[row['model']]}\n{row['mbit'] or 'none'}" for row in rows]
    most = max(times for _, times in over_best("auto"))
    worst = max(max(ways.values()) / least for ways, least in zip(pins, best))
    picture = Picture(f"Left to the planner, a step takes at most {100 * (most - 1):.0f} % more than with the quickest pin; "
                      f"with the other, up to {worst:.1f} times as long",
                      "two workers; a step's median over that of the quickest pin; below each model the link's Mbit/s", 240)
    axis = Axis("model, Mbit/s", 0, 0, names=names)
    panel = picture.panel(axis, Axis("step over the quickest pin's", 0.8, 5, log=True, ticks=(1, 2, 3, 5)))
    ends = axis.low, axis.high
    panel.band([(x, 0.95) for x in ends], [(x, 1.05) for x in ends], "5 %")
    for series, way, name in (1, "data", "pinned to data parallelism"), (2, "pipeline", "pinned to a pipeline"):
        panel.points(over_best(way), series, name, hollow=True, size=5)
    panel.points(over_best("auto"), 0, "left to the planner", size=3)
    return picture


# ---- Balance ----------------------------------------------------------------------------------------

def balance(read):
    rows, measured = table(read, "shares"), read("balance")
    picture = Picture("With shares by speed a step is within 5 % of the ideal from 80 microbatches on; with even ones up to "
                      "2.75 times it",
                      "devices of speed 1, 1, 0.5 and 0.25: lines are computed, points are medians of steps of four workers")
    panel = picture.panel(Axis("microbatches a step", 4, 256, log=True, ticks=(4, 8, 16, 32, 64, 128, 256)),
                          Axis("step over the ideal", 0.9, 3, ticks=(1, 1.5, 2, 2.5, 3)))
    ends = 4, 256
    panel.band([(x, 1) for x in ends], [(x, 1.05) for x in ends], "within 5 %")
    panel.line([(row["microbatches"], row["even"]) for row in rows], 1, "even")
    panel.line([(row["microbatches"], row["bySpeed"]) for row in rows], 0, "by speed")
    for arm, series, hollow in ("even", 1, False), ("by speed", 0, False), ("even, stealing", 2, False):
        panel.points([(row["microbatches"], row["ms"] / row["ideal"]) for row in measured
                      if row["arm"] == arm and not row["slowed"]], series, f"{arm}, measured", hollow)
    return picture


def devices(read):
    speeds = 1, 1, 0.5, 0.25
    shares = next(row["shares"] for row in table(read, "shares") if row["microbatches"] == 44)
    measured = {row["arm"]: row for row in read("balance") if row["microbatches"] == 44 and not row["slowed"]}
    before, after = (100 * measured[arm]["variation"] for arm in ("even", "by speed"))
    picture = Picture(f"With even shares the devices' times vary by {before:.0f} %, with shares by speed by {after:.0f} %",
                      "44 microbatches, 40 ms each at speed 1: bars are shares over speed, lines medians of measured steps",
                      240)
    names = [f"device {i}, speed {speed:g}" for i, speed in enumerate(speeds)]
    panel = picture.panel(Axis("device, its speed", 0, 0, names=names),
                          Axis("computing in a step, ms", 0, 2000))
    for series, arm, share, side in (1, "even", (11,) * 4, -0.19), (0, "by speed", shares, 0.19):
        panel.bars([(i + side, 40 * n / speed) for i, (n, speed) in enumerate(zip(share, speeds))], series, 0.34,
                   f"{arm}: {' '.join(map(str, share))}")
        took = measured[arm]
        panel.line([(-0.6, took["ms"]), (3.6, took["ms"])], series, dash="5 4", thick=1.2)
        panel.text(-0.55, took["ms"], f"a step, {arm}: {took['ms']:.0f} ms, variation {took['variation']:.3f}")
    return picture


def placement(read):
    rows = [row for row in table(read, "placement") if row["devices"] == 4]
    picture = Picture("Equal ranges are 2.97 times as fast as whole variables only where communication is all there is",
                      "VGG-16 on four owners: a step over that with equal ranges, (r + load) / (r + 1)", 220)
    panel = picture.panel(Axis("computing over communicating, r", 0, 10, ticks=(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10)),
                          Axis("step over equal ranges", 1, 3.5))
    for i, row in enumerate(rows):
        panel.line([(r / 20, (r / 20 + row["load"]) / (r / 20 + 1)) for r in range(201)], i,
                   f"{row['order']} ({row['load']:.2f} without computing)", dash=(None, "6 3", "2 3")[i])
    return picture


# ---- Pipelines --------------------------------------------------------------------------------------

def law(read):
    picture = Picture("15.77 times is reached by each net, at links from 11 MB/s (VGG-16, ring) to 24 GB/s (dense, server)",
                      "a full pipeline of four devices over data parallelism, e (1 + C/T), e played by the simulator; "
                      "10 TFLOP/s, batch 128")
    for way, title in ("ring", "a ring"), ("server", "a parameter server"):
        panel = picture.panel(Axis("the link, bytes a second", 1e7, 1e11, log=True,
                                   ticks=((1e7, "10 MB"), (1e8, "100 MB"), (1e9, "1 GB"), (1e10, "10 GB"), (1e11, "100 GB"))),
                              Axis("times as fast", 0.5, 1000, log=True), "over " + title)
        for i, (net, rows) in enumerate(by(table(read, "law"), "net").items()):
            panel.line([(row["bandwidth"], row[way]) for row in rows if row[way] <= 1000], i, net,
                       (None, "6 3", "2 3", "9 3 2 3")[i])
        panel.level(15.77)
        panel.level(1, dash="2 3")
        panel.text(1e11, 15.77, "15.77", "end", 4)
        panel.text(1.1e7, 1, "as fast", "start", -12)
    return picture


def links_axis():
    return Axis("the link, Mbit/s", 40, 2500, log=True, ticks=((50, "50"), (200, "200"), (1000, "1000"), (UNLIMITED, "none")))


def factor(rows, way):
    """Times as fast as data parallelism, by the link."""
    ms = {(row["mbit"], row["way"]): row["ms"] for row in rows}
    return [(mbit or UNLIMITED, ms[mbit, "data parallel"] / ms[mbit, way]) for mbit in by(rows, "mbit")]


def of_law(rows, way):
    """The factor, if bytes went over the link while no worker computes, and each node sent half of them."""
    none = {row["way"]: row["ms"] for row in rows if not row["mbit"]}
    sent = {each: statistics.median(row["MB"] for row in rows if row["way"] == each) / 2 for each in none}
    return [(mbit, (none["data parallel"] + 8000 * sent["data parallel"] / mbit) / (none[way] + 8000 * sent[way] / mbit))
            for mbit in (50 * 20 ** (i / 30) for i in range(31))]


def links(read):
    first, second = by(read("links"), "model"), by(read("split-links"), "model")
    picture = Picture("Behind a slow link a pipeline of two is up to 20 times as fast as data parallelism; split filters "
                      "only if bytes are many fewer",
                      "two workers, measured; lines: by bytes alone, each way's step without a limit and what a node sends, "
                      "not hidden")
    shown = (("a pipeline", "pipeline", {"MLP": first["mlp"], "GPT": first["gpt"], "VGG's shape": second["vgg"]}),
             ("filters split", "filters split", {"MLP": second["mlp"], "VGG's shape": second["vgg"]}))
    for title, way, some in shown:
        panel = picture.panel(links_axis(), Axis("times as fast", 0.4, 40, log=True,
                                                 ticks=(0.5, 1, 2, 5, 10, 20)), title)
        panel.level(1, dash="2 3")
        for name, rows in some.items():
            series = ("MLP", "GPT", "VGG's shape").index(name)
            panel.line(of_law(rows, way), series, dash=(None, "6 3", "2 3")[series], thick=1.3)
            panel.points(factor(rows, way), series, name)
        if way == "pipeline":
            panel.points(factor(read("spectrain-links"), "spectrain"), 0, "MLP, spectrain (another machine)", hollow=True)
    return picture


def prediction(read):
    momenta = 1e-6, 0.5, 0.9, 0.99
    rows = read("errors")
    picture = Picture("Predicted weights are nearer than stale ones in every pass at momentum 0.9 and 0.99, and lose "
                      "without it",
                      "distance from the weights that come, predicted over stale: a point a stage and pass, sorted; "
                      "medians over steps")
    panel = picture.panel(Axis("momentum", 0, 0, names=["0 (the last gradient)", "0.5", "0.9", "0.99"]),
                          Axis("predicted over stale", 0.02, 30, log=True,
                               ticks=(0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20)))
    panel.level(1, "as far as stale")
    for i, stages in enumerate((2, 4, 8)):
        points = []
        for x, momentum in enumerate(momenta):
            some = sorted(row["ratio"] for row in rows if row["stages"] == stages and row["momentum"] == momentum)
            points += [(x + 0.24 * (i - 1) + 0.012 * (k - (len(some) - 1) / 2), ratio) for k, ratio in enumerate(some)]
        panel.points(points, i, f"{stages} stages", size=3.2)
    return picture


ARMS = "vanilla", "stashing", "2bw", "spectrain-formula", "spectrain"


def gap(runs, name, stages, arm):
    """(mean, half of the 95 % interval) of the loss less the synchronous run's, at the best rate of the latter."""
    alone = runs[f"{name} synchronous"]
    rate = min(alone, key=lambda one: statistics.fmean(alone[one]))
    losses = runs[f"{name} {stages} {arm}"][rate]
    if None in losses:
        return math.inf, 0
    gaps = [a - b for a, b in zip(losses, alone[rate])]
    return statistics.fmean(gaps), T95[len(gaps)] * statistics.stdev(gaps) / math.sqrt(len(gaps))


def convergence(read):
    runs = {row["run"]: row["losses"] for row in read("arms")}
    groups = [("mlp", 2), ("mlp", 4), ("mlp", 8), ("cnn", 2), ("cnn", 4), ("gpt-sgd", 4), ("gpt", 4)]
    names = {"mlp": "MLP, SGD", "cnn": "CNN, SGD", "gpt-sgd": "GPT, SGD", "gpt": "GPT, AdamW"}
    picture = Picture("spectrain learns as well as synchronous runs, within the noise, for MLP and CNN up to 4 stages; "
                      "not with 8, nor the small GPT",
                      "loss less that of the synchronous run of the same seed, at its best rate: mean and 95 % interval of "
                      "five seeds; a cross at the edge: a seed diverged")
    axis = Axis("net, optimizer, stages", 0, 0, names=[f"{names[name]}\n{stages} stages" for name, stages in groups])
    panel = picture.panel(axis, Axis("loss less the synchronous one", -0.1, 1.5, ticks=(0, 0.25, 0.5, 0.75, 1, 1.25, 1.5)))
    panel.level(0, dash=None)
    for i, arm in enumerate(ARMS):
        gaps = [gap(runs, name, stages, arm) for name, stages in groups]
        panel.intervals([(x + 0.15 * (i - 2), *one) for x, one in enumerate(gaps)], i, arm)
    return picture


# ---- Hypergraphs ------------------------------------------------------------------------------------

SHORT = {"VGG-16, 224": "VGG-16\n224", "VGG-16, CIFAR": "VGG-16\nCIFAR", "AlexNet, 224": "AlexNet\n224",
         "AlexNet, grouped": "AlexNet\ngrouped", "cifar-quick": "cifar-\nquick", "Inception 3a": "Inception\n3a",
         "ResNet-18, 224": "ResNet-18\n224", "MLP, a tenth of the weights": "MLP\npruned"}
PARTS = 2, 4, 8


def in_groups(picture, rows, y, kinds):
    """A group for each net, with a column each for 2, 4 and 8 parts."""
    nets = list(by(rows, "net"))
    panel = picture.panel(Axis("net; from left to right 2, 4 and 8 parts", 0, 0, names=[SHORT[net] for net in nets]), y)
    for key, series, name, hollow in kinds:
        panel.points([(nets.index(row["net"]) + 0.24 * (PARTS.index(row["parts"]) - 1), row[key]) for row in rows
                      if row.get(key)], series, name, hollow, 5 if hollow else 4)
    return panel


def words(read):
    rows = [{**row, **{key: row[key] / row["split"] for key in ("layerWords", "words", "random") if key in row}}
            for row in table(read, "hypergraph")]
    picture = Picture("By filter far fewer words move than with all split; fewer than by layer only for groups in 4 and "
                      "branches in 2 parts",
                      "words of a sample over those with every layer's filters on all parts")
    in_groups(picture, rows, Axis("words over all split", 0.03, 1.2, log=True,
                                  ticks=(0.05, 0.1, 0.2, 0.5, 1)),
              [("random", 2, "at random", True), ("layerWords", 1, "by layer, at its own balance", True),
               ("words", 0, "by filter", False)])
    return picture


def imbalance(read):
    rows = table(read, "hypergraph")
    over, worst = sum(row["imbalance"] > 0.0305 for row in rows), max(row.get("layerImbalance", 0) for row in rows)
    picture = Picture(f"By filter {len(rows) - over} of {len(rows)} are within 3 % of balance; by layer they are up to "
                      f"{100 * worst:.0f} % off",
                      "the largest part's work over the mean, less 1")
    panel = in_groups(picture, rows,
                      Axis("imbalance", 0.003, 10, log=True,
                           ticks=percent(0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10)),
                      [("layerImbalance", 1, "by layer", True), ("imbalance", 0, "by filter", False)])
    panel.level(0.03, "the limit")
    return picture


def batch(read):
    rows = [row for row in table(read, "hypergraph") if row["parts"] == 4]
    most = {row["net"]: math.floor(0.07 * row["parameters"] * 4 / row["words"]) for row in rows}
    picture = Picture(f"93 % fewer bytes than data parallelism: up to batch {most['AlexNet, grouped']} for grouped AlexNet, "
                      f"{most['VGG-16, 224']} for VGG-16 at 224" + ("" if most["Inception 3a"] else ", never for Inception"),
                      "four parts, 1 - b V / (P K) beside a parameter server; below 0 data parallelism sends less")
    panel = picture.panel(Axis("batch", 1, 4096, log=True, ticks=(1, 4, 16, 64, 256, 1024, 4096)),
                          Axis("bytes saved", 0, 1, ticks=percent(0, 0.2, 0.4, 0.6, 0.8, 1)))
    panel.level(0.93, "93 %")
    for i, row in enumerate(rows):
        even = row["parameters"] * 4 / row["words"]
        steps = [2 ** (k / 16) for k in range(193)]
        inside = [b for b in steps if b < even] + [even] * (even < 4096)
        panel.line([(b, 1 - b / even) for b in inside], i, row["net"], (None, "6 3", "2 3", "9 3 2 3")[i % 4])
        if 0.07 * even >= 1:
            panel.points([(0.07 * even, 0.93)], i, size=3.2)
    return picture


ALL = {"predict": predict, "planning": planning, "balance": balance, "devices": devices, "placement": placement, "law": law,
       "links": links, "auto": auto, "prediction": prediction, "convergence": convergence, "words": words,
       "imbalance": imbalance, "batch": batch}
