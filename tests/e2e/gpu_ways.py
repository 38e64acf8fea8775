#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The ways that sums and state go between GPUs (gpus.py says which): each gives the same bits, and the log says
which."""
import os
import re
import tempfile

import cluster
import gpus
from cluster import ENDLESS, check
from gpus import REAL, STEPS, armed_workers, libraries, on, same_as_alone, saved_in, table


def death_on_the_way(way, folder):
    """The environment in which a worker dies while state is on its way; nothing where `way` is no fault."""
    return {"RUBATO_FAULT": way, "RUBATO_FAULT_ONCE": folder + "/fired"} if way.startswith("worker.") else {}


def check_way(log, way, receipt):
    """State came by the way it should; a real machine may have a reason to use another, which the log gives."""
    refused = re.search("state (?:comes from|goes to) rank .* through the hosts: "
                        "(.*(?:taken over|cannot reach|not supported|not permitted).*)", log)
    if REAL and way == "by shelves" and refused:
        table("no shelves here: " + refused.group(1)[:100])
        return
    hosts = way == "through the hosts"
    check(("bytes came from GPU to GPU" in log) != hosts, f"{way}: {log}")
    check(("through the hosts: shelves are not wanted" in log) == hosts, f"{way}: {log}")
    if not way.startswith("worker."):
        table(f"{'state ' + way:32} {receipt['bytes_moved']} bytes, ready in {receipt['ready_ms']:.0f} ms")


def state_between_gpus():
    """Newcomers take the state from the others' GPUs, or through the hosts where they are told to; whichever worker
    dies meanwhile, the bits are the same."""
    faults = armed_workers()
    for replicas in "all", "2":
        for way in ["by shelves", "through the hosts"] + ["worker.feed:at=6", "worker.follow:at=6"] * bool(
                faults and replicas == "2" and not REAL):
            with tempfile.TemporaryDirectory() as folder, gpus.gpus(3):
                dies = death_on_the_way(way, folder)
                os.environ |= {"RUBATO_SHELVES": "" if way == "through the hosts" else "1"} | dies
                with cluster.Cluster(devices=1) as c:
                    gpus.models(c)

                    def make(steps, **more):
                        return on("cuda", gpus.gpt_spec(c, steps, 2), state={"replicas": replicas}, **more)

                    c.submit("job", make(ENDLESS, checkpoint=saved_in(c)))
                    c.train_on("job", 2)
                    receipt = c.json("grow", "job", 1, "--wait", "--timeout", "100")
                    check(os.path.exists(folder + "/fired.0") == bool(dies), f"{way}: did anybody die?")
                    check(dies or receipt["steps_lost"] == 0, f"{way}: {receipt}")
                    check_way(c.ctl("logs", "job"), way, receipt)
                    same_as_alone(c, make)


def without_what_is_fast():
    """Kernels that are launched one by one, and sums through the hosts, give the same bits; the log says so."""
    shas, direct = set(), not REAL or libraries.nccl_is_here()
    ways = [("", "", 0, "sums go from GPU to GPU" if direct else "sums go through the hosts: "),
            ("RUBATO_TAPES", "0", 2, "sums go"),
            ("RUBATO_SHELVES", "", 0, "sums go"),
            ("RUBATO_NCCL", "", 0, "sums go through the hosts: NCCL is not wanted")]
    for name, value, one, sums in ways:
        with gpus.gpus(2):
            os.environ |= {name: value} if name else {}
            with cluster.Cluster(devices=1) as c:
                gpus.models(c)
                for stages in 1, 2:
                    spec = on("cuda", gpus.gpt_spec(c, STEPS, 2, parallel={"pipeline": stages}))
                    spec["devices"]["min"] = 2
                    c.submit("job", spec)
                    c.wait("job", "done")
                    log = c.ctl("logs", "job")
                    said = log.count("kernels are launched one by one: ")
                    check(said == one, f"{name}, {stages} stages: said {said} times")
                    check(log.count(sums) == 2, f"{name}, {stages} stages: {log}")
                    crosses = log.count("what crosses ")
                    check(crosses == (2 if stages > 1 else 0), f"{name}, {stages} stages: {log}")
                    check(REAL or log.count(" through the hosts: shelves are not wanted" if name == "RUBATO_SHELVES" else
                                            "comes from GPU to GPU") == crosses, f"{name}, {stages} stages: {log}")
                    table("sums go " + re.search("sums go (.*)", log).group(1)[:110])
                    shas.add(c.finish("job"))
    check(len(shas) == 1, f"{shas}")


if __name__ == "__main__":
    gpus.main(state_between_gpus, without_what_is_fast)
