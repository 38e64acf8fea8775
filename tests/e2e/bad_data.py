#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Data that are wrong, or change under a job: a sample that is not a number, a file that is cut off or replaced."""
import os
import struct

import cluster
import gpt_job
from bad_input import good
from cluster import ENDLESS, check, until


def not_a_number():
    """One sample of 64 holds a NaN: the step that has it is skipped, which is an event, and the job goes on."""
    with cluster.Cluster(devices=1) as c:
        c.model("cnn", image=8)
        spec = good(c)
        spec["train"]["steps"] = 8
        path = spec["data"]["train"]["path"]
        with open(path, "r+b") as file:
            file.seek(-4 * 1000, os.SEEK_END)
            file.write(struct.pack("<f", float("nan")))
        c.submit("nan", spec)
        c.wait("nan", "done")
        skipped = [int(row["step"]) for row in c.metrics("nan") if row["skipped"]]
        check(len(skipped) == 1, f"skipped: {skipped}")
        told = until("the event", lambda: [event["text"] for event in c.events("step-skipped", "nan")])
        check(told == [f"step {skipped[0]} is skipped: its loss is not finite"], f"events: {told}")


def data_cut_off():
    """A data file that becomes shorter while it is read: the job fails and says which file, and by how much."""
    with cluster.Cluster(devices=2) as c:
        c.model("cnn", image=8)
        spec = good(c)
        spec["train"]["steps"] = ENDLESS
        spec["devices"]["want"] = 2
        c.submit("cut", spec)
        c.wait("cut", "step=5")
        path = spec["data"]["train"]["path"]
        size = os.path.getsize(path)
        os.truncate(path, size - 1)
        until("the job to fail", lambda: c.status("cut")["phase"] == "Failed")
        said = c.ctl("describe", "cut")
        check(f"has {size - 1} bytes, and had {size}" in said, said)


def data_are_replaced():
    """A newcomer that finds other data than were submitted does not train on them; the other workers train on."""
    with cluster.Cluster(devices=2) as c:
        gpt_job.model(c)
        job = gpt_job.spec(c, ENDLESS, 1)
        c.submit("gpt", job)
        c.train_on("gpt", 1)
        data = c.path(job["data"]["train"]["path"])
        with open(data, "rb") as f:
            bytes_of = f.read()
        with open(data + ".new", "wb") as f:
            f.write(bytes_of[::-1])
        os.rename(data + ".new", data)
        c.ctl("grow", "gpt", 1)
        until("the reason", lambda: any("does not hold what it did when the job was submitted" in event["text"]
                                        for event in c.json("events", "gpt")["items"]))
        step = c.status("gpt")["step"]
        until("more steps", lambda: c.status("gpt")["step"] > step)
        check(len(c.status("gpt")["devices"]) == 1, "it trains on other data")
        with open(data + ".new", "wb") as f:
            f.write(bytes_of)
        os.rename(data + ".new", data)
        c.train_on("gpt", 2)
        c.same_as_alone("gpt", job, "data that came back")


cluster.main(not_a_number, data_cut_off, data_are_replaced)
