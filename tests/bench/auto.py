#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What the planner chooses, beside the same job pinned to data parallelism and to a pipeline: Markdown on stdout.

usage: auto.py [--models gpt,mlp,cnn,deep] [--mbit 0,1000,200,50] [--workers N] [--state auto|1] [--rounds N]
               [--steps N] [--json FILE]     (as root)

Workers (2), each on a core and in a network namespace of its own (links.py).  How the state is held is left to the
planner too, or it has one replica.  In each round all ways train one after the other, in an order that rotates; a way's
step is the median (--quantile) of all of its steps.  "over the quickest pin": the job that was left to the planner.
That job runs the plan of one of the pins, so on a machine that others use "the chosen plan's pin over it" says more.
The expected step is the planner's, for the way that it chose and for the next best; the error is expected over
measured, less 1.
"""
import argparse
import re
import statistics
import sys
import time

import lab
import links
from cluster import Failure, check, until

WARM = 4  # steps that do not count
SECONDS = 4  # for each way, where steps are long
LEAST = 5  # steps
REST = 5  # seconds, until links are measured while nothing else starts


def pins(options):
    """By name, the ways that a job file can pin: stages, and where the state may be in shards, its replicas."""
    states = [options.state] if options.state != "auto" else ["all", "2"] if options.workers > 2 else ["all"]
    stages = [1, 2, options.workers] if options.workers > 2 else [1, 2]
    return {name_of(n, state): {"parallel": {"pipeline": n}, "state": {"replicas": state}}
            for n in stages for state in states}


def name_of(stages, state):
    way = f"pipeline of {stages}" if stages > 1 else "data parallel"
    return way if state == "all" else f"{way}, {state} replica{'s' if state != '1' else ''}"


def spec(c, model, ways):
    """Microbatches are few, so that no way has it easy."""
    if model == "gpt":
        made = lab.reference(c, c.count)
        made["train"]["steps"] = lab.ENDLESS
    else:
        shape, batch, micro, settings = {
            "mlp": ((784,), 128, 16, {}),
            "deep": ((784,), 64, 8, {"depth": 8, "hidden": 512}),
            "cnn": ((3, 32, 32), 64, 8, {}),
        }[model]
        name = f"{model}-train"
        lab.corpus.classes(c.folder, 2048, shape, 10, name=name)
        c.model("cnn" if model == "cnn" else "mlp", model, **settings)
        made = {"model": {"onnx": f"{model}.onnx"},
                "data": {"train": {"path": f"{name}.npy", "targets": f"{name}-labels.npy"}},
                "train": {"steps": lab.ENDLESS, "globalBatch": batch, "microBatch": micro,
                          "optimizer": {"type": "sgd", "lr": 1.0e-4, "momentum": 0.9}}}
    made["devices"] = {"min": c.count, "max": c.count, "want": c.count}
    return {**made, **ways}


def run(c, model, ways, options):
    """(ms of each step, what the planner says of the configuration)"""
    c.submit("job", spec(c, model, ways))
    c.wait("job", f"step={WARM}", 300)
    begun, first = time.monotonic(), c.status("job")["step"]
    while True:
        time.sleep(0.1)
        done = c.status("job")["step"] - first
        if done >= options.steps or (done >= LEAST and time.monotonic() - begun > SECONDS):
            break
    plan = c.status("job")["plan"]
    took = [row["step_ms"] for row in c.metrics("job") if row["step"] > first]
    c.drop("job")
    return took, plan


def kind_of(plan):
    """The way that a summary names, such as "pipeline of 2 stages x4: 1 1 1 1, 1F1B, 8 microbatches, 2 replicas of each
    block"."""
    stages = re.search(r"pipeline of (\d+)", plan["summary"])
    state = re.search(r"(\d) replica", plan["summary"])
    return name_of(int(stages[1]) if stages else 1, state[1] if state else "all")


def quantile(values, part):
    return sorted(values)[min(len(values) - 1, int(part * len(values)))]


def expected(plan):
    """The planner's ms a step by way; empty where it expects none."""
    if plan["expectedMs"] is None:
        return {}
    said = {kind_of(plan): plan["expectedMs"]}
    other = re.search(r"(?:the next best|hardly quicker), (.*): ([0-9.e+]+) ms", plan["chosen"])
    if other:
        said[kind_of({"summary": other[1]})] = float(other[2])
    return said


def pair(c, model, options):
    """Measured steps by way, how much slower the planner's choice is, and the expected steps."""
    ways, rounds, plans = pins(options), [], []
    left = {} if options.state == "auto" else {"state": {"replicas": options.state}}
    for i in range(options.rounds):
        order = ["auto", *ways]
        order = order[i % len(order):] + order[:i % len(order)]
        got = {way: run(c, model, ways.get(way, left), options) for way in order}
        rounds.append({way: took for way, (took, _) in got.items()})
        plans.append(got["auto"][1])
    ms = {way: quantile([took for one in rounds for took in one[way]], options.quantile) for way in ["auto", *ways]}
    best = min(ms[way] for way in ways)
    kinds = [kind_of(plan) for plan in plans]
    each = [ms[kind] / best - 1 for kind in kinds if kind in ms]  # by the pin that has the chosen plan
    said = {way: statistics.median(values) for way in ways
            if (values := [expected(plan)[way] for plan in plans if way in expected(plan)])}
    return {"rounds": rounds, "ms": ms, "slower": ms["auto"] / best - 1, "chosen": kinds,
            "lost": max(each) if each else ms["auto"] / best - 1, "expected": said, "why": plans[-1]["chosen"]}


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("usage: ")[1].split("\n")[0])
    parser.add_argument("--models", type=lambda text: text.split(","), default=["gpt", "mlp", "cnn", "deep"])
    parser.add_argument("--mbit", type=lambda text: [int(word) for word in text.split(",")],
                        default=[0, 1000, 200, 50])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--state", choices=["auto", "1"], default="auto")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--quantile", type=float, default=0.5, help="of the steps; less on a busy machine")
    parser.add_argument("--json", default="bench-auto.json")
    parser.add_argument("--patience", type=int, default=0, help="seconds to wait for a quiet machine")
    options = parser.parse_args()
    print(lab.machine(options.patience) + "\n", flush=True)
    found, rows, errors = {}, [], []
    for mbit in options.mbit:
        with links.Linked(options.workers, mbit) as c:
            until("the links to be measured",
                  lambda: all(node.get("networkBandwidth") for node in c.json("get", "nodes")["items"]))
            time.sleep(REST)
            for model in options.models:
                lab.say(f"{model} at {mbit or 'unlimited'} Mbit/s")
                one = found[f"{model} {mbit}"] = pair(c, model, options)
                wrong = {way: one["expected"][way] / one["ms"][way] - 1 for way in one["expected"]}
                errors += wrong.values()
                lab.say(f"  {one['chosen']}, {100 * one['slower']:+.1f} %, by plan {100 * one['lost']:+.1f} %; "
                        f"{one['ms']}; {one['why']}")
                rows.append([model, mbit or "unlimited", *(one["ms"][way] for way in pins(options)),
                             "; ".join(sorted(set(one["chosen"]))), one["ms"]["auto"], f"{100 * one['slower']:+.1f} %",
                             f"{100 * one['lost']:+.1f} %",
                             "; ".join(f"{way} {100 * off:+.0f} %" for way, off in wrong.items())])
                lab.keep(options.json, found)
    lab.table(["model", "Mbit/s", *(f"{way}, ms" for way in pins(options)), "chosen", "ms", "over the quickest pin",
               "the chosen plan's pin over it", "error of the expected step"], rows)
    errors = sorted(abs(error) for error in errors)
    if errors:
        print(f"\nexpected steps: median error {100 * statistics.median(errors):.1f} %, largest {100 * errors[-1]:.1f} %; "
              f"{sum(error <= 0.15 for error in errors)} of {len(errors)} within 15 %")
    print(lab.machine())
    worst = max(one["lost"] for one in found.values())
    check(worst <= 0.05, f"what was chosen is {100 * worst:.1f} % slower than the quickest pin")


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failure as failure:
        sys.exit(f"auto.py: {failure}")
