#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Nodes with GPUs and without: what users are told where there is none, kinds of devices, one numeric class a job, and
a sick GPU.  The host stands in for GPUs (gpus.py)."""
import os

import cluster
import gpus
from cluster import BUILD, ENDLESS, check
from gpus import MODULE, on, same_as_alone, saved_in


def kinds(c, job):
    return {device["kind"] for device in c.status(job)["devices"]}


def none_is_there(module, sentence):
    """The log, `get devices` and `submit` say why there is no GPU; a job of any kind trains on cores."""
    with gpus.gpus(0, module), cluster.Cluster(devices=2) as c:
        gpus.models(c)
        listed = c.run("get", "devices")
        check("no GPU: " + sentence in listed.stderr, f"get devices says {listed.stderr}")
        check("cuda" not in listed.stdout, listed.stdout)
        with open(c.nodes[0].log) as log:
            check("no GPU: " + sentence in log.read(), "the log does not say why there is no GPU")
        refused = c.run("submit", "-f", c.job_file("gpu", on("cuda", gpus.gpt_spec(c, 5))))
        check(refused.returncode == 4 and "no GPU: " + sentence in refused.stderr,
              f"{refused.returncode}: {refused.stderr}")
        c.submit("any", on("any", gpus.gpt_spec(c, 5)))
        c.wait("any", "done")


def without_a_module():
    none_is_there("/nonexistent/librubato-cuda.so", "this build of Rubato has no CUDA module")


def without_a_gpu():
    none_is_there(MODULE, "the driver sees none")


def the_real_module():
    """The CUDA module, where it was built, loads without a driver, and says that there is none."""
    module = os.path.join(BUILD, "librubato-cuda.so")
    if not os.path.exists(module) or os.path.exists("/dev/nvidiactl"):
        print("  not here: no module was built, or there is a GPU")
        return
    none_is_there(module, "the NVIDIA driver")


def kinds_are_kept_apart():
    with gpus.gpus(2), cluster.Cluster(devices=2) as c:
        gpus.models(c)
        rows = {f"{row['kind']}:{row['device']}": row for row in c.json("get", "devices")["items"]}
        check(set(rows) == {"cpu:0", "cpu:1", "cuda:2000", "cuda:2001"}, f"devices: {sorted(rows)}")
        check(rows["cuda:2000"]["numericClass"] != rows["cpu:0"]["numericClass"], "one class for all")
        for kind, expected in ("any", "cuda"), ("cpu", "cpu"):
            c.submit(kind, on(kind, gpus.gpt_spec(c, ENDLESS, 2)))
            c.train_on(kind, 2)
            check(kinds(c, kind) == {expected}, f"{kind} trains on {kinds(c, kind)}")
        node = rows["cpu:0"]["node"]
        done = c.run("grow", "any", 1, "--devices", f"{node}:0")
        check(done.returncode == 4 and "other bits" in done.stderr, f"{done.returncode}: {done.stderr}")
        for job in "any", "cpu":
            c.ctl("cancel", job)


def a_sick_gpu_is_left():
    """The job leaves a sick GPU without losing a step, and no newcomer is placed on it; a slow GPU is reported."""
    with gpus.gpus(2):
        os.environ["RUBATO_NVML"] = os.path.join(BUILD, "tests/daemon/libfake-nvml.so")
        with cluster.Cluster(devices=1) as c:
            told = os.environ["FAKE_NVML"] = c.path("nvml")
            gpus.models(c)

            def make(steps, **more):
                return on("cuda", gpus.gpt_spec(c, steps), **more)

            def tell(text):
                with open(told + ".new", "w") as file:
                    file.write(text)
                os.rename(told + ".new", told)

            def row(device):
                return next(r for r in c.json("get", "devices")["items"] if r["device"] == device)

            tell("")
            c.nodes[0].stop()
            c.nodes[0].start()
            c.submit("job", make(ENDLESS, checkpoint=saved_in(c)))
            sick = c.train_on("job", 1)["devices"][0]["device"]
            tell(f"0000:{sick - 2000:02x}:00.0 xid 79\n0000:{2001 - sick:02x}:00.0 clocks 64\n")
            other = 4001 - sick
            cluster.until("the sick GPU to be left", lambda: {d["device"] for d in c.status("job")["devices"]} == {other})
            check(row(sick)["sick"].startswith("Xid 79") and row(other)["slow"] == "it is too hot", f"{row(sick)}, {row(other)}")
            check("Xid 79" in c.ctl("get", "devices"), "the table of devices")
            c.ctl("grow", "job", 1)
            cluster.until("the reason why it cannot", lambda: "is sick" in (c.status("job")["reason"] or ""))
            same_as_alone(c, make)


if __name__ == "__main__":
    if os.path.exists(MODULE):
        gpus.main(without_a_module, the_real_module, kinds_are_kept_apart, without_a_gpu, a_sick_gpu_is_left)
    cluster.main(without_a_module, the_real_module)
