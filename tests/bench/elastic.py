#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What a change of devices costs, from `rubatoctl metrics`: Markdown on stdout, raw numbers in a file.

usage: elastic.py [reference] [sizes] [--count N] [--sizes MB,MB] [--replicas all|1] [--seed N] [--json FILE]
                  [--patience S]

reference   the reference GPT (40 MB of state) on one and two pinned cores: grow 1 -> 2, shrink 2 -> 1, kill -9
            of one of 2 (each rank in turn, at a random moment of a step), checkpoints at 1 and at 2
sizes       the same for state of 1 to 256 MB (MLPs with batches that make steps of about 200 ms): grow, shrink;
            with one replica of each block, half of the optimizer's state has to change hands each time

tests/bench/stalls.py says what is measured.  Quiet windows lie between the changes, in the same run.  Rows
have whole ms: a single gap is right to 1 ms, and the error of that cancels in the difference of medians.
"""
import argparse
import os
import random
import signal
import sys
import time

import lab
import stalls
from cluster import check, until

QUIET = 14  # steps of rest: one window of the usual length between two changes


class Run:
    """A job that is changed again and again, and which change was asked for when."""

    def __init__(self, c, job, seed):
        self.c, self.job, self.random, self.asked = c, job, random.Random(seed), []

    def note(self, kind, asked, **more):
        self.asked.append({"kind": kind, "asked": asked, **more})

    def resize(self, kind, verb):
        """The rest after it holds a quiet window as long as the change's own, which grows with the state."""
        before, asked = self.c.status(self.job)["step"], lab.now()
        receipt = self.c.json(verb, self.job, 1, "--wait", "--timeout", 120)
        self.note(kind, asked, receipt=receipt)
        self.c.rest(self.job, self.c.status(self.job)["step"] - before + stalls.STEPS_AFTER + QUIET)

    def grow(self):
        self.resize("grow", "grow")

    def shrink(self):
        self.resize("shrink", "shrink")

    def checkpoint(self, kind):
        asked = lab.now()
        self.c.ctl("checkpoint", self.job, "--wait")
        self.note(kind, asked, until=lab.now())
        self.c.rest(self.job, stalls.STEPS_AFTER + QUIET)

    def kill(self, rank):
        """No newcomer may come into the window: the node is cordoned meanwhile."""
        c = self.c
        node = c.status(self.job)["devices"][rank]["node"]
        c.ctl("node", "cordon", node)
        pid = c.status(self.job)["devices"][rank]["pid"]
        delay = self.random.random() * c.metrics(self.job)[-1]["step_ms"] / 1000
        c.rest(self.job, QUIET)  # after the calls above: steps share their cores with the answers
        time.sleep(delay)
        asked = lab.now()
        os.kill(pid, signal.SIGKILL)
        c.wait(self.job, "devices=1")
        died = until("the death to be noticed",
                     lambda: [e["time"] for e in c.json("events", self.job)["items"]
                              if e["kind"] == "worker-died" and e["time"] >= asked - 5])
        self.note("kill", asked, rank=rank, noticed=died[0] - asked,
                  control=lab.control(c, c.status(self.job)["configuration"]))
        c.rest(self.job, stalls.STEPS_AFTER + QUIET)
        c.ctl("node", "uncordon", node)
        c.wait(self.job, "devices=2")
        c.rest(self.job, QUIET)

    def results(self):
        """(rows, medians, changes in the order in which they were asked for)"""
        rows = stalls.by_time(self.c.metrics(self.job))
        check([row["step"] for row in rows] == list(range(1, len(rows) + 1)), "a step is missing or came twice")
        middle = stalls.medians(rows)
        changes = []
        for asked in self.asked:
            how = {"flips": False, "until": asked["until"]} if "until" in asked else {}
            found = stalls.change(rows, middle, asked["asked"], **how)
            check(found, f"the rows do not hold all of {asked}")
            changes.append({**asked, **found})
        return rows, middle, changes


def kinds(changes):
    return list(dict.fromkeys(one["kind"] for one in changes))


def by_kind(rows, middle, changes):
    return {kind: stalls.summary(rows, middle, [one for one in changes if one["kind"] == kind], changes)
            for kind in kinds(changes)}


# ---- The reference GPT ------------------------------------------------------------------------------

def reference(options):
    with lab.Lab(devices=2) as c:
        c.submit("gpt", lab.reference(c, 1, checkpoint={"path": c.path("checkpoints"), "keep": 2}))
        summary = c.json("describe", "gpt")["job"]["summary"]
        run = Run(c, "gpt", options.seed)
        c.wait("gpt", "step=20")
        for i in range(options.count):
            lab.say(f"reference: round {i + 1} of {options.count}")
            run.checkpoint("checkpoint at 1")
            run.grow()
            run.checkpoint("checkpoint at 2")
            run.shrink()
        c.ctl("resize", "gpt", "--want", 2, "--wait")
        c.rest("gpt", QUIET)
        for i in range(options.count):
            lab.say(f"reference: kill {i + 1} of {options.count}")
            run.kill(i % 2)
        microbatches = c.json("describe", "gpt")["job"]["microbatches"]
        rows, middle, changes = run.results()
        c.ctl("cancel", "gpt")
    found = by_kind(rows, middle, changes)
    one = found["shrink"]["step_after"]
    two = found["shrink"]["step_before"]
    for change in changes:
        if change["kind"] == "kill":  # the dead worker's share is computed again, on the one that is left
            lost = microbatches // 2 + (microbatches % 2 if change["rank"] == 0 else 0)
            change["over"] = change["gap"] - change["step_before"] - change["step_after"] * lost / microbatches
    print(f"### The reference GPT\n\n{summary}. A step takes {lab.show(one)} ms on one worker, {lab.show(two)} ms "
          f"on two. All in ms, medians of {options.count}.\n")
    lab.table(["change", "stall", "quiet", "difference", "excess", "quiet", "difference",
               "to the first contribution", "steps lost"],
              [[kind, f["stall"], f["quiet_stall"], f["net_stall"], f["excess"], f["quiet_excess"],
                f["net_excess"], f["ready"] if "checkpoint" not in kind else None, f["lost"]]
               for kind, f in found.items()])
    kill = sorted((change for change in changes if change["kind"] == "kill"), key=lambda one: one["over"])
    middle_kill = [stalls.statistics.median(one[name] for one in kill) for name in ("gap", "noticed", "control", "over")]
    print(f"A kill: the gap is {lab.show(middle_kill[0])} ms, the death is noticed after "
          f"{lab.show(middle_kill[1])} ms, the recovery itself takes {lab.show(middle_kill[2])} ms (behind the last freeze, "
          f"by the logs), and the gap is {lab.show(middle_kill[3])} ms "
          f"({lab.show(kill[0]['over'])} to {lab.show(kill[-1]['over'])}) longer than the steps before it and the dead "
          f"one's share of those behind it.\n")
    receipts(changes)
    return {"summary": summary, "found": found, "changes": changes, "rows": rows}


def receipts(changes):
    """The receipts of rubatod must be the same arithmetic; rubatod counts from when it got the request."""
    apart = [abs(one["receipt"]["stall_ms"] - one["stall"]) for one in changes if "receipt" in one]
    lost = [one["receipt"][name] for one in changes if "receipt" in one
            for name in ("steps_lost", "samples_repeated", "samples_skipped")]
    print(f"Stalls in receipts differ from these by {lab.show(stalls.statistics.median(apart))} ms in the median and "
          f"{lab.show(max(apart))} at most; steps lost, samples repeated and skipped in all receipts: {sum(lost)}.\n")


# ---- Sizes ------------------------------------------------------------------------------------------

INPUTS, CLASSES, MICROBATCHES, STEP_MS = 64, 10, 8, 200


def hidden_for(megabytes):
    """The width at which an MLP of depth 2 under AdamW (12 bytes a weight) has so much state."""
    weights, width = megabytes * 1e6 / 12, 8
    while INPUTS * width + width * width + CLASSES * width + 2 * width + CLASSES < weights:
        width += 1
    return width


def mlp(c, width, batch, want, replicas="all"):
    return {
        "model": {"onnx": f"mlp{width}.onnx"},
        "data": {"train": {"path": "train.npy", "targets": "train-labels.npy"}},
        "train": {"steps": lab.ENDLESS, "globalBatch": batch, "microBatch": batch // MICROBATCHES,
                  "optimizer": {"type": "adamw", "lr": 1.0e-4}},
        "devices": {"min": 1, "max": 8, "want": want},
        "state": {"replicas": replicas},
        "parallel": {"pipeline": 1},
    }


def batch_for(c, width):
    """A batch that makes steps of about STEP_MS on one device: a guess, then one correction."""
    weights = INPUTS * width + width * width + CLASSES * width
    batch = MICROBATCHES * max(1, int(STEP_MS * 1e8 / (6 * weights) / MICROBATCHES))
    c.submit("pace", mlp(c, width, batch, 1))
    c.wait("pace", "step=12")
    took = stalls.statistics.median(row["step_ms"] for row in c.metrics("pace")[4:])
    c.ctl("cancel", "pace")
    c.ctl("delete", "pace")
    return MICROBATCHES * max(1, round(batch * min(4, STEP_MS / took) / MICROBATCHES))


def sizes(options):
    found = {}
    with lab.Lab(devices=2) as c:
        lab.corpus.classes(c.folder, 4096, (INPUTS,), CLASSES)
        for megabytes in options.sizes:
            width = hidden_for(megabytes)
            c.model("mlp", f"mlp{width}", inputs=INPUTS, hidden=width, classes=CLASSES)
            batch = batch_for(c, width)
            c.submit("mlp", mlp(c, width, batch, 1, options.replicas))
            run = Run(c, "mlp", options.seed)
            c.wait("mlp", "step=20")
            for i in range(options.count):
                lab.say(f"{megabytes} MB: round {i + 1} of {options.count}")
                run.grow()
                run.shrink()
            rows, middle, changes = run.results()
            c.ctl("cancel", "mlp")
            c.ctl("delete", "mlp")
            found[megabytes] = {"width": width, "batch": batch, "found": by_kind(rows, middle, changes),
                                "changes": changes, "rows": rows}
    for kind, title in (("grow", "Growing 1 -> 2"), ("shrink", "Shrinking 2 -> 1")):
        print(f"### {title}, by the size of the state\n\nms, and in brackets as a part of a step of the set that the "
              f"longest gap ends in (one worker); medians of {options.count}.\n")
        lab.table(["state, MB", "step on 1", "step on 2", "stall", "quiet", "difference", "excess", "quiet",
                   "difference", "to the first contribution"],
                  [size_row(megabytes, one["found"], kind) for megabytes, one in found.items()])
    return found


def size_row(megabytes, found, kind):
    f = found[kind]
    one, two = found["shrink"]["step_after"], found["shrink"]["step_before"]
    part = ["-" if f[name] is None else f"{lab.show(f[name])} ({f[name] / one:.3f})" for name in
            ("stall", "quiet_stall", "net_stall", "excess", "quiet_excess", "net_excess")]
    return [megabytes, one, two, *part, f["ready"]]


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("usage: ")[1].split("\n")[0])
    parser.add_argument("parts", nargs="*", default=["reference", "sizes"])
    parser.add_argument("--count", type=int, default=10)
    parser.add_argument("--sizes", type=lambda text: [float(word) for word in text.split(",")],
                        default=[1, 4, 16, 64, 256])
    parser.add_argument("--replicas", choices=["all", "1"], default="all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", default="bench-elastic.json")
    parser.add_argument("--patience", type=int, default=0, help="seconds to wait for a quiet machine")
    options = parser.parse_args()
    if not set(options.parts) <= {"reference", "sizes"}:
        parser.error("parts are reference and sizes")
    raw = {"machine": lab.machine(options.patience)}
    print(raw["machine"] + "\n")
    for part in options.parts:
        raw[part] = {"reference": reference, "sizes": sizes}[part](options)
        lab.keep(options.json, raw)
    print(lab.machine())


if __name__ == "__main__":
    sys.exit(main())
