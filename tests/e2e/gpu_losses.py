#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""GPUs compute nearly the same losses as a core, in both precisions, and a job on GPUs is planned by the times that
they take (gpus.py says which GPUs)."""
import os

import cluster
import gpus
from cluster import check
from gpus import REAL, STEPS, on


def attention_in_one_node():
    """Without dropout, attention in one node gives the same as a core, which computes it in parts."""
    with gpus.gpus(1), cluster.Cluster(devices=1) as c:
        gpus.models(c)
        c.model("gpt", layers=2, width=64, heads=2, seq=80)
        losses = {}
        for kind in "cuda", "cpu":
            spec = on(kind, gpus.gpt_spec(c, 8))
            spec["data"]["train"]["seqLen"] = 80
            c.submit(kind, spec)
            c.wait(kind, "done")
            losses[kind] = [row["loss"] for row in c.metrics(kind)]
        far = max(abs(a - b) for a, b in zip(losses["cuda"], losses["cpu"]))
        check(far < 2e-5, f"losses differ by {far} from a core's")


def in_bfloat16():
    """The same bits at any count, and losses near a core's in the same precision."""
    with gpus.gpus(3), cluster.Cluster(devices=1) as c:
        for name, make in gpus.models(c).items():
            shas, losses = set(), {}
            for kind, devices in ("cuda", 1), ("cuda", 3), ("cpu", 1):
                spec = on(kind, make(c, STEPS, devices))
                spec["devices"]["min"] = devices
                spec["train"] = spec["train"] | {"precision": "bf16"}
                c.submit("job", spec)
                c.wait("job", "done")
                losses[kind] = [row["loss"] for row in c.metrics("job")]
                shas |= {c.finish("job")} if kind == "cuda" else set()
                c.run("delete", "job")
            check(len(shas) == 1, f"{name}: {shas}")
            far = max(abs(a - b) for a, b in zip(losses["cuda"], losses["cpu"]))
            check(far < 2e-2, f"{name}: losses differ by {far} from a core's")


def profiled_and_planned():
    """A job on GPUs is timed on one of them, and its plan is chosen by those times."""
    with gpus.gpus(2), cluster.Cluster(devices=1) as c:
        gpus.models(c)

        def make(want):
            spec = on("cuda", gpus.gpt_spec(c, 8, want), state={"replicas": "1"}, parallel={})
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


if __name__ == "__main__":
    gpus.main(attention_in_one_node, profiled_and_planned, in_bfloat16)
