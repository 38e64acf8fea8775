#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The time of training steps on one GPU, where that time goes, and PyTorch beside it, where it is installed.

usage: speed.py gpt | gpt32 | small | resnet | torch-gpt | torch-gpt32 | torch-small | torch-resnet |
       communicator | resizes | plan

Prints lines of the table of tests/gpu/run.  gpt: GPT-2 124M at sequence 1024, steps of two microbatches of 8, in
bfloat16, gpt32 in float32.  small: a GPT whose steps mostly launch kernels.  resnet: ResNet-50 on 64 x 64 pixels, steps
of two microbatches of 128; from RUBATO_RESNET, which tests/gpu/resnet.py has made.  torch-...: the same models and
steps by PyTorch, and Rubato's figures beside them, from RUBATO_RESULTS, where earlier calls left them.  resizes:
changes of devices of a GPT, with two ranks on the one GPU.  plan: what `profile` and `plan` say of a GPT on one GPU,
beside its measured step.  RUBATO_GPU_TINY: everything of a size for machines without a GPU."""
import json
import os
import re
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
FOUND = os.environ.get("LD_LIBRARY_PATH")  # as it was before cluster puts our libraries' folders in front of it
sys.path.insert(0, os.path.join(HERE, "../e2e"))
import cluster  # noqa: E402
import libraries  # noqa: E402

TINY = bool(os.environ.get("RUBATO_GPU_TINY"))
RESULTS = os.environ.get("RUBATO_RESULTS", "/dev/null")
TIMES = os.path.join(cluster.BUILD, "tests/gpu/gpu-times")
PEAK = 989e12  # FLOP/s of an H100 or H200 in bfloat16, without sparsity

# As tests/gpu/times.c has them.
GPTS = {"gpt": {"sequence": 1024, "vocabulary": 50257, "layers": 12, "heads": 12, "width": 768, "batch": 8},
        "small": {"sequence": 256, "vocabulary": 256, "layers": 6, "heads": 6, "width": 384, "batch": 4}}


def flops_a_token(of):
    """Forward and backward; attention as if nothing were masked, as is the custom."""
    weights = of["layers"] * 12 * of["width"] ** 2 + of["vocabulary"] * of["width"]
    return 6 * weights + 12 * of["layers"] * of["width"] * of["sequence"]


def keep(name, **values):
    """Keeps figures for lines that are printed beside them later."""
    with open(RESULTS, "a") as file:
        file.write(json.dumps({"name": name, **values}) + "\n")


def stream(command, seen, **more):
    """Prints a command's lines as they come, so that a command that is ended in the middle has said what it knew;
    returns (exit status, last line)."""
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **more)
    last = ""
    try:
        for line in child.stdout:
            print(line, end="", flush=True)
            last = line.strip() or last
            seen(line)
    except BaseException:
        child.kill()
        raise
    return child.wait(), last


def times(case, precision):
    """Prints the program's own lines; returns samples a second, and the GB at most until the steps were done."""
    peak, found = libraries.Peak(), {}

    def seen(line):
        match = re.search(r"samples, ([\d.]+) a second", line)
        if match:
            found["rate"], found["peak"] = float(match.group(1)), peak.gigabytes()
            found["text"] = peak.text()

    start = time.monotonic()
    subprocess.run([TIMES], stderr=subprocess.DEVNULL)
    print(f"TABLE   cold start: a process that does nothing {1000 * (time.monotonic() - start):.0f} ms", flush=True)
    code, last = stream([TIMES, "tiny" if TINY else case, precision], seen)
    if code or "rate" not in found:
        print(f"TABLE   gpu-times ended with {code}: {last[:140]}", flush=True)
        sys.exit(1)
    return found


def gpt(name, precision):
    of = GPTS[name]
    print(f"TABLE Rubato {name} {precision}", flush=True)
    found = times(name, precision)
    rate = found["rate"] * of["sequence"]
    flops = rate * flops_a_token(of)
    print(f"TABLE {'Rubato ' + name + ' ' + precision:34} {rate:8.0f} tokens/s, {flops / 1e12:.1f} TFLOP/s, MFU "
          f"{100 * flops / PEAK:.1f} % of {PEAK / 1e12:.0f} TFLOP/s, {found['text']}", flush=True)
    keep(f"{name} {precision}", rate=rate, mfu=flops / PEAK, peak=found["peak"])


def resnet():
    model = os.environ.get("RUBATO_RESNET")
    if not model or not os.path.exists(model):
        print("TABLE Rubato ResNet-50: no model came along (tests/gpu/resnet.py makes it, with PyTorch and onnx)")
        return
    print("TABLE Rubato resnet bf16", flush=True)
    found = times("resnet=" + model, "bf16")
    print(f"TABLE {'Rubato resnet bf16':34} {found['rate']:8.0f} images/s, {found['text']}", flush=True)
    keep("resnet bf16", rate=found["rate"], peak=found["peak"])


def torch(name, precision, *ways):
    """Runs each way in a process of its own, so that its peak is its own; a way that fails is a line of the table."""
    environment = {key: value for key, value in os.environ.items() if key != "LD_LIBRARY_PATH"}
    environment |= {"LD_LIBRARY_PATH": FOUND} if FOUND else {}
    of = GPTS.get(name, {})
    for way in ways:
        peak, found = libraries.Peak(), {}

        def seen(line):
            if line.startswith("RESULT "):
                found.update(json.loads(line[7:]), text=peak.text(), peak=peak.gigabytes())

        code, last = stream(["python3", os.path.join(HERE, "pytorch.py"), name, way, json.dumps(of)], seen,
                            env=environment)
        if code or not found:
            print(f"TABLE PyTorch {name} {way}: {last[:120]}", flush=True)
            continue
        flops = found["rate"] * flops_a_token(of) if of else 0
        print(f"TABLE {'PyTorch ' + name + ' ' + way:34} {found['rate']:8.0f} {'tokens' if of else 'images'}/s, "
              + (f"{flops / 1e12:.1f} TFLOP/s, MFU {100 * flops / PEAK:.1f} %, " if of else "")
              + f"{found['text']}, {found['allocated']:.1f} GB of it tensors'", flush=True)
        print_ratio(f"{name} {precision}", way, found, flops / PEAK)


def print_ratio(title, way, theirs, mfu):
    """Prints the ratio of Rubato's figures to theirs."""
    rows = {}
    if os.path.exists(RESULTS):
        with open(RESULTS) as file:
            rows = {row["name"]: row for row in map(json.loads, file)}
    ours = rows.get(title)
    if not ours:
        print(f"TABLE Rubato : PyTorch, {title}: none, Rubato has no figure", flush=True)
        return
    text = f"speed {ours['rate'] / theirs['rate']:.2f}"
    if mfu:
        text += f" (MFU {100 * ours['mfu']:.1f} : {100 * mfu:.1f} %)"
    if ours["peak"] and theirs["peak"]:
        text += f", memory {ours['peak'] / theirs['peak']:.2f} ({ours['peak']:.1f} : {theirs['peak']:.1f} GB)"
    print(f"TABLE {'Rubato : PyTorch, ' + title:34} {way}: {text}", flush=True)


def communicator():
    code, last = stream([TIMES, "communicator", "2"], lambda line: None,
                        env=os.environ | {"RUBATO_GPU_SHARES": "2", "RUBATO_HOST_GPUS": "2"})
    if code:
        print(f"TABLE   no communicator: {last[:140]}", flush=True)
    sys.exit(1 if code and libraries.nccl_is_here() else 0)


def small_gpt(c, steps, **more):
    """A job of one or two ranks."""
    c.model("gpt", **({"layers": 1, "width": 32, "heads": 2, "seq": 32} if TINY else
                      {"layers": 6, "width": 512, "heads": 8, "seq": 256}))
    with open(c.path("corpus.txt"), "w") as file:
        for i in range(40000):
            file.write(f"{i * i % 9973} is what {i} squared leaves. ")
    return {
        "model": {"onnx": "gpt.onnx"},
        "data": {"train": {"path": "corpus.txt", "format": "text", "seqLen": 32 if TINY else 256}},
        "train": {"steps": steps, "globalBatch": 32, "microBatch": 8, "precision": "bf16"},
        "devices": {"min": 1, "max": 2, "want": 1, "kind": "cuda"}, **more}


def resizes(shelves="1"):
    os.environ |= {"RUBATO_GPU_SHARES": "2", "RUBATO_HOST_GPUS": "2", "RUBATO_SHELVES": shelves}
    if not shelves:
        print("TABLE the same, state through the hosts")
    with cluster.Cluster(devices=0) as c:
        c.submit("gpt", small_gpt(c, 1000000))
        c.train_on("gpt", 1, 20)
        for verb in "grow", "shrink", "grow":
            receipt = c.json(verb, "gpt", 1, "--wait", "--timeout", "60")
            c.train_on("gpt", 1 if verb == "shrink" else 2, 10)
            took = sorted(row["step_ms"] for row in c.metrics("gpt")[-9:])[4]
            print(f"TABLE {verb:34} stall {receipt['stall_ms']:.1f} ms, ready in {receipt['ready_ms']:.0f} ms, "
                  f"lost {receipt['steps_lost']}, repeated {receipt['samples_repeated']}, skipped "
                  f"{receipt['samples_skipped']}; {receipt['bytes_moved'] / 1e6:.0f} MB moved; then a step "
                  f"{took:.1f} ms", flush=True)
        for line in c.ctl("logs", "gpt").splitlines():
            if "sums go" in line or "through the hosts" in line:
                print("TABLE   " + line.split("configuration", 1)[-1][:110], flush=True)
        c.ctl("cancel", "gpt")
    if shelves:
        resizes("")


def plan():
    with cluster.Cluster(devices=0) as c:
        c.submit("gpt", small_gpt(c, 60, state={"replicas": "1"}))
        c.wait("gpt", "done")
        took = sorted(row["step_ms"] for row in c.metrics("gpt")[-40:])[20]
        seen = c.json("profile", "gpt")
        print(f"TABLE peak {seen['peak']['gflops'] / 1e3:.1f} TFLOP/s, {seen['peak']['gbs']:.0f} GB/s; a microbatch "
              f"{seen['ms']:.3f} ms, {seen['gflops'] / 1e3:.1f} TFLOP/s", flush=True)
        for row in seen["operators"][:6]:
            print(f"TABLE   {row['operator']:24} {row['calls']:4} {row['ms']:9.3f} ms, {row['gflops'] / 1e3:.1f} "
                  f"TFLOP/s, {row['gbs']:.0f} GB/s", flush=True)
        one = c.json("plan", "gpt", "--devices", "1")["plans"][0]["candidates"][0]
        print(f"TABLE a step planned {one['stepMs']:.2f} ms, {one['memoryBytes'] / 2**20:.0f} MiB; taken {took:.2f} ms",
              flush=True)
        cluster.check(TINY or 0.3 < one["stepMs"] / took < 3, "the plan is far from what a step took")


def main():
    cluster.unwind_when_told_to_end()
    {"gpt": lambda: gpt("gpt", "bf16"), "gpt32": lambda: gpt("gpt", "fp32"), "small": lambda: gpt("small", "bf16"),
     "resnet": resnet, "torch-gpt": lambda: torch("gpt", "bf16", "bf16-compiled", "bf16"),
     "torch-gpt32": lambda: torch("gpt", "fp32", "fp32"),
     "torch-small": lambda: torch("small", "bf16", "bf16", "bf16-compiled"),
     "torch-resnet": lambda: torch("resnet", "bf16", "bf16", "bf16-compiled"),
     "communicator": communicator, "resizes": resizes,
     "plan": plan}[sys.argv[1]]()


main()
