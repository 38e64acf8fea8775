#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What a death costs: a line for each kill -9, then medians.

    kill.py [WORKERS [KILLS]]            RUBATO_BUILD names the build

control  from the later of the reaping and the last freeze until all survivors are in what is left, by their logs:
         what the recovery itself takes.  Before that they finish computing what they have begun.
over     the gap between the two commits around the death minus the median step of the set that goes on.
The node is cordoned meanwhile, so that nobody is brought up on the same cores."""
import datetime
import glob
import os
import re
import signal
import statistics
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../e2e"))
import cluster
import corpus


def spec(c, want):
    corpus.text(c.path("corpus.txt"), 40000)
    return {
        "model": {"onnx": "gpt.onnx"},
        "data": {"train": {"path": "corpus.txt", "format": "text", "seqLen": 64}},
        "train": {"steps": 1000000, "globalBatch": 12, "microBatch": 1},
        "devices": {"min": 1, "max": 4, "want": want},
    }


def times(path, pattern):
    """Unix ms of the lines of a log that match."""
    with open(path) as log:
        return [datetime.datetime.strptime(line.split()[0], "%Y-%m-%dT%H:%M:%S.%fZ").timestamp() * 1000
                for line in log if re.search(pattern, line)]


def control(c, number):
    logs = glob.glob(c.path("local/jobs/*/logs/*"))
    reaped = times(c.nodes[0].log, "signal 9")[-1]
    entered = [time for log in logs for time in times(log, f"configuration {number}: rank")]
    frozen = [time for log in logs for time in times(log, "frozen at") if time > reaped - 1000]
    return max(entered) - max([reaped] + frozen)


def kill(c, workers, rank):
    node = c.json("get", "nodes")["items"][0]["name"]
    c.wait("gpt", f"devices={workers}")
    c.wait("gpt", f"step={c.status('gpt')['step'] + 10}")
    c.ctl("node", "cordon", node)
    before = c.status("gpt")
    os.kill(before["devices"][rank]["pid"], signal.SIGKILL)
    c.wait("gpt", f"devices={workers - 1}")
    c.wait("gpt", f"step={c.status('gpt')['step'] + 12}")
    rows = c.metrics("gpt")
    first = next(i for i, row in enumerate(rows) if row["configuration"] > before["configuration"])
    took = control(c, int(rows[first]["configuration"]))
    gap = rows[first]["time"] - rows[first - 1]["time"]
    old = statistics.median(row["step_ms"] for row in rows[max(0, first - 11):first - 1])
    new = statistics.median(row["step_ms"] for row in rows[first + 1:first + 12])
    c.ctl("node", "uncordon", node)
    print(f"rank {rank}: control {took:.0f} ms, gap {gap:.0f} ms, steps {old:.1f} and {new:.1f} ms, "
          f"over {gap - new:.1f} ms", flush=True)
    return took, gap, old, new, gap - new


def main():
    workers, kills = (int(word) for word in (sys.argv[1:] + ["3", "10"][len(sys.argv) - 1:]))
    with cluster.Cluster(devices=workers) as c:
        c.model("gpt", layers=2, width=128, heads=2, seq=64, dropout=0.1)
        c.submit("gpt", spec(c, workers))
        found = [kill(c, workers, i % workers) for i in range(kills)]
        took, gap, old, new, over = (statistics.median(column) for column in zip(*found))
        print(f"{workers} workers, median of {kills}: control {took:.0f} ms, gap {gap:.0f} ms, "
              f"steps {old:.1f} and {new:.1f} ms, over {over:.1f} ms")
        c.ctl("cancel", "gpt")


main()
