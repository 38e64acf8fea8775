#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Nodes with GPUs and without: kinds of devices, one numeric class a job, and the promise of one sha256.

The GPUs here are the host in their place (kernels/cuda/gpu_host.c): the operators of the CUDA backend, in
memory that nothing but its copies reaches.  A copy that is missing anywhere between data, links, checkpoints
and device shows as other bits.  RUBATO_TEST_GPUS names another module, of real ones, all ranks on the first.

usage: gpus.py [TEST...]
"""
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile

import cluster
import corpus
import delicate
import split
from cluster import BUILD, ENDLESS, check, check_nothing_lost, digest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../gpu"))
import libraries  # noqa: E402

REAL = "RUBATO_TEST_GPUS" in os.environ
MODULE = os.environ.get("RUBATO_TEST_GPUS") or os.path.join(BUILD, "tests/kernels/librubato-cuda-host.so")


@contextlib.contextmanager
def gpus(count, module=MODULE):
    before = dict(os.environ)
    os.environ |= {"RUBATO_CUDA_MODULE": module, "RUBATO_HOST_GPUS": str(count), "RUBATO_GPU_SHARES": str(count)}
    try:
        yield
    finally:
        os.environ.clear()
        os.environ |= before


def on(kind, spec, **more):
    """Data parallel, where nothing else is said."""
    spec["devices"] |= {"kind": kind, "max": 4}
    return {"parallel": {"pipeline": 1}} | spec | more


def same_as_alone(c, make, job="job", since=None):
    """Ends an endless `job` of make(steps, checkpoint=...) that was meddled with: its weights at some step are those
    of one that is left alone for as many steps on one device, or since the checkpoint of a step.  However fast or
    slow the devices are, nothing comes too late for it."""
    step = c.json("checkpoint", job, "--wait", "--timeout", "60")["step"]
    sha = digest(os.path.join(saved_in(c)["path"], f"step-{step:08}", "model.safetensors"))
    c.drop(job)
    spec = make(step, checkpoint=saved_in(c, path=c.path("since")) if since else {})
    spec["devices"]["want"] = 1
    seen = c.submit("alone", spec)
    check(seen["resumeStep"] == (since or 0), f"left alone from step {seen['resumeStep']} on")
    check(c.finish("alone") == sha, f"meddled with for {step} steps, and the bits differ")


def remember(c, job):
    """A checkpoint for same_as_alone(since=)."""
    step = c.json("checkpoint", job, "--wait", "--timeout", "60")["step"]
    name = f"step-{step:08}"
    shutil.copytree(os.path.join(saved_in(c)["path"], name), os.path.join(c.path("since"), name))
    return step


def saved_in(c, **more):
    return {"path": c.path("saved"), **more}


def table(text):
    """A line of tests/gpu/run's."""
    if REAL:
        print("TABLE   " + text, flush=True)


def kinds(c, job):
    return {device["kind"] for device in c.status(job)["devices"]}


def none_is_there(module, sentence):
    """What the log, `get devices` and `submit` say; and the job trains on cores."""
    with gpus(0, module), cluster.Cluster(devices=2) as c:
        delicate.models(c)
        listed = c.run("get", "devices")
        check("no GPU: " + sentence in listed.stderr, f"get devices says {listed.stderr}")
        check("cuda" not in listed.stdout, listed.stdout)
        with open(c.nodes[0].log) as log:
            check("no GPU: " + sentence in log.read(), "the log does not say why there is no GPU")
        refused = c.run("submit", "-f", c.job_file("gpu", on("cuda", delicate.gpt_spec(c, 5))))
        check(refused.returncode == 4 and "no GPU: " + sentence in refused.stderr,
              f"{refused.returncode}: {refused.stderr}")
        c.submit("any", on("any", delicate.gpt_spec(c, 5)))
        c.wait("any", "done")


def without_a_module():
    none_is_there("/nonexistent/librubato-cuda.so", "this build of Rubato has no CUDA module")


def without_a_gpu():
    none_is_there(MODULE, "the driver sees none")


def the_real_module():
    """Where it was built, it loads without a driver, and says that there is none."""
    module = os.path.join(BUILD, "librubato-cuda.so")
    if not os.path.exists(module) or os.path.exists("/dev/nvidiactl"):
        print("  not here: no module was built, or there is a GPU")
        return
    none_is_there(module, "the NVIDIA driver")


def kinds_are_kept_apart():
    with gpus(2), cluster.Cluster(devices=2) as c:
        delicate.models(c)
        rows = {f"{row['kind']}:{row['device']}": row for row in c.json("get", "devices")["items"]}
        check(set(rows) == {"cpu:0", "cpu:1", "cuda:2000", "cuda:2001"}, f"devices: {sorted(rows)}")
        check(rows["cuda:2000"]["numericClass"] != rows["cpu:0"]["numericClass"], "one class for all")
        for kind, expected in ("any", "cuda"), ("cpu", "cpu"):
            c.submit(kind, on(kind, delicate.gpt_spec(c, ENDLESS, 2)))
            c.train_on(kind, 2)
            check(kinds(c, kind) == {expected}, f"{kind} trains on {kinds(c, kind)}")
        node = rows["cpu:0"]["node"]
        done = c.run("grow", "any", 1, "--devices", f"{node}:0")
        check(done.returncode == 4 and "other bits" in done.stderr, f"{done.returncode}: {done.stderr}")
        for job in "any", "cpu":
            c.ctl("cancel", job)


def fixed_counts():
    with gpus(3), cluster.Cluster(devices=1) as c:
        for name, make in list(delicate.models(c).items())[-1 if REAL else 0:]:
            shas = {}
            for replicas, devices in ("all", 1), ("all", 2), ("all", 3), ("1", 3), ("2", 3):
                spec = on("cuda", make(c, 8, devices), state={"replicas": replicas})
                spec["devices"]["min"] = devices
                c.submit("job", spec)
                c.wait("job", "done")
                losses = [row["loss"] for row in c.metrics("job")]
                shas[f"{replicas} on {devices}"] = c.finish("job")
            check(len(set(shas.values())) == 1, f"{name}: {shas}")
            table(f"sha256 {shas['all on 1'][:16]}: {', '.join(shas)}")
            c.submit("cpu", on("cpu", make(c, 8)))
            c.wait("cpu", "done")
            far = max(abs(a - row["loss"]) for a, row in zip(losses, c.metrics("cpu")))
            # A graph for GPUs has attention in one node, so what is dropped out is not what a core drops.
            check(far < (2e-2 if name == "gpt" else 2e-3), f"{name}: losses differ by {far} from a core's")
            c.ctl("delete", "cpu")


def attention_in_one_node():
    """Without dropout it comes to what a core computes in parts."""
    with gpus(1), cluster.Cluster(devices=1) as c:
        delicate.models(c)
        c.model("gpt", layers=2, width=64, heads=2, seq=80)
        losses = {}
        for kind in "cuda", "cpu":
            spec = on(kind, delicate.gpt_spec(c, 8))
            spec["data"]["train"]["seqLen"] = 80
            c.submit(kind, spec)
            c.wait(kind, "done")
            losses[kind] = [row["loss"] for row in c.metrics(kind)]
        far = max(abs(a - b) for a, b in zip(losses["cuda"], losses["cpu"]))
        check(far < 2e-5, f"losses differ by {far} from a core's")


def in_bfloat16():
    """The same bits at any count, and losses near a core's in the same precision."""
    with gpus(3), cluster.Cluster(devices=1) as c:
        for name, make in delicate.models(c).items():
            shas, losses = set(), {}
            for kind, devices in ("cuda", 1), ("cuda", 3), ("cpu", 1):
                spec = on(kind, make(c, 8, devices))
                spec["train"] = spec["train"] | {"precision": "bf16"}
                c.submit("job", spec)
                c.wait("job", "done")
                losses[kind] = [row["loss"] for row in c.metrics("job")]
                shas |= {c.finish("job")} if kind == "cuda" else set()
                c.run("delete", "job")
            check(len(shas) == 1, f"{name}: {shas}")
            far = max(abs(a - b) for a, b in zip(losses["cuda"], losses["cpu"]))
            check(far < 2e-2, f"{name}: losses differ by {far} from a core's")


def without_what_is_fast():
    """Kernels that are launched one by one, and sums through the hosts, give the same bits; the log says so."""
    shas, direct = set(), not REAL or libraries.nccl_is_here()
    ways = [("", "", 0, "sums go from GPU to GPU" if direct else "sums go through the hosts: "),
            ("RUBATO_TAPES", "0", 2, "sums go"),
            ("RUBATO_SHELVES", "", 0, "sums go"),
            ("RUBATO_NCCL", "", 0, "sums go through the hosts: NCCL is not wanted")]
    for name, value, one, sums in ways:
        with gpus(2):
            os.environ |= {name: value} if name else {}
            with cluster.Cluster(devices=1) as c:
                delicate.models(c)
                for stages in 1, 2:
                    spec = on("cuda", delicate.gpt_spec(c, 8, 2, parallel={"pipeline": stages}))
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


def a_sick_gpu_is_left():
    """Without a step lost; nobody new comes to it; what is slow is said."""
    with gpus(2):
        os.environ["RUBATO_NVML"] = os.path.join(BUILD, "tests/daemon/libfake-nvml.so")
        with cluster.Cluster(devices=1) as c:
            told = os.environ["FAKE_NVML"] = c.path("nvml")
            delicate.models(c)

            def make(steps, **more):
                return on("cuda", delicate.gpt_spec(c, steps), **more)

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
            reason = cluster.until("a reason", lambda: c.status("job")["reason"])
            check("is sick" in reason, reason)
            same_as_alone(c, make)


def disturbed():
    """Grown, shrunk, killed, saved, resumed, fed: state goes through the host each time."""
    with gpus(3), cluster.Cluster(devices=1) as c:
        delicate.models(c)
        for replicas in "all", "2":
            def make(steps, **more):
                return on("cuda", delicate.gpt_spec(c, steps), state={"replicas": replicas}, **more)

            checkpoint = saved_in(c, every=100 if REAL else 10)
            c.submit("job", make(ENDLESS, checkpoint=checkpoint))
            for change in ("grow", 2), ("shrink", 1), ("grow", 1):
                receipt = c.json(change[0], "job", change[1], "--wait", "--timeout", "60")
                check_nothing_lost(receipt, f"{replicas} replicas")
            os.kill(c.train_on("job", 3, 3)["devices"][1]["pid"], signal.SIGKILL)
            c.train_on("job", 3, 3)
            c.ctl("checkpoint", "job", "--wait")
            c.drop("job")
            again = c.submit("job", make(ENDLESS, checkpoint=checkpoint))
            check(again["resumeStep"] > 0, "no checkpoint to go on from")
            c.train_on("job", 1, 3)
            same_as_alone(c, make)
            shutil.rmtree(checkpoint["path"])


def death_on_the_way(way, folder):
    """The environment of a worker that dies while state comes to it; nothing for a way that is only a way."""
    return {"RUBATO_FAULT": way, "RUBATO_FAULT_ONCE": folder + "/fired"} if way.startswith("worker.") else {}


def check_way(log, way, receipt):
    """State came as it should; a real machine may have a reason to have it otherwise, which is said."""
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


def armed_workers():
    """Were they built to die when told?"""
    return subprocess.run([os.path.join(BUILD, "rubato-worker"), "--faults"], capture_output=True).stdout


def state_between_gpus():
    """Newcomers take the state from the others' GPUs, or through the hosts where they are told to; whoever dies
    over it, the bits are the same."""
    faults = armed_workers()
    for replicas in "all", "2":
        for way in ["by shelves", "through the hosts"] + ["worker.feed:at=6", "worker.follow:at=6"] * bool(
                faults and replicas == "2" and not REAL):
            with tempfile.TemporaryDirectory() as folder, gpus(3):
                dies = death_on_the_way(way, folder)
                os.environ |= {"RUBATO_SHELVES": "" if way == "through the hosts" else "1"} | dies
                with cluster.Cluster(devices=1) as c:
                    delicate.models(c)

                    def make(steps, **more):
                        return on("cuda", delicate.gpt_spec(c, steps, 2), state={"replicas": replicas}, **more)

                    c.submit("job", make(ENDLESS, checkpoint=saved_in(c)))
                    c.train_on("job", 2)
                    receipt = c.json("grow", "job", 1, "--wait", "--timeout", "100")
                    check(os.path.exists(folder + "/fired.0") == bool(dies), f"{way}: did anybody die?")
                    check(dies or receipt["steps_lost"] == 0, f"{way}: {receipt}")
                    check_way(c.ctl("logs", "job"), way, receipt)
                    same_as_alone(c, make)


def sums_behind_a_death():
    """Those who are left make their circle out of the old one, or go on by the links; the bits are the same."""
    ways = [("1", "sums go from GPU to GPU again"), ("0", "through the hosts: this stand-in was told not to")]
    if REAL and not libraries.nccl_is_here():
        return table("sums behind a death: no NCCL here")
    if REAL:
        ways = ways[:1] if libraries.nccl_shrinks() else [("1", "through the hosts: this NCCL cannot shrink")]
    for shrinks, sentence in ways:
        with gpus(3):
            os.environ["RUBATO_HOST_SHRINKS"] = shrinks
            with cluster.Cluster(devices=1) as c:
                delicate.models(c)

                def make(steps, **more):
                    return on("cuda", delicate.gpt_spec(c, steps, 3), **more)

                c.submit("job", make(ENDLESS, checkpoint=saved_in(c)))
                os.kill(c.train_on("job", 3)["devices"][1]["pid"], signal.SIGKILL)
                cluster.until(sentence, lambda: c.ctl("logs", "job").count(sentence) == 2)
                same_as_alone(c, make)
                table("behind a death: " + sentence)


def stages():
    """A pipeline's sums, and weights where the state is in shards, go from GPU to GPU; whoever dies, the bits are those
    of one device."""
    for replicas in "all", "1", "2":
        with gpus(3), cluster.Cluster(devices=1) as c:
            delicate.models(c)

            def make(steps, **more):
                return on("cuda", delicate.gpt_spec(c, steps, 3), state={"replicas": replicas},
                          parallel={"pipeline": 2}, **more)

            c.submit("job", make(ENDLESS, checkpoint=saved_in(c)))
            devices = c.train_on("job", 3, 5)["devices"]
            check("sums go from GPU to GPU" in c.ctl("logs", "job"), f"{replicas} replicas: {c.ctl('logs', 'job')}")
            if replicas == "2":
                os.kill(devices[1]["pid"], signal.SIGKILL)
                cluster.until("sums from GPU to GPU again",
                              lambda: c.ctl("logs", "job").count("sums go from GPU to GPU again") == 2)
            same_as_alone(c, make)


def dies_between_stages():
    """In front of the sum of a circle, behind a microbatch, or when one peer has all of a message, which may be the word
    of a shelf, while others are in that sum or between stages."""
    if not armed_workers():
        return print("  not here: this build has no faults")
    for replicas, last in ("all", 0), ("2", 2):
        for point, rank, at in ("worker.reduce", last, 8), ("worker.computed", 1, 20), ("worker.frame", 0, 90):
            with tempfile.TemporaryDirectory() as folder, gpus(3):
                os.environ |= {"RUBATO_FAULT": f"{point}:rank={rank}:at={at}:do=kill", "RUBATO_FAULT_ONCE": folder + "/fired"}
                with cluster.Cluster(devices=1) as c:
                    delicate.models(c)

                    def make(steps, **more):
                        return on("cuda", delicate.gpt_spec(c, steps, 3), state={"replicas": replicas},
                                  parallel={"pipeline": 2}, **more)

                    c.submit("job", make(ENDLESS, checkpoint=saved_in(c)))
                    cluster.until(f"a death at {point}", lambda: os.path.exists(folder + "/fired.0"))
                    c.train_on("job", 3, 5)
                    same_as_alone(c, make)


def parts():
    """Filters that are split over GPUs sum in circles too: the bits are those of sums by links."""
    with gpus(4):
        shas = set()
        for nccl in None, "":
            os.environ |= {} if nccl is None else {"RUBATO_NCCL": nccl}
            with cluster.Cluster(devices=1) as c:
                c.model("mlp", inputs=48, hidden=64, depth=2, classes=10)
                for replicas in "1", "all", "2":
                    spec = on("cuda", split.spec_of(c, "mlp", (48,), 12, 2, 4, replicas))
                    c.submit("job", spec)
                    c.wait("job", "done")
                    said = "through the hosts" if nccl == "" else "from GPU to GPU"
                    check("sums go " + said in c.ctl("logs", "job"), f"{replicas} replicas: {c.ctl('logs', 'job')}")
                    shas.add(c.finish("job"))
        check(len(shas) == 1, f"the bits differ: {shas}")


def wide_stages():
    """What goes from stage to stage does not fit a link: whoever sums already sends the rest of it meanwhile."""
    with gpus(2), cluster.Cluster(devices=1) as c:
        c.model("mlp", inputs=8, hidden=64, depth=3, classes=64)
        features, targets = corpus.classes(c.folder, 12000, (8,), 64)
        shas = {}
        for devices in 1, 2:
            c.submit("job", {
                "model": {"onnx": "mlp.onnx"},
                "data": {"train": {"path": features, "targets": targets}},
                "train": {"steps": 4, "globalBatch": 12000, "microBatch": 6000,
                          "optimizer": {"type": "sgd", "lr": 0.01}},
                "devices": {"kind": "cuda", "min": devices, "max": 2, "want": devices},
                "parallel": {"pipeline": 2}})
            shas[devices] = c.finish("job", 60)
        check(shas[1] == shas[2], f"the bits differ: {shas}")


def laps():
    """Stages that update their own weights: those of a core, but for rounding, wherever the state is held."""
    with gpus(2), cluster.Cluster(devices=2) as c:
        c.model("gpt", layers=2, width=64, heads=2, seq=32)  # without dropout, which attention in one node draws alone

        def make(kind, schedule, **more):
            spec = on(kind, delicate.gpt_spec(c, 40, 2, parallel={"pipeline": 2, "schedule": schedule}), **more)
            spec["devices"] |= {"min": 2, "max": 2}
            del spec["train"]["microBatch"]
            return spec

        for schedule in "vanilla", "stashing", "2bw", "spectrain":
            found = {}
            for kind, replicas in ("cuda", "all"), ("cuda", "1"), ("cpu", "all"):
                c.submit("job", make(kind, schedule, state={"replicas": replicas}))
                c.wait("job", "done")
                losses = [row["loss"] for row in c.metrics("job")]
                found[kind, replicas] = c.finish("job"), losses
            check(found["cuda", "all"][0] == found["cuda", "1"][0], f"{schedule}: the bits differ")
            far = max(abs(a - b) for a, b in zip(found["cuda", "all"][1], found["cpu", "all"][1]))
            check(far < 5e-3, f"{schedule}: losses differ by {far} from a core's")


def profiled_and_planned():
    """A job of GPUs is timed on one of them, and how it runs is chosen by that."""
    with gpus(2), cluster.Cluster(devices=1) as c:
        delicate.models(c)

        def make(want):
            spec = on("cuda", delicate.gpt_spec(c, 8, want), state={"replicas": "1"}, parallel={})
            spec["devices"] |= {"min": want, "max": 2}
            return spec

        c.submit("job", make(1))
        alone = c.finish("job")
        c.submit("job", make(2))
        c.wait("job", "done")
        said = c.status("job")["plan"]
        check(said["expectedMs"] > 0 and "is expected" in (said["chosen"] or ""), f"not planned: {said}")
        seen = c.json("profile", "job")
        rows = {row["operator"]: row for row in seen["operators"]}
        check(seen["kind"] == "cuda" and seen["device"] and seen["numericClass"].startswith("cuda "), f"{seen}")
        check(rows["MatMul"]["flops"] > 0 and rows["MatMul"]["ms"] > 0 and "FusedAttention" in rows, f"{sorted(rows)}")
        check(abs(sum(row["ms"] for row in rows.values()) - seen["ms"]) < 1e-6 * seen["ms"], "rows do not add up")
        check(seen["peak"]["gflops"] > 0 and seen["peak"]["gbs"] > 0, f"{seen['peak']}")
        planned = c.json("plan", "job", "--devices", "1,2")
        check(planned["timedHere"] and planned["cluster"]["devices"] == 2, f"{planned['cluster']}")
        check([plan["candidates"][0]["verdict"] for plan in planned["plans"]] == ["chosen", "chosen"], f"{planned}")
        if not REAL:
            os.environ["RUBATO_HOST_GPUS"] = "0"
            for verb in "profile", "plan":
                refused = c.run(verb, "job")
                check(refused.returncode == 3 and "no GPU" in refused.stderr, f"{refused.returncode}: {refused.stderr}")
        check(c.finish("job") == alone, "the bits differ")


def main():
    tests = [without_a_module, the_real_module]
    if REAL:  # what is promised first; the machine's time may end before the list does
        tests = [fixed_counts, sums_behind_a_death, disturbed, state_between_gpus, without_what_is_fast,
                 attention_in_one_node, profiled_and_planned, in_bfloat16]
    elif os.path.exists(MODULE):
        tests += [kinds_are_kept_apart, profiled_and_planned, fixed_counts, attention_in_one_node, in_bfloat16,
                  disturbed, state_between_gpus, sums_behind_a_death, stages, dies_between_stages, wide_stages, parts, laps,
                  without_a_gpu, without_what_is_fast, a_sick_gpu_is_left]
    wanted = sys.argv[1:]
    cluster.main(*[test for test in tests if not wanted or test.__name__ in wanted], go_on=75 if REAL else 0)


if __name__ == "__main__":
    main()
