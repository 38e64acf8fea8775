#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Every change has a receipt, which follows from `metrics --lost`: it is computed here a second time, and compared.

A job grows, shrinks, loses a worker, is drained off a node, paused, and falls back to a checkpoint.
"""
import concurrent.futures
import contextlib
import os
import signal
import statistics
import sys

import cluster
import corpus
from cluster import ENDLESS, check, until

STEPS_AFTER, ROWS_BEFORE = 10, 200


def spec(c, steps, want, **more):
    return {**corpus.text_job(c, want, 4, steps=steps, globalBatch=12, microBatch=2), **more}


def model(c):
    c.model("gpt", layers=1, width=64, heads=2, seq=32, dropout=0.1)


def derive(rows, number, asked):
    """The receipt of configuration `number`, from the rows of all commits; None if it never committed."""
    rows = sorted(rows, key=lambda row: (row["time"], row["configuration"], row["step"]))
    new = [i for i, row in enumerate(rows) if row["configuration"] == number][:STEPS_AFTER]
    if not new:
        return None
    first, end = new[0], new[-1] + 1
    begin = max([i for i in range(end) if rows[i]["time"] < asked], default=0)
    stall = 0
    gaps = [(rows[i]["time"] - rows[i - 1]["time"], -i) for i in range(begin + 1, end) if rows[i]["time"] >= asked]
    if gaps:
        gap, at = max(gaps)
        looked_at = rows[max(0, begin + 1 - ROWS_BEFORE):end]
        stall = max(0, gap - statistics.median(row["step_ms"] for row in looked_at
                                               if row["configuration"] == rows[-at]["configuration"]))
    highest = max([row["step"] for row in rows[:first]], default=-1)
    lost = max(0, highest - rows[first]["step"] + 1)
    repeated, seen = 0, set()
    for row in rows[:end]:
        if row["configuration"] == number and row["step"] in seen:
            repeated += row["samples"]
        seen.add(row["step"])
    low, high = (pick(row["step"] for row in rows[begin:end]) for pick in (min, max))
    held = set()
    for row in rows:
        if low <= row["step"] <= high:
            held |= set(range(int(row["first_sample"]), int(row["first_sample"] + row["samples"])))
    return {
        "from": rows[begin]["devices"] if rows[begin]["time"] < asked else 0,
        "to": rows[first]["devices"],
        "configuration": number,
        "step": rows[first]["step"],
        "stall_ms": stall,
        "ready_ms": max(0, rows[first]["time"] - asked),
        "steps_lost": lost,
        "samples_repeated": repeated,
        "samples_skipped": max(held) - min(held) + 1 - len(held),
    }


def change(c):
    """Does to a job what can happen to it, once each; returns the causes that must be in its receipts."""
    c.wait("gpt", "devices=1")
    c.json("grow", "gpt", 2, "--wait")
    c.json("shrink", "gpt", 1, "--wait")
    c.kill("gpt", c.train_on("gpt", 2)["devices"][1])
    c.train_on("gpt", 2)
    c.ctl("node", "drain", "n0", "--wait")
    c.train_on("gpt", 2)
    c.ctl("node", "uncordon", "n0")
    c.ctl("pause", "gpt")
    until("the pause", lambda: c.status("gpt")["phase"] == "Paused")
    check(c.status("gpt")["throughput"] == 0, "a paused job has no throughput")
    c.ctl("resume", "gpt")
    c.train_on("gpt", 2)
    step = c.json("checkpoint", "gpt", "--wait")["step"]
    c.wait("gpt", f"step={step + 20}")
    highest = c.train_on("gpt", 2)["step"]
    for pid in c.processes("rubato-worker"):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    until("the restart", lambda: c.events("restarted", "gpt"))
    c.wait("gpt", f"step={highest + 30}")
    c.train_on("gpt", 2)
    return {"start", "grow", "shrink", "crash", "drain", "resume"}


def every_change():
    with cluster.Cluster(nodes=2, devices=2, paced=True) as c:
        model(c)
        c.submit("gpt", spec(c, ENDLESS, 1))
        causes = change(c)
        c.ctl("pause", "gpt")
        until("the pause", lambda: c.status("gpt")["phase"] == "Paused")
        settled = until("all receipts", lambda: (lambda items: items if all(
            item["state"] not in ("ACTIVE", "RETIRED") or "receipt" in item or item.get("reason") for item in items
        ) else None)(c.json("get", "configurations", "gpt")["items"]), 60)

        all_rows = c.json("metrics", "gpt", "--lost")
        rows = c.json("metrics", "gpt")
        check([row["step"] for row in rows] == list(range(1, len(rows) + 1)), "metrics has each step once")
        check(len(all_rows) > len(rows), "metrics --lost has the steps that were done again too")
        seen, lost = set(), 0
        for item in settled:
            if item["state"] not in ("ACTIVE", "RETIRED"):
                continue
            mine = derive(all_rows, item["number"], item["asked"])
            if mine is None:
                check(item.get("reason") and "receipt" not in item, f"a receipt without a step: {item}")
                continue
            if not any(row["configuration"] == item["from"] and row["time"] < item["asked"] for row in all_rows):
                del mine["from"]  # that set had committed nothing yet: no row says how many devices it had
            receipt = item["receipt"]
            seen.add(item["cause"])
            lost += receipt["steps_lost"]
            for key, value in mine.items():
                check(abs(receipt[key] - value) < 1e-6, f"{key} is {receipt[key]}, and by metrics {value}: {item}")
            check(receipt["bytes_moved"] > 0 or item["cause"] != "grow", f"a newcomer without a state: {item}")
            check(receipt["steps_lost"] == 0 or item["cause"] in ("resume", "start"), f"{item}")
        check(causes <= seen, f"receipts of {seen}, not of {causes - seen}")
        check(lost >= 20, f"{lost} steps were lost with the fall back to a checkpoint")
        table = c.ctl("get", "configurations", "gpt")
        check(all(title in table for title in ("CAUSE", "STALL", "LOST", "REPEATED", "SKIPPED")), table)
        c.same_as_alone("gpt", spec(c, ENDLESS, 1), "every change")
        # Another job of the same name has events of its own.
        c.submit("gpt", spec(c, 40, 1))
        c.wait("gpt", "done")
        kinds = c.kinds("gpt")
        check(kinds.count("submitted") == 1 and "restarted" not in kinds, f"{kinds}")


def asked_long_ago():
    """A job gets a device tens of thousands of steps after it was asked for, and has done more than a receipt can look
    at."""
    with cluster.Cluster(devices=2) as c:
        c.model("mlp", inputs=8, hidden=16, depth=1, classes=4)
        features, targets = corpus.classes(c.folder, 64, (8,), 4)
        tiny = {"model": {"onnx": "mlp.onnx"}, "data": {"train": {"path": features, "targets": targets}},
                "train": {"steps": ENDLESS, "globalBatch": 4, "microBatch": 2}, "devices": {"min": 1, "max": 2, "want": 1}}
        c.submit("long", tiny)
        c.submit("other", {**tiny, "devices": {"min": 1, "max": 1, "want": 1}})
        c.wait("other", "devices=1")
        c.wait("long", "step=100000", 900)
        asked = c.status("long")["step"]
        c.ctl("resize", "long", "--want", 2)
        c.wait("long", f"step={asked + 60000}", 900)
        c.ctl("cancel", "other", "--now")
        c.wait("long", "devices=2")
        grown = c.json("get", "configurations", "long")["items"][-1]["number"]
        receipt = until("the receipt", lambda: next((item["receipt"] for item in c.json("get", "configurations", "long")["items"]
                                                     if item["number"] == grown and "receipt" in item), None))
        check(receipt["to"] == 2 and receipt["step"] > asked + 60000 and receipt["steps_lost"] == 0, f"{receipt}")


def resized_before_it_ran():
    """A resize of a job that waits for devices is answered when the job starts."""
    with cluster.Cluster(devices=2) as c:
        model(c)
        node = c.json("get", "nodes")["items"][0]["name"]
        c.ctl("node", "cordon", node)
        c.submit("gpt", spec(c, ENDLESS, 1))
        with concurrent.futures.ThreadPoolExecutor() as pool:
            receipt = pool.submit(c.json, "resize", "gpt", "--want", 2, "--wait", "--timeout", 60)
            until("the wish", lambda: c.status("gpt")["want"] == 2)
            c.ctl("node", "uncordon", node)
            receipt = receipt.result()
        check(receipt["from"] == 0 and receipt["to"] == 2 and receipt["step"] == 1, f"{receipt}")


def resized_to_what_it_has():
    """A death has left as many devices as a resize then asks for: no configuration has to be made, and the user does
    not wait for one."""
    with cluster.Cluster(devices=3, paced=True) as c:
        model(c)
        c.submit("gpt", spec(c, ENDLESS, 3, parallel={"pipeline": 1, "balance": "even"}))
        for _ in range(2):  # a job leaves a device alone for longer after the second death on it
            c.kill("gpt", c.train_on("gpt", 3)["devices"][2])
        c.wait("gpt", "devices=2")
        receipt = c.json("resize", "gpt", "--want", 2, "--wait", "--timeout", 30)
        check(receipt["from"] == receipt["to"] == 2 and receipt["ready_ms"] == 0, f"not a receipt of no change: {receipt}")


cluster.main(*([asked_long_ago] if sys.argv[1:] == ["--long"] else
               [every_change, resized_before_it_ran, resized_to_what_it_has]))
