#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The first 50 losses of mlp, cnn and gpt agree with PyTorch's (losses.json) to 1e-4 relative."""
import json
import os

import cases
import cluster
from cluster import check

TOLERANCE = 1e-4  # the largest difference seen is printed beside it


def agrees():
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "losses.json")) as file:
        recorded = json.load(file)
    with cluster.Cluster(devices=2) as c:
        for kind, expected in recorded["losses"].items():
            cases.make(kind, c.folder)
            c.submit(kind, cases.spec(kind, c.folder, recorded["steps"]))
            c.wait(kind, "done")
            rows = c.metrics(kind)
            check(len(rows) == len(expected), f"{kind}: {len(rows)} rows")
            worst = max(abs(row["loss"] - loss) / loss for row, loss in zip(rows, expected))
            print(f"{kind}: largest relative difference in {len(rows)} steps {worst:.1e}", flush=True)
            check(worst < TOLERANCE, f"{kind}: {worst}")


cluster.main(agrees)
