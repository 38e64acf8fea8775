#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The public ONNX backend tests, through `rubatoctl model test`: backend_test.py RUBATOCTL

None may give a wrong answer or crash; how many pass is pinned, so that a lower number is seen."""
import json
import os
import subprocess
import sys

DATA = "/usr/share/libonnx-testdata/data"
LEAST = {"node": 419, "pytorch-converted": 2, "pytorch-operator": 0, "simple": 0}

# Random numbers of NumPy's own generator; files that hold no tensors.
WRONG = {}


def run(folder):
    done = subprocess.run(
        [sys.argv[1], "-o", "json", "model", "test", os.path.join(DATA, folder)],
        stdout=subprocess.PIPE)
    report = json.loads(done.stdout)
    return done.returncode, report


def main():
    if not os.path.isdir(DATA):
        return 77
    ok = True
    for folder, least in LEAST.items():
        code, report = run(folder)
        passed, failed = report["passed"], report["failed"]
        print(f"{folder}: {len(passed)} passed, {len(failed)} failed, "
              f"{len(report['unsupported'])} unsupported")
        for name in failed:
            print(f"  {name}: {report['reasons'][name]}")
        ok = ok and not failed and code == 0 and len(passed) >= least
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
