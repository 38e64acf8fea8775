#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Without a pin and with the state in shards the planner says how a job runs, anew at each change of its devices; the
sha256 is that of one device, whatever it says.  Two rubatods that seem to be on two machines measure the link between
them."""
import os

import cluster
import delicate
from cluster import check, check_nothing_lost, until


class Apart(cluster.Cluster):
    """Nodes with host names of their own: nothing else is apart."""

    def place_nodes(self):
        for i, node in enumerate(self.nodes):
            node.prefix = ["unshare", "--uts", "sh", "-c", f'hostname rubato-{i} && exec "$@"', "sh"]
            node.arguments += ["--listen", "127.0.0.1:0"]


def resized():
    with cluster.Cluster(devices=4) as c:
        models = delicate.models(c)
        for kind, make in models.items():
            steps = c.steps_for(5, lambda steps: make(c, steps))
            c.submit("alone", make(c, steps))
            alone = c.finish("alone")
            c.submit("job", make(c, steps, 2, state={"replicas": "1"}))
            c.wait("job", "step=4")
            said = c.status("job")["plan"]
            check(said["expectedMs"] > 0 and "is expected" in said["chosen"], f"not planned: {said}")
            for change in ("grow", 2), ("shrink", 1):
                receipt = c.json(change[0], "job", change[1], "--wait", "--timeout", "60")
                check_nothing_lost(receipt, kind)
                check("is expected" in receipt["chosen"] and receipt["plan"], f"{receipt}")
            c.ctl("resize", "job", "--want", 1, "--wait")
            facts = {conf["number"]: conf for conf in c.json("get", "configurations")["items"]}
            check(all("chosen" in conf for conf in facts.values() if len(conf["members"]) > 1), f"{facts}")
            check(c.finish("job") == alone, f"{kind}: the bits differ")


def on_two(c, steps, **more):
    spec = delicate.gpt_spec(c, steps, 2, **more)
    spec["devices"]["min"] = 2
    return spec


def not_asked():
    """All of the state everywhere, or a pin: nothing is for the planner to say."""
    with cluster.Cluster(devices=2) as c:
        delicate.models(c)
        for more, says in (({}, "data parallel x2"), ({"parallel": {"pipeline": 2}}, "pipeline of 2"),
                           ({"parallel": {"pipeline": 1}, "state": {"replicas": "1"}}, "data parallel x2")):
            c.submit("job", on_two(c, 6, **more))
            c.wait("job", "done")
            plan = c.status("job")["plan"]
            check(plan["summary"].startswith(says) and plan["chosen"] is None, f"{more}: {plan}")
            c.finish("job")


def links():
    if os.geteuid():
        print("links: only root can give a process a host name of its own")
        return
    with Apart(nodes=2, devices=1) as c:
        until("the links to be measured",
              lambda: all(node.get("networkBandwidth", 0) > 1e6 for node in c.json("get", "nodes")["items"]))
        check(all(device["flops"] > 1e8 for device in c.json("get", "devices")["items"]), "speeds of cores")
        delicate.models(c)
        c.submit("alone", delicate.gpt_spec(c, 12))
        alone = c.finish("alone")
        c.submit("job", on_two(c, 12, state={"replicas": "1"}))
        c.wait("job", "done")
        check("is expected" in (c.status("job")["plan"]["chosen"] or ""), "not planned over the network")
        check(c.finish("job") == alone, "the bits differ")


if __name__ == "__main__":
    cluster.main(resized, not_asked, links)
