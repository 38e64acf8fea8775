#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""tests/gpu/run, rehearsed: the host stands in for a GPU, everything is tiny, and there is no PyTorch, no NCCL and
no compute-sanitizer.  What it measures is tried on a real machine once; that it comes to its table is tried here.

usage: run_test.py BUILD MODULE      MODULE: of the host in a GPU's place"""
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
import time

RUN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "run")
PROGRAMS = ("rubatod", "rubatoctl", "rubato-worker", "tests/kernels/kernels_cuda_test",
            "tests/kernels/kernels_shelf_test", "tests/gpu/gpu-times")
build, host_module = map(os.path.abspath, sys.argv[1:])


def check(condition, text):
    if not condition:
        print("FAILED " + text)
        sys.exit(1)


def pack(folder, module):
    """A kit as tests/gpu/pack makes it, of links."""
    os.makedirs(folder)
    with tarfile.open(os.path.join(folder, "gpu-kit.tar.gz"), "w:gz") as kit:
        for name, path in [(name, os.path.join(build, name)) for name in PROGRAMS] + [("librubato-cuda.so", module)]:
            entry = tarfile.TarInfo("./" + name)
            entry.type, entry.linkname = tarfile.SYMTYPE, path
            kit.addfile(entry)


class Machine:
    """A folder with a kit and what else there is."""

    def __init__(self, folder, module=host_module, smi=False):
        self.folder, self.kit = folder, os.path.join(folder, "build")
        pack(self.kit, module)
        self.place("stub/torch.py", 'raise ImportError("no PyTorch here")\n')
        if smi:
            self.place("bin/nvidia-smi", "#!/bin/sh\necho 'GPU 0: of a test'\n")

    def place(self, name, text):
        path = os.path.join(self.folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            file.write(text)
        os.chmod(path, 0o755)

    def run(self, steps=".", seconds=300, code=0):
        environment = os.environ | {
            "PATH": f"{self.folder}/bin:{os.environ['PATH']}", "PYTHONPATH": self.folder + "/stub", "RUBATO_NCCL": "",
            "RUBATO_GPU_TINY": "1", "RUBATO_GPU_SECONDS": str(seconds), "RUBATO_RESNET": "/nonexistent",
            "OUT": self.folder + "/out", "TMPDIR": self.folder}
        done = subprocess.run([RUN, self.kit, steps], env=environment, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True)
        print(done.stdout)
        check(done.returncode == code, f"exit {done.returncode}, not {code}")
        check(not [name for name in os.listdir(self.folder) if name.startswith("gpu.")], "a folder is left behind")
        return done.stdout

    def table(self):
        with open(self.folder + "/out/gpu-logs/table") as file:
            return file.read().splitlines()


def word(table, name):
    """The word after the row's name."""
    rows = [line for line in table if line.startswith(name)]
    check(rows, f"no row '{name}'")
    return rows[0][34:].split()[0]


def everything_fast(folder):
    machine = Machine(folder)
    start = time.monotonic()
    machine.run("libraries|operators|GPT-2 124M|ResNet|plan of|communicator|two ranks|shelves|small|sanitizer")
    table = machine.table()
    for name in ("libraries", "operators against", "GPT-2 124M", "GPT-2 124M by PyTorch", "ResNet-50",
                 "ResNet-50 by PyTorch", "profile and plan", "a communicator of", "resizes, two ranks",
                 "shelves between", "a small GPT", "a small GPT by PyTorch", "GPT-2 124M in float32"):
        check(word(table, name) == "ok", f"{name} is {word(table, name)}")
    check(word(table, "under compute-sanitizer") == "skipped", "there is a compute-sanitizer?")
    text = "\n".join(table)
    for part in ("NCCL is empty", "cuDNN ", "NVML ", "none: no compute-sanitizer",
                 "PyTorch gpt bf16-compiled: ImportError: no PyTorch here",
                 "Rubato gpt bf16 ", "Rubato small bf16 ", "no model came along", "floors: products", "of which the sums",
                 "cold start: a process", "cold start: module", "cold start: context", "cold start: cublas",
                 "cold start: first product", "loading the model", "a step planned", "grow   ", "shrink   ",
                 "a NaN in a bias", "state through the hosts", "no communicator: "):
        check(part in text, f"the table has no '{part}'")
    print(f"everything fast: {time.monotonic() - start:.1f} s")


def cut_and_skipped(folder):
    """The time ends within a step: no process of that step is left, and the other steps are skipped."""
    machine = Machine(folder)
    machine.run("one sha256|state and sums|shelves", seconds=14)
    table = machine.table()
    check(word(table, "one sha256") == "cut", "it was not cut")
    check(word(table, "state and sums") == word(table, "shelves") == "skipped", "what had no time was not skipped")
    check("left over" not in "\n".join(table), "processes were left over")
    with tarfile.open(folder + "/out/gpu-logs/daemons.tar.gz") as logs:
        check(any(name.endswith("local.log") for name in logs.getnames()), f"no log is kept: {logs.getnames()}")


def no_gpu(folder):
    told = Machine(folder + "/none", "/nonexistent").run(code=77)
    check("no GPU here: " in told, "it does not say that there is no GPU")


def a_gpu_that_is_not_seen(folder):
    machine = Machine(folder + "/blind", os.path.join(build, "rubatoctl"), smi=True)
    told = machine.run(code=1)
    check("our module does not see it" in told and "no GPU: " in told, "it does not say why")
    check("libc.so" in told, "it does not say what the module is linked with")


signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(143))
for test in everything_fast, cut_and_skipped, no_gpu, a_gpu_that_is_not_seen:
    with tempfile.TemporaryDirectory(prefix="run.") as scratch:
        started = time.monotonic()
        test(os.path.join(scratch, "m"))
        print(f"ok {test.__name__} ({time.monotonic() - started:.1f} s)", flush=True)
