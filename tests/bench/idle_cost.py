#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What being elastic costs while nothing happens: Markdown on stdout, raw numbers in a file.

usage: idle_cost.py [parts] [scaling] [replicas] [short] [--models gpt,mlp,cnn] [--rounds N] [--steps N] [--json FILE] ...

parts      the fixed-point sums and the vote as fractions of a step, for 1, 2 and 4 workers (tests/bench/parts.c:
           processes without a rubatod, worker i on core i mod cores)
scaling    twice the batch on two workers against one worker, through rubatod: one job alone; two jobs of one worker
           each at the same time, which is what the machine itself costs; one job on two workers; in turn, in rounds
replicas   steps with state.replicas 2 and all against 1, on 2 and 4 workers, in turn
short      steps that take less than a millisecond, by the clock on the wall and by their own, and PyTorch's

Needs `ninja -C build tests/bench/bench-parts`.  RUBATO_BUILD names another build folder.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time

import lab
from cluster import BUILD, check

MODELS = ["gpt", "mlp", "cnn"]
BATCH = {"gpt": 16, "mlp": 128, "cnn": 64}
SHAPES = {"mlp": (784,), "cnn": (3, 32, 32)}
WARM = 5  # steps of a job that do not count
SHORT_SECONDS = 3  # for which steps of less than a millisecond are counted


def part(value, whole):
    return f"{lab.show(value)} ({100 * value / whole:.2g} %)"


# ---- Parts of a step --------------------------------------------------------------------------------

def parts(options):
    found = {}
    for model in options.models:
        for workers in (1, 2, 4):
            lab.say(f"parts of {model} on {workers}")
            done = subprocess.run([os.path.join(BUILD, "tests/bench/bench-parts"), model, str(options.microbatches),
                                   str(workers), str(options.steps)], capture_output=True, text=True)
            check(not done.returncode, f"bench-parts: {done.stderr}")
            found[f"{model} {workers}"] = [json.loads(line) for line in done.stdout.splitlines()]
    names = ["compute", "add", "reduce", "vote", "update"]
    for clock, title in ((0, "on the core"), (1, "by the clock, waiting for others in it")):
        print(f"### Parts of a step, {title}\n\nms, and in brackets of the step; {options.microbatches} microbatches, "
              f"{options.steps} steps, means over workers of medians.\n")
        rows = []
        for name, ranks in found.items():
            mean = {which: statistics.mean(rank[which][clock] for rank in ranks) for which in ["step", *names]}
            rows.append([*name.split(), mean["step"], *(part(mean[which], mean["step"]) for which in names)])
        lab.table(["model", "workers", "step", "compute", "fixed-point adds", "reduce", "vote", "update"], rows)
    return found


# ---- Through rubatod --------------------------------------------------------------------------------

def spec(c, model, batch, micro, want, steps, **more):
    if model == "gpt":
        out = lab.reference(c, want, micro, **more)
    else:
        if not os.path.exists(c.path(f"{model}.onnx")):
            c.model(model)
            lab.corpus.classes(c.folder, 1024, SHAPES[model], 10, name=model)
        out = {"model": {"onnx": f"{model}.onnx"},
               "data": {"train": {"path": f"{model}.npy", "targets": f"{model}-labels.npy"}},
               "train": {"microBatch": micro, "optimizer": {"type": "sgd", "lr": 1.0e-4, "momentum": 0.9}},
               "devices": {"min": 1, "max": 8, "want": want}, **more}
    out["train"].update({"steps": steps, "globalBatch": batch})
    out["devices"]["min"] = want
    return out


def run(c, jobs):
    """Train these jobs at the same time; the median step of each."""
    for name, what in jobs.items():
        c.submit(name, what)
    took = []
    for name in jobs:
        c.wait(name, "done", 3600)
        took.append(statistics.median(row["step_ms"] for row in c.metrics(name)[WARM:]))
        c.ctl("delete", name)
    return took


def scaling(options):
    found = {}
    with lab.Lab(devices=2) as c:
        for model in options.models:
            batch = BATCH[model]
            steps = WARM + int(options.steps * {"gpt": 1, "mlp": 10, "cnn": 4}[model])
            for micro in (batch, batch // 8):
                one = spec(c, model, batch, micro, 1, steps)
                two = spec(c, model, 2 * batch, micro, 2, steps)
                cells = {"alone": [], "beside": [], "two": []}
                for i in range(options.rounds):
                    lab.say(f"scaling of {model}, microbatches of {micro}: round {i + 1} of {options.rounds}")
                    cells["alone"] += run(c, {"one": one})
                    cells["beside"].append(statistics.mean(run(c, {"one": one, "other": one})))
                    cells["two"] += run(c, {"two": two})
                found[f"{model} {micro}"] = cells
    print(f"### Twice the batch on two cores\n\nms a step, medians of {options.rounds} rounds in turn; the cost of "
          "data parallelism is against one worker alone, and against two jobs that know nothing of each other.\n")
    rows = []
    for name, cells in found.items():
        alone, beside, two = (statistics.median(cells[which]) for which in ("alone", "beside", "two"))
        ratios = [[100 * (b / a - 1) for a, b in zip(cells[which], cells["two"])] for which in ("alone", "beside")]
        rows.append([*name.split(), alone, beside, two, *(f"{statistics.median(each):+.1f} % ({min(each):+.1f} to "
                                                          f"{max(each):+.1f})" for each in ratios)])
    lab.table(["model", "microbatch", "one worker", "two jobs at once", "two workers", "cost against one worker",
               "cost against two jobs"], rows)
    return found


def replicas(options):
    found = {}
    with lab.Lab(devices=4) as c:
        for model in options.models:
            for workers in (2, 4):
                cells = {"1": [], "2": [], "all": []}
                for i in range(options.rounds):
                    lab.say(f"replicas of {model} on {workers}: round {i + 1} of {options.rounds}")
                    for kind, times in cells.items():
                        what = spec(c, model, BATCH[model], BATCH[model] // 8, workers, WARM + options.steps,
                                    state={"replicas": kind}, parallel={"pipeline": 1})
                        try:
                            times += run(c, {"job": what})
                        except lab.cluster.Failure as failure:
                            check("replicas" in str(failure), str(failure))  # this build has no such plan
                found[f"{model} {workers}"] = cells
    print(f"### Replicas\n\nms a step, medians of {options.rounds} rounds in turn; {lab.os.cpu_count()} cores.\n")
    rows = []
    for name, cells in found.items():
        one = statistics.median(cells["1"]) if cells["1"] else None
        rows.append([*name.split(), one, *(part_over(cells[kind], one) for kind in ("2", "all"))])
    lab.table(["model", "workers", "1 replica", "2 replicas", "all"], rows)
    return found


TORCH = """
import sys, time, torch
torch.set_num_threads(1)
hidden, steps = map(int, sys.argv[1:])
net = torch.nn.Sequential(torch.nn.Linear(784, hidden), torch.nn.ReLU(), torch.nn.Linear(hidden, 10))
optimizer = torch.optim.SGD(net.parameters(), lr=1e-4, momentum=0.9)
x, y = torch.randn(2048, 784), torch.randint(0, 10, (2048,))
for step in range(2 * steps):
    if step == steps:
        started = time.monotonic()
    picked = torch.arange(8) + 8 * step % 2048
    optimizer.zero_grad(set_to_none=True)
    torch.nn.functional.cross_entropy(net(x[picked]), y[picked]).backward()
    optimizer.step()
print((time.monotonic() - started) * 1e6 / steps)
"""


def short_steps(c, hidden, workers, steps):
    """us a step: by the clock on the wall, and as the rows have it."""
    c.submit("short", {"model": {"onnx": c.model("mlp", name=f"mlp{hidden}", hidden=hidden, depth=1)},
                       "data": {"train": {"path": "short.npy", "targets": "short-labels.npy"}},
                       "train": {"steps": lab.ENDLESS, "globalBatch": 8, "microBatch": 8 // workers,
                                 "optimizer": {"type": "sgd", "lr": 1.0e-4, "momentum": 0.9}},
                       "devices": {"min": workers, "max": workers, "want": workers}})
    c.wait("short", f"step={steps}", 600)
    time.sleep(SHORT_SECONDS)
    c.ctl("cancel", "short")
    rows = [row for row in c.metrics("short") if row["step"] > steps + 1000]  # no call asks for its status any more
    c.ctl("delete", "short")
    return ((rows[-1]["time"] - rows[0]["time"]) * 1e3 / (len(rows) - 1),
            1e3 * statistics.median(row["step_ms"] for row in rows))


def short(options):
    found, steps = {}, 50 * options.steps
    with lab.Lab(nodes=2, devices=1, pinned=True) as c:
        lab.corpus.classes(c.folder, 2048, (784,), 10, name="short")
        for hidden in (32, 256):
            cells = {"torch": [], 1: [], 2: []}
            for i in range(options.rounds):
                lab.say(f"short steps, {hidden} hidden: round {i + 1} of {options.rounds}")
                done = subprocess.run(["taskset", "-c", "0", "/usr/bin/python3", "-c", TORCH, str(hidden), str(steps)],
                                      capture_output=True, text=True, env=lab.torch_environment())
                check(not done.returncode, f"PyTorch: {done.stderr}")
                cells["torch"].append(float(done.stdout))
                for workers in (1, 2):
                    cells[workers].append(short_steps(c, hidden, workers, steps))
            found[f"{hidden}"] = cells
    print(f"### Short steps\n\nAn MLP 784-hidden-10, batch 8, SGD with momentum; us a step, in brackets by its own clock; "
          f"medians of {options.rounds} rounds in turn.\n")
    rows = []
    for hidden, cells in found.items():
        ours = ["{} ({})".format(*(lab.show(statistics.median(each)) for each in zip(*cells[n]))) for n in (1, 2)]
        rows.append([hidden, statistics.median(cells["torch"]), *ours])
    lab.table(["hidden", "PyTorch, one core", "one worker", "two workers"], rows)
    return found


def part_over(times, one):
    if not times:
        return None
    found = statistics.median(times)
    return f"{lab.show(found)} ({100 * (found / one - 1):+.1f} %)" if one else found


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("usage: ")[1].split("\n")[0])
    parser.add_argument("kinds", nargs="*", default=["parts", "scaling", "replicas"])
    parser.add_argument("--models", type=lambda text: text.split(","), default=MODELS)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--microbatches", type=int, default=8, help="of a step, for parts")
    parser.add_argument("--json", default="bench-idle.json")
    parser.add_argument("--patience", type=int, default=0, help="seconds to wait for a quiet machine")
    options = parser.parse_args()
    doing = {"parts": parts, "scaling": scaling, "replicas": replicas, "short": short}
    if not set(options.kinds) <= set(doing):
        parser.error(f"kinds are {', '.join(doing)}")
    raw = {"machine": lab.machine(options.patience)}
    print(raw["machine"] + "\n")
    for kind in options.kinds:
        raw[kind] = doing[kind](options)
        lab.keep(options.json, raw)
    print(lab.machine())


if __name__ == "__main__":
    sys.exit(main())
