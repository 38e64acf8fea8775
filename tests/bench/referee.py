#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""How good are the partitions?  Mt-KaHyPar as an outside referee, on the hypergraphs of docs/theses.md.

Wants the package mtkahypar (pip install mtkahypar); Rubato itself does not.

usage: referee.py [--build FOLDER] [--seeds N] [--preset default|quality|highest_quality]
"""
import argparse
import os
import re
import subprocess
import sys
import tempfile

try:
    import mtkahypar
except ImportError:
    sys.exit("mtkahypar is missing: pip install mtkahypar")


def ours(build):
    """(net, parts) -> (imbalance, best, median) words."""
    text = subprocess.run([os.path.join(build, "tests/bench/bench-theses"), "hypergraph"], check=True,
                          capture_output=True, text=True).stdout
    found = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        words = re.match(r"([\d.]+), ([\d.]+)k \(median ([\d.]+)k\)", cells[3]) if len(cells) > 3 else None
        if words:
            found[cells[0], int(cells[1])] = tuple(map(float, words.groups()))
    return found


def read(path):
    """(pins and cost of each net, weight of each vertex)"""
    with open(path) as file:
        n, _, _ = map(int, file.readline().split())
        nets = [(int(line[0]), [int(word) - 1 for word in line[1:]]) for line in (file.readline().split() for _ in range(n))]
        return nets, [int(line) for line in file]


def judge(path, blocks, parts):
    """(words, imbalance) of a partition, counted here."""
    nets, weights = read(path)
    loads = [0] * parts
    for weight, block in zip(weights, blocks):
        loads[block] += weight
    return (sum(cost * (len({blocks[pin] for pin in pins}) - 1) for cost, pins in nets) / 1e3,
            max(loads) * parts / sum(loads) - 1)


def theirs(library, path, parts, preset, seeds):
    """The best and the median of some seeds: (imbalance, best, median) words."""
    found = []
    for seed in range(seeds):
        context = library.context_from_preset(getattr(mtkahypar.PresetType, preset.upper()))
        context.set_partitioning_parameters(parts, 0.03, mtkahypar.Objective.KM1)
        mtkahypar.set_seed(seed + 1)
        graph = library.hypergraph_from_file(path, context, mtkahypar.FileFormat.HMETIS)
        made = graph.partition(context)
        found.append(judge(path, [made.block_id(v) for v in range(graph.num_nodes())], parts))
    found.sort()
    return found[0][1], found[0][0], found[len(found) // 2][0]


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", default=os.path.join(here, "../../build"))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--preset", default="quality")
    options = parser.parse_args()
    mine = ours(options.build)
    library = mtkahypar.initialize(1)
    print("| net | parts | Rubato: imbalance, best, median | Mt-KaHyPar: imbalance, best, median | Rubato over it |")
    print("|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([os.path.join(options.build, "tests/bench/bench-theses"), "hypergraph", folder], check=True)
        for (net, parts), (imbalance, best, median) in mine.items():
            path = os.path.join(folder, net + ".hgr")
            over, words, middle = theirs(library, path, parts, options.preset, options.seeds)
            print(f"| {net} | {parts} | {imbalance:.3f}, {best:.1f}k, {median:.1f}k | "
                  f"{over:.3f}, {words:.1f}k, {middle:.1f}k | {best / words:.3f} |", flush=True)


if __name__ == "__main__":
    main()
