#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What a death costs: a line for each kill -9, then medians.

    kill.py [WORKERS [KILLS]]            RUBATO_BUILD names the build

control  what the recovery itself takes (lab.py)
over     the gap between the two commits around the death minus the median step of the set that goes on.
The node is cordoned meanwhile, so that no newcomer is brought up on the same cores."""
import os
import signal
import statistics
import sys

import lab  # first: it tells Python where the others are
import corpus


def spec(c, want):
    corpus.text(c.path("corpus.txt"), 40000)
    return {
        "model": {"onnx": "gpt.onnx"},
        "data": {"train": {"path": "corpus.txt", "format": "text", "seqLen": 64}},
        "train": {"steps": 1000000, "globalBatch": 12, "microBatch": 1},
        "devices": {"min": 1, "max": 4, "want": want},
    }


def kill(c, workers, rank):
    node = c.json("get", "nodes")["items"][0]["name"]
    c.wait("gpt", f"devices={workers}")
    c.rest("gpt", 10)
    c.ctl("node", "cordon", node)
    before = c.status("gpt")
    os.kill(before["devices"][rank]["pid"], signal.SIGKILL)
    c.wait("gpt", f"devices={workers - 1}")
    c.rest("gpt", 12)
    rows = c.metrics("gpt")
    first = next(i for i, row in enumerate(rows) if row["configuration"] > before["configuration"])
    took = lab.control(c, int(rows[first]["configuration"]))
    gap = rows[first]["time"] - rows[first - 1]["time"]
    old = statistics.median(row["step_ms"] for row in rows[max(0, first - 11):first - 1])
    new = statistics.median(row["step_ms"] for row in rows[first + 1:first + 12])
    c.ctl("node", "uncordon", node)
    print(f"rank {rank}: control {took:.0f} ms, gap {gap:.0f} ms, steps {old:.1f} and {new:.1f} ms, "
          f"over {gap - new:.1f} ms", flush=True)
    return took, gap, old, new, gap - new


def main():
    workers, kills = (int(word) for word in (sys.argv[1:] + ["3", "10"][len(sys.argv) - 1:]))
    with lab.Lab(devices=workers) as c:
        c.model("gpt", layers=2, width=128, heads=2, seq=64, dropout=0.1)
        c.submit("gpt", spec(c, workers))
        found = [kill(c, workers, i % workers) for i in range(kills)]
        took, gap, old, new, over = (statistics.median(column) for column in zip(*found))
        print(f"{workers} workers, median of {kills}: control {took:.0f} ms, gap {gap:.0f} ms, "
              f"steps {old:.1f} and {new:.1f} ms, over {over:.1f} ms")
        c.ctl("cancel", "gpt")


main()
