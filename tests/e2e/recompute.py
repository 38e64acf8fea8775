#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A job for which three devices have enough memory as it is, and one has not: activations are computed again where they
do not fit, and nowhere else; the sha256 is that of a job that keeps all activations, resized and killed, both where the
planner chooses how it runs and where that is pinned."""
import json

import cluster
import corpus
from cluster import ENDLESS, check, check_nothing_lost, until

BATCH = 2048  # samples of a microbatch: their activations are much more than the state
AGAIN = ", activations computed again"


def make(c, steps, want=1, **more):
    return {"model": {"onnx": c.path("deep.onnx")},
            "data": {"train": {"path": c.path("train.npy"), "targets": c.path("train-labels.npy")}},
            "train": {"steps": steps, "globalBatch": 3 * BATCH, "microBatch": BATCH,
                      "optimizer": {"type": "adamw", "lr": 1.0e-4}},
            "devices": {"min": 1, "max": 3, "want": want}, "state": {"replicas": "2"}, **more}


def files(c):
    c.model("mlp", "deep", inputs=48, hidden=64, depth=24, classes=10)
    corpus.classes(c.folder, 200, (48,), 10)


def planned(c, devices, spec):
    """By number of devices: the candidates, by name."""
    report = c.json("plan", "-f", c.job_file("what-if", spec), "--devices", devices)
    return {plan["devices"]: {one["name"]: one for one in plan["candidates"]} for plan in report["plans"]}


def limit_for_three(c):
    """The limit that is just enough for three devices that keep all activations."""
    whole = planned(c, "1,3", make(c, 9))
    three = whole[3]["data parallel x3, 2 replicas of the state"]["memoryBytes"]
    check(three < whole[1]["data parallel x1, all of the state everywhere"]["memoryBytes"], f"{whole}")
    check(not any(AGAIN in name for plan in whole.values() for name in plan), f"{whole}")
    return {"limit": str(three)}


def resident(pid):
    with open(f"/proc/{pid}/status") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("VmRSS"))


def both_are_priced():
    with cluster.Cluster(devices=1) as c:
        files(c)
        limit = limit_for_three(c)
        found = planned(c, "1,3", make(c, 9, memory=limit))
        for devices, name in (1, "data parallel x1, all of the state everywhere"), \
                             (3, "data parallel x3, 2 replicas of the state"):
            kept, again = found[devices][name], found[devices][name + AGAIN]
            check(again["memoryBytes"] < kept["memoryBytes"] and again["computeMs"] > kept["computeMs"],
                  f"{kept} {again}")
            check((kept["verdict"] == "does not fit") == (devices == 1), f"{kept}")
            check((again["verdict"] == "chosen") == (devices == 1), f"{again}")
        chosen = [name for name, one in found[3].items() if one["verdict"] == "chosen"]
        check(len(chosen) == 1 and AGAIN not in chosen[0], f"{found[3]}")


def says(c, job, again):
    """The summary and the configuration of the job say whether activations are computed again; returns its status."""
    status = c.status(job)
    number = status["configuration"]
    check((AGAIN in status["plan"]["summary"]) == again, f"{status['plan']}")
    facts = [conf for conf in c.json("get", "configurations")["items"] if conf["number"] == number]
    check(len(facts) == 1 and facts[0].get("recomputes", False) == again, f"{facts}")
    return status


def resized_and_killed():
    with cluster.Cluster(devices=3) as c:
        files(c)
        limit = limit_for_three(c)
        for parallel in {"pipeline": 1}, {}:
            c.submit("job", make(c, ENDLESS, memory=limit, parallel=parallel))
            c.wait("job", "step=4")
            little = resident(says(c, "job", True)["devices"][0]["pid"])
            described = json.dumps(c.json("describe", "job"))
            check(AGAIN in described and "where memory asks for it" in described, described)
            check_nothing_lost(c.json("resize", "job", "--want", 3, "--wait", "--timeout", "60"), "grown")
            c.train_on("job", 3, 2)
            much = resident(says(c, "job", False)["devices"][0]["pid"])
            check_nothing_lost(c.json("resize", "job", "--want", 1, "--wait", "--timeout", "60"), "shrunk")
            c.train_on("job", 1, 2)
            after = resident(says(c, "job", True)["devices"][0]["pid"])
            if parallel:  # a stage of a pipeline keeps other amounts
                check(much - little > 5 << 20 and much - after > 5 << 20, f"resident: {little}, {much}, {after}")
            c.ctl("resize", "job", "--want", 3, "--wait")
            status = c.train_on("job", 3, 2)
            says(c, "job", False)
            c.kill("job", status["devices"][1])
            c.ctl("resize", "job", "--want", 2)
            until("two of them to go on", lambda: len(c.status("job")["devices"]) == 2 and
                  c.status("job")["step"] > status["step"] + 4)
            crash = [conf for conf in c.json("get", "configurations")["items"] if conf["cause"] == "crash"]
            check(crash and all(conf.get("recomputes") for conf in crash), f"{crash}")
            c.same_as_alone("job", make(c, ENDLESS, memory={"recompute": "never"}), f"{parallel}")


if __name__ == "__main__":
    cluster.main(both_are_priced, resized_and_killed)
