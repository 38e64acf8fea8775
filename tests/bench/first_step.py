#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What the first step after a shrink asks of the processor, beside the steps that follow: Markdown on stdout.

usage: first_step.py [--count N] [--megabytes N] [--batch N] [--json FILE] [--patience S]

Where steps vary by more than a shrink costs, elastic.py cannot tell; the scheduler can.  For each step of the
worker that stays: the time that its threads had a core for, the time that they waited for one, and the pages that they
touched for the first time (/proc, read every 10 ms, so that a step's share is right to that).
"""
import argparse
import bisect
import glob
import statistics
import sys
import threading
import time

import elastic
import lab

FOLLOWING = 7  # steps that the first one is compared with


def taken(pid):
    """ms on a core, ms waiting for one, first touches of all threads so far."""
    core = waited = 0
    for path in glob.glob(f"/proc/{pid}/task/*/schedstat"):
        with open(path) as file:
            fields = file.read().split()
        core, waited = core + int(fields[0]) / 1e6, waited + int(fields[1]) / 1e6
    with open(f"/proc/{pid}/stat") as file:
        faults = int(file.read().rsplit(")", 1)[1].split()[7])
    return core, waited, faults


class Watch(threading.Thread):
    """Looks at some processes until it is told to end; processes may end meanwhile."""

    def __init__(self, pids):
        super().__init__()
        self.looks, self.over = {pid: [] for pid in pids}, threading.Event()

    def run(self):
        while not self.over.wait(0.01):
            for pid, looks in self.looks.items():
                try:
                    looks.append((lab.now(), taken(pid)))
                except (OSError, ValueError, IndexError):
                    pass  # it has ended

    def between(self, pid, start, end):
        looks = self.looks[pid]
        first, last = (looks[min(bisect.bisect(looks, (when,)), len(looks) - 1)][1] for when in (start, end))
        return [b - a for a, b in zip(first, last)]


def one_shrink(c):
    """(clock, core, waited, touches) of the first step after a shrink, and of each that follows."""
    watch = Watch([device["pid"] for device in c.status("mlp")["devices"]])
    watch.start()
    c.rest("mlp", 4)
    c.json("shrink", "mlp", 1, "--wait", "--timeout", 60)
    c.rest("mlp", FOLLOWING + 3)
    time.sleep(0.1)
    watch.over.set()
    watch.join()
    pid = c.status("mlp")["devices"][0]["pid"]
    rows = elastic.stalls.by_time(c.metrics("mlp"))
    first = max(i for i in range(1, len(rows)) if rows[i]["configuration"] != rows[i - 1]["configuration"])
    steps = [[rows[i]["step_ms"], *watch.between(pid, rows[i - 1]["time"], rows[i]["time"])]
             for i in range(first, first + 1 + FOLLOWING)]
    c.json("grow", "mlp", 1, "--wait", "--timeout", 60)
    c.rest("mlp", 8)
    return steps


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("usage: ")[1].split("\n")[0])
    parser.add_argument("--count", type=int, default=7)
    parser.add_argument("--megabytes", type=float, default=256)
    parser.add_argument("--batch", type=int, default=56)
    parser.add_argument("--json", default="bench-first-step.json")
    parser.add_argument("--patience", type=int, default=0, help="seconds to wait for a quiet machine")
    options = parser.parse_args()
    raw = {"machine": lab.machine(options.patience), "shrinks": []}
    print(raw["machine"] + "\n")
    with lab.Lab(devices=2) as c:
        lab.corpus.classes(c.folder, 4096, (elastic.INPUTS,), elastic.CLASSES)
        width = elastic.hidden_for(options.megabytes)
        c.model("mlp", f"mlp{width}", inputs=elastic.INPUTS, hidden=width, classes=elastic.CLASSES)
        c.submit("mlp", elastic.mlp(c, width, options.batch, 2))
        c.wait("mlp", "step=10")
        for i in range(options.count):
            lab.say(f"shrink {i + 1} of {options.count}")
            raw["shrinks"].append(one_shrink(c))
    lab.keep(options.json, raw)
    print(f"State of {options.megabytes:g} MB, {options.count} shrinks 2 -> 1; ms of the first step behind the flip, in brackets "
          f"the median and the range of the {FOLLOWING} that follow.\n")
    rows = []
    for i, (first, *following) in enumerate(raw["shrinks"]):
        rows.append([i + 1, *(f"{first[k]:.0f} ({statistics.median(step[k] for step in following):.0f}, "
                              f"{min(step[k] for step in following):.0f} to {max(step[k] for step in following):.0f})"
                              for k in range(4))])
    lab.table(["shrink", "by the clock", "on a core", "waiting for one", "first touches"], rows)
    print(lab.machine())


if __name__ == "__main__":
    sys.exit(main())
