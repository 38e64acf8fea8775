# SPDX-License-Identifier: Apache-2.0
"""GPUs for a test's cluster, and what tests of them share.

The host stands in for the GPUs here (kernels/cuda/gpu_host.c): the operators of the CUDA backend, in memory that only
its copies reach.  A copy that is missing anywhere between data, links, checkpoints and device shows as other bits.
RUBATO_TEST_GPUS names another module, for real GPUs, with all ranks on the first: tests/gpu/run says which tests are
for real GPUs.
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
STEPS = 8 if REAL else 5  # of a job that is not disturbed


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
    """delicate.models; with a small GPT where the host computes, element by element, and speed is not the point."""
    return delicate.models(c, WIDTH, SEQ) | {"gpt": gpt_spec}


def gpt_spec(c, steps, want=1, **more):
    return delicate.gpt_spec(c, steps, want, SEQ, **more)


def on(kind, spec, **more):
    """The spec on devices of this kind; data parallel, unless it says otherwise."""
    spec["devices"] |= {"kind": kind, "max": 4}
    return {"parallel": {"pipeline": 1}} | spec | more


def same_as_alone(c, make, job="job", since=None):
    """Ends an endless `job` of make(steps, checkpoint=...) that was meddled with: its weights at some step are those of
    a job that is left alone up to that step on one device, from the start or from the checkpoint of step `since`.
    However fast or slow the devices are, no change comes after the job's end."""
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
    """Were the workers built with fault points?"""
    return subprocess.run([os.path.join(BUILD, "rubato-worker"), "--faults"], capture_output=True).stdout


def table(text):
    """Prints a line of the table of tests/gpu/run."""
    if REAL:
        print("TABLE   " + text, flush=True)


def main(*tests):
    """Runs the tests that the command line names, or all; none where there is no module."""
    wanted = sys.argv[1:]
    if REAL or os.path.exists(MODULE):
        cluster.main(*[test for test in tests if not wanted or test.__name__ in wanted], go_on=75 if REAL else 0)
