# SPDX-License-Identifier: Apache-2.0
"""GPUs for a test's cluster, and what tests of them share.

The GPUs here are the host in their place (kernels/cuda/gpu_host.c): the operators of the CUDA backend, in
memory that nothing but its copies reaches.  A copy that is missing anywhere between data, links, checkpoints
and device shows as other bits.  RUBATO_TEST_GPUS names another module, of real ones, all ranks on the first:
tests/gpu/run says which tests are for those.
"""
import contextlib
import os
import shutil
import subprocess
import sys

import cluster
import delicate
from cluster import BUILD, check, digest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../gpu"))
import libraries  # noqa: E402, F401 (whose users import it from here)

REAL = "RUBATO_TEST_GPUS" in os.environ
MODULE = os.environ.get("RUBATO_TEST_GPUS") or os.path.join(BUILD, "tests/kernels/librubato-cuda-host.so")
WIDTH, SEQ = (64, 32) if REAL else (32, 16)
STEPS = 8 if REAL else 5  # of what is not disturbed


@contextlib.contextmanager
def gpus(count, module=MODULE):
    before = dict(os.environ)
    os.environ |= {"RUBATO_CUDA_MODULE": module, "RUBATO_HOST_GPUS": str(count), "RUBATO_GPU_SHARES": str(count)}
    try:
        yield
    finally:
        os.environ.clear()
        os.environ |= before


def models(c):
    """delicate.models; where each element takes its time, and speed is not the point, the GPT is a small one."""
    return delicate.models(c, WIDTH, SEQ) | {"gpt": gpt_spec}


def gpt_spec(c, steps, want=1, **more):
    return delicate.gpt_spec(c, steps, want, SEQ, **more)


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


def armed_workers():
    """Were they built to die when told?"""
    return subprocess.run([os.path.join(BUILD, "rubato-worker"), "--faults"], capture_output=True).stdout


def table(text):
    """A line of tests/gpu/run's."""
    if REAL:
        print("TABLE   " + text, flush=True)


def main(*tests):
    """Those that are named on the command line, or all; none where there is no module."""
    wanted = sys.argv[1:]
    if REAL or os.path.exists(MODULE):
        cluster.main(*[test for test in tests if not wanted or test.__name__ in wanted], go_on=75 if REAL else 0)
