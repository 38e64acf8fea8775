#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The pictures of docs/theses.md, from the numbers in docs/plots/data.

    plots.py                                    all pictures anew, nothing is computed or measured
    plots.py --compute build/tests/bench/bench-theses         the computed numbers anew, then all pictures; half a minute
    plots.py --take NAME FILE [--note TEXT]     numbers that a bench has kept (--json), then all pictures
    plots.py --check [BENCH]                    are docs/plots these pictures, and the quick computed numbers those of BENCH?

A file of numbers says which command made them, on which machine, when and with which version.
"""
import argparse
import json
import math
import os
import re
import subprocess
import sys
import time

import pictures

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
PLOTS = os.path.join(ROOT, "docs", "plots")
QUICK = ("balance", "pipeline")  # parts of bench-theses that take no time
CLOSE = 2e-3  # computed numbers are printed with four digits, and mathematics libraries differ


def path_of(name):
    return os.path.join(PLOTS, "data", name + ".json")


def read(name):
    with open(path_of(name)) as file:
        return json.load(file)["numbers"]


def keep(name, numbers, **about):
    """A row a line, so that a change of numbers is a change of a few lines."""
    with open(path_of(name), "w") as file:
        head = "".join(f" {json.dumps(key)}: {json.dumps(value)},\n" for key, value in about.items() if value)
        rows = ",\n".join("  " + json.dumps(row) for row in numbers)
        file.write(f'{{\n{head} "numbers": [\n{rows}\n ]\n}}\n')


def version():
    with open(os.path.join(ROOT, "meson.build")) as file:
        return re.search(r"version: '([^']+)'", file.read())[1]


# ---- Numbers ----------------------------------------------------------------------------------------

def compute(bench, parts):
    """The rows of bench-theses."""
    rows = []
    for part in parts:
        done = subprocess.run([bench, "--json", part], check=True, capture_output=True, text=True)
        rows += [json.loads(line) for line in done.stdout.splitlines()]
    return rows


def rounded(value):
    """To five digits; None for a run that diverged."""
    if isinstance(value, float):
        return float(f"{value:.5g}") if math.isfinite(value) else None
    return value


def of_pairs(raw):
    """links.py, auto.py: {"model mbit": ...}"""
    for key, one in raw.items():
        model, mbit = key.rsplit(" ", 1)
        yield {"model": model, "mbit": int(mbit)}, one


def take_links(raw):
    return [{**pair, "way": way, "ms": rounded(ms), "MB": rounded(sent)} for pair, one in of_pairs(raw)
            for way, (ms, sent, _) in one.items()]


def take_auto(raw):
    return [{**pair, "chosen": one["chosen"], "ms": {way: rounded(ms) for way, ms in one["ms"].items()},
             "expected": {way: rounded(ms) for way, ms in one["expected"].items()}} for pair, one in of_pairs(raw)]


def take_balance(raw):
    return [{"microbatches": row["microbatches"], "arm": row["arm"], "shares": list(map(int, row["shares"].split())),
             "ideal": rounded(row["ideal ms"]), "ms": rounded(row["step ms"]), "variation": float(row["variation"]),
             "slowed": row["slowed"]} for row in raw]


def take_planning(raw):
    return raw


def take_predict(raw):
    return [{key: rounded(row[key]) for key in ("case", "microbatches", "workers", "stepMs", "step", "error")} for row in raw]


def take_errors(raw):
    return [{"stages": int(key.split()[1]), "momentum": float(key.split()[2]), "pass": where, "ratio": rounded(ratio)}
            for key, ratios in raw.items() if key.startswith("errors") for where, ratio, _ in ratios]


def take_arms(raw):
    return [{"run": key, "losses": {rate: list(map(rounded, losses)) for rate, losses in runs.items()}}
            for key, runs in raw.items() if not key.startswith("errors")]


TAKE = {"links": take_links, "split-links": take_links, "spectrain-links": take_links, "auto": take_auto,
        "balance": take_balance, "planning": take_planning, "predict": take_predict, "errors": take_errors, "arms": take_arms}


# ---- Checks -----------------------------------------------------------------------------------------

def same(a, b):
    if a is None or b is None:
        return a is b
    if isinstance(a, float) or isinstance(b, float):
        return abs(a - b) <= CLOSE * max(abs(a), abs(b))
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    return a == b


def check(drawn, bench):
    """A line on each thing that is not as it should be."""
    bad = []
    for name, text in drawn.items():
        try:
            with open(os.path.join(PLOTS, name + ".svg")) as file:
                if file.read() != text:
                    bad.append(f"docs/plots/{name}.svg is not what plots.py draws")
        except FileNotFoundError:
            bad.append(f"docs/plots/{name}.svg is missing")
    with open(os.path.join(ROOT, "docs", "theses.md")) as file:
        shown = re.findall(r"!\[[^\]]+\]\(plots/([a-z-]+)\.svg\)", file.read())
    there = [name[:-4] for name in os.listdir(PLOTS) if name.endswith(".svg")]
    bad += [f"docs/plots/{name}.svg: drawn, kept or shown in docs/theses.md, and not all of them"
            for name in sorted(set(shown) ^ set(drawn) | set(there) ^ set(drawn))]
    if bench:
        now = compute(bench, QUICK)
        tables = {row["table"] for row in now}
        kept = [row for row in read("computed") if row["table"] in tables]
        if len(now) != len(kept):
            bad.append(f"docs/plots/data/computed.json has {len(kept)} rows where bench-theses gives {len(now)}")
        bad += [f"computed.json has {one}, bench-theses gives {other}" for one, other in zip(kept, now)
                if not same(one, other)]
    return bad


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compute", metavar="BENCH")
    parser.add_argument("--take", nargs=2, metavar=("NAME", "FILE"))
    parser.add_argument("--command", help="which made FILE")
    parser.add_argument("--machine")
    parser.add_argument("--date", default=time.strftime("%F"))
    parser.add_argument("--version", default=version())
    parser.add_argument("--note")
    parser.add_argument("--check", nargs="?", const="", metavar="BENCH")
    options = parser.parse_args()
    if options.compute:
        keep("computed", compute(options.compute, (*QUICK, "hypergraph")), command="bench-theses --json",
             version=version())
    if options.take:
        name, path = options.take
        with open(path) as file:
            text = file.read()
        try:
            raw = json.loads(text)
        except json.JSONDecodeError:  # bench-planning gives a row a line
            raw = list(map(json.loads, text.splitlines()))
        numbers = TAKE[name](raw)
        keep(name, numbers, command=options.command, machine=options.machine, date=options.date, version=options.version,
             note=options.note)
    drawn = {name: draw(read).text() for name, draw in pictures.ALL.items()}
    if options.check is not None:
        bad = check(drawn, options.check)
        print("\n".join(bad) or f"{len(drawn)} pictures")
        return bool(bad)
    for name, text in drawn.items():
        with open(os.path.join(PLOTS, name + ".svg"), "w") as file:
            file.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
