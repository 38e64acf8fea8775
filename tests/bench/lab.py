# SPDX-License-Identifier: Apache-2.0
"""What the benches share: the machine, the reference job, nodes that keep to a core, tables."""
import datetime
import glob
import json
import os
import re
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "e2e"))
import cluster  # noqa: E402
import corpus  # noqa: E402

LIBRARIES = "/usr/lib/x86_64-linux-gnu"
BLAS = os.path.join(LIBRARIES, "openblas-openmp")
MALLOC = os.path.join(LIBRARIES, "libtcmalloc_minimal.so.4")
ENDLESS = 1000000  # steps


# ---- The machine ------------------------------------------------------------------------------------

def busy():
    """Seconds that all cores together have been busy since the start."""
    with open("/proc/stat") as file:
        fields = [int(field) for field in file.readline().split()[1:9]]
    return (sum(fields) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK")


def others(seconds=2.0):
    """How many cores others keep busy, while nothing of ours runs."""
    before = busy()
    time.sleep(seconds)
    return (busy() - before) / seconds


def machine(patience=0):
    """A line on the machine and how quiet it is, after waiting for it at most `patience` seconds."""
    end = time.monotonic() + patience
    load = others()
    while load > 0.1 and time.monotonic() < end:
        load = others(5.0)
    with open("/proc/cpuinfo") as file:
        name = next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), "?")
    return (f"{name}, {os.cpu_count()} cores; others keep {load:.2f} cores busy, load "
            f"{os.getloadavg()[0]:.1f}; {time.strftime('%F %T')}")


def torch_environment():
    """PyTorch as it is fastest here: OpenMP OpenBLAS with kernels for this processor, tcmalloc, one thread.

    Variables of the shell for OpenBLAS do not count: some users set slow kernels everywhere, for the same bits."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OPENBLAS_")}
    environment |= {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1",
                    "GLOO_SOCKET_IFNAME": "lo", "TP_SOCKET_IFNAME": "lo"}
    for name, path in (("LD_LIBRARY_PATH", BLAS), ("LD_PRELOAD", MALLOC)):
        if os.path.exists(path):
            environment[name] = path
        else:
            print(f"PyTorch is faster with {path}", file=sys.stderr)
    with open("/proc/cpuinfo") as file:
        flags = next((line for line in file if line.startswith("flags")), "").split()
    if "avx512f" in flags:  # a processor newer than this OpenBLAS, which would take slow kernels
        environment["OPENBLAS_CORETYPE"] = "Cooperlake" if "avx512_bf16" in flags else "SkylakeX"
    return environment


# ---- Clusters ---------------------------------------------------------------------------------------

class Lab(cluster.Cluster):
    """A cluster with what measuring needs."""

    def rest(self, job, steps):
        """Let so many steps go by."""
        self.wait(job, f"step={self.status(job)['step'] + steps}")

    def ledger(self, job=None):
        """Every row that any node has kept, of steps done twice too; `metrics` shows the newer only.

        job: the job's id; without one there must be only one job."""
        rows = []
        for node in self.nodes:
            for path in glob.glob(os.path.join(node.state, "jobs", job or "*", "metrics")):
                with open(path) as file:
                    for line in file:
                        field = line.split()
                        if line.endswith("\n") and len(field) >= 8:
                            rows.append({"step": int(field[0]), "time": float(field[1]),
                                         "loss": float(field[2]), "step_ms": float(field[5]),
                                         "devices": int(field[6]), "configuration": int(field[7])})
        return rows


def times(path, pattern):
    """Unix ms of the lines of a log that match."""
    with open(path) as log:
        return [datetime.datetime.strptime(f"{line.split()[0][:-1]}+0000", "%Y-%m-%dT%H:%M:%S.%f%z").timestamp() * 1000
                for line in log if re.search(pattern, line)]


def control(c, number):
    """The ms that the recovery after a death itself took: from the later of the reaping and the last freeze until all
    survivors are in configuration `number`.  Before that the survivors finish computing what they have begun."""
    logs = glob.glob(c.path("local/jobs/*/logs/*"))
    reaped = times(c.nodes[0].log, "signal 9")[-1]
    entered = [time for log in logs for time in times(log, f"configuration {number}: rank")]
    frozen = [time for log in logs for time in times(log, "frozen at") if time > reaped - 1000]
    return max(entered) - max([reaped] + frozen)


def reference(c, want, micro=None, **more):
    """The reference GPT: 4 layers of width 256, 128 bytes, 16 samples a step, AdamW, 40 MB of state."""
    if not os.path.exists(c.path("gpt.onnx")):
        c.model("gpt")
        corpus.text(c.path("corpus.txt"))
    return {
        "model": {"onnx": "gpt.onnx"},
        "data": {"train": {"path": "corpus.txt", "format": "text", "seqLen": 128}},
        "train": {"steps": ENDLESS, "globalBatch": 16, "microBatch": micro,
                  "optimizer": {"type": "adamw", "lr": 3.0e-4, "betas": [0.9, 0.95], "weightDecay": 0.1}},
        "devices": {"min": 1, "max": 8, "want": want}, **more,
    }


def now():
    """Unix ms, as in the rows."""
    return time.time() * 1000


# ---- What comes out ---------------------------------------------------------------------------------

def show(value):
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
    return str(value)


def table(head, rows):
    print("| " + " | ".join(head) + " |\n" + "|---" * len(head) + "|")
    for row in rows:
        print("| " + " | ".join(show(cell) for cell in row) + " |")
    print(flush=True)


def keep(path, raw):
    with open(path, "w") as file:
        json.dump(raw, file, indent=1)
        file.write("\n")
    print(f"raw numbers: {path}", file=sys.stderr, flush=True)


def say(text):
    print(f"{time.strftime('%T')} {text}", file=sys.stderr, flush=True)
