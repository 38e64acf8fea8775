#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Every input can be wrong: each gets a clear message and exit code, nothing lost, nothing left behind."""
import os
import resource
import socket
import subprocess
import tempfile

import cluster
import corpus
from cluster import BUILD, check, until


def good(c):
    features, targets = corpus.classes(c.folder, 64, (3, 8, 8), 10)
    return {
        "model": {"onnx": "cnn.onnx"},
        "data": {"train": {"path": features, "targets": targets}},
        "train": {"steps": 3, "globalBatch": 8},
        "devices": {"min": 1, "max": 2, "want": 1},
    }


def refused(c, name, spec, *words, code=4):
    done = c.run("submit", "-f", c.job_file(name, spec))
    said = done.stdout + done.stderr
    check(done.returncode == code, f"{name}: exit {done.returncode}, not {code}: {said}")
    for word in words:
        check(word in said, f"{name}: '{word}' is not in: {said}")
    check(not c.json("get", "jobs")["items"], f"{name}: left a job behind")


def job_files():
    with cluster.Cluster(devices=2) as c:
        c.model("cnn", image=8)
        c.model("gpt", layers=1, width=32, heads=2, seq=16, vocab=100)
        spec = good(c)

        def changed(path, value):
            copy = {key: dict(part) for key, part in spec.items()}
            part = copy
            *before, last = path.split(".")
            for key in before:
                part[key] = dict(part.get(key, {}))
                part = part[key]
            part[last] = value
            return copy

        refused(c, "key", changed("train.lerningRate", 1), "key.yaml:", "lerningRate")
        with open(c.path("where.yaml"), "w") as file:
            file.write("apiVersion: rubato/v1\nkind: TrainJob\nmetadata: {name: x}\nspec:\n  model:\n    onx: a\n")
        done = c.run("submit", "-f", c.path("where.yaml"))
        check(done.returncode == 4 and "where.yaml:6:5" in done.stderr, f"line and column: {done.stderr}")
        refused(c, "type", changed("train.steps", "many"), "type.yaml:")
        refused(c, "name_With_Capitals", spec, "name")
        refused(c, "no-onnx", changed("model.onnx", "absent.onnx"), "absent.onnx")
        refused(c, "no-folder", changed("checkpoint.path", c.path("cnn.onnx")), "cnn.onnx")
        refused(c, "no-data", changed("data.train.path", "absent.npy"), "absent.npy")
        refused(c, "ends", changed("train.epochs", 2), "steps", "epochs")
        refused(c, "data", changed("parallel.data", 2), "parallel.data")
        refused(c, "parts", changed("parallel.hypergraph", 17), "hypergraph", "16")
        refused(c, "want", changed("devices.want", 9), "max")
        wide, labels = corpus.classes(c.folder, 16, (3, 9, 9), 10, name="wide")
        refused(c, "shape", changed("data.train", {"path": wide, "targets": labels}), "9", "8")
        refused(c, "labels", changed("data.train.path", wide), "64", "16")
        features, targets = spec["data"]["train"]["path"], spec["data"]["train"]["targets"]
        refused(c, "unlike", changed("data.train", {"path": [features, wide], "targets": targets}), "wide.npy", "alike",
                features)
        refused(c, "twice", changed("data.train.path", [features, "train.npy"]), "data.train.path", "named twice")
        refused(c, "nothing", changed("data.train.path", "shards/*.npy"), "data.train.path", "no file matches", "shards/*.npy")
        check(c.run("submit", "-f", c.path("absent.yaml")).returncode in (3, 4), "missing job file")
        corpus.text(c.path("corpus.txt"), 5000)
        refused(c, "vocab", {"model": {"onnx": "gpt.onnx"},
                             "data": {"train": {"path": "corpus.txt", "format": "text", "seqLen": 16}},
                             "train": {"steps": 1}}, "100")
        for name, content in (("empty", b""), ("noise", os.urandom(4096)),
                              ("bomb", bytes.fromhex("3a0c") * 3000)):
            with open(c.path(name + ".onnx"), "wb") as file:
                file.write(content)
            refused(c, name, changed("model.onnx", name + ".onnx"), name + ".onnx")
            check(c.run("model", "check", c.path(name + ".onnx")).returncode == 4, f"model check {name}")
        c.submit("good", spec)
        done = c.run("submit", "-f", c.path("good.yaml"))
        check(done.returncode == 4 and "good" in done.stderr, f"a name in use: {done.stderr}")
        c.wait("good", "done")
        c.ctl("status", "nobody", code=3)
        c.ctl("grow", "nobody", 1, code=3)
        c.ctl("frobnicate", code=2)
        c.ctl("grow", "good", "-1", code=2)
        c.ctl("grow", "good", 1, code=4)
        c.ctl("node", "drain", "nowhere", code=3)
        c.ctl("get", "nodes", endpoint="unix:/nowhere/rubatod.sock", code=5)


def others_checkpoints():
    """A folder with checkpoints of another job is refused, and nothing of the refused job is kept."""
    with cluster.Cluster(devices=1) as c:
        c.model("cnn", image=8)
        spec = good(c)
        spec["checkpoint"] = {"path": c.path("saved"), "every": 2}
        c.submit("first", spec)
        c.wait("first", "done")
        blobs = os.path.join(c.nodes[0].state, "blobs")
        before = sorted(os.listdir(blobs))
        spec["train"]["globalBatch"] = 4
        done = c.run("submit", "-f", c.job_file("second", spec))
        check(done.returncode == 4 and "another job" in done.stderr, f"{done.returncode} {done.stderr}")
        check("train.globalBatch is 8 there and 4 here" in done.stderr, f"what differs: {done.stderr}")
        check(sorted(os.listdir(blobs)) == before, f"left behind: {sorted(os.listdir(blobs))}, not {before}")


def shared_folder():
    """Two jobs that live at once must have two checkpoint folders: another name for the same folder is refused too."""
    with cluster.Cluster(devices=1) as c:
        c.model("cnn", image=8)
        spec = good(c)
        spec["train"]["steps"] = cluster.ENDLESS
        spec["checkpoint"] = {"path": c.path("saved"), "every": 2}
        c.submit("first", spec)
        c.wait("first", "step=4")
        os.symlink(c.path("saved"), c.path("link"))
        for path in (c.path("saved"), "link", "./saved/"):
            spec["checkpoint"]["path"] = path
            done = c.run("submit", "-f", c.job_file("second", spec))
            check(done.returncode == 4 and "is where job first (Running) keeps its checkpoints" in done.stderr,
                  f"{path}: {done.returncode} {done.stderr}")
        until("its second checkpoint", lambda: any(item["step"] >= 4 for item in c.json("get", "checkpoints", "first")["items"]))
        c.ctl("cancel", "first")  # it may still save, and remove old checkpoints
        told = c.json("submit", "-f", c.path("second.yaml"))
        check(told["resumeStep"] >= 4, f"the second one does not go on where the first one was: {told}")
        c.wait("second", f"step={told['resumeStep'] + 2}")
        c.drop("second")


def folder_behind_what_is_not_there():
    """A path with ".." behind a folder that is not there means one folder: to the job that writes checkpoints, to the
    job that goes on from them, and in what users are told of them."""
    with cluster.Cluster(devices=1) as c:
        c.model("cnn", image=8)
        spec = good(c)
        spec["train"]["steps"] = 8
        spec["checkpoint"] = {"path": "none/../saved", "every": 2}
        c.submit("first", spec)
        c.wait("first", "done")
        check(not os.path.exists(c.path("none")), "a folder was made that nobody asked for")
        told = until("its checkpoints", lambda: c.json("get", "checkpoints", "first")["items"])
        saved = os.path.realpath(c.path("saved"))
        check(all(os.path.dirname(each["path"]) == saved for each in told), f"not in {saved}: {told}")
        again = c.submit("second", spec)
        check(again["resumeStep"] > 0, f"starts anew beside {os.listdir(saved)}: {again}")
        c.wait("second", "done")


def daemons():
    """No etcd, a port in use, a state folder in use."""
    with cluster.Cluster(devices=1) as c:
        def rubatod(*words):
            return subprocess.run([os.path.join(BUILD, "rubatod"), *words], capture_output=True, text=True, timeout=60)

        done = rubatod("--node", "x", "--state-dir", c.path("x"), "--etcd", "http://127.0.0.1:1")
        check(done.returncode == 69 and "127.0.0.1:1" in done.stderr, f"no etcd: {done.returncode} {done.stderr}")
        with socket.socket() as holder:
            holder.bind(("127.0.0.1", 0))
            holder.listen()
            port = holder.getsockname()[1]
            done = rubatod("--single-node", "--state-dir", c.path("y"), "--listen", f"127.0.0.1:{port}")
            check(done.returncode and str(port) in done.stderr, f"port in use: {done.returncode} {done.stderr}")
        done = rubatod("--single-node", "--state-dir", c.nodes[0].state)
        check(done.returncode == 78 and c.nodes[0].state in done.stderr, f"state folder in use: {done.stderr}")
        done = rubatod("--single-nod")
        check(done.returncode == 64, f"usage: {done.returncode}")


def few_descriptors():
    """At the first descriptor that rubatod cannot have, it says so and ends, to be started again."""
    with tempfile.TemporaryDirectory(prefix="rubato-e2e.") as folder:
        for limit in range(6, 12):
            done = subprocess.run(
                [os.path.join(BUILD, "rubatod"), "--single-node", "--state-dir", os.path.join(folder, "x")],
                capture_output=True, text=True, timeout=20,
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit)))
            check(done.returncode == 69 and "too many open files" in done.stderr.lower(),
                  f"{limit} descriptors: exit {done.returncode}: {done.stderr}")


def closed_streams():
    """Programs that are started without standard input, output or error: no file or socket takes their place."""
    def start(program, closed, *words):
        return ["sh", "-c", f'exec "$@" {closed}', "sh", os.path.join(BUILD, program), *words]

    with tempfile.TemporaryDirectory(prefix="rubato-e2e.") as folder:
        for closed in ("<&-", ">&-", "2>&-", "<&- >&- 2>&-"):
            endpoint = "unix:" + os.path.join(folder, "rubatod.sock")
            daemon = subprocess.Popen(start("rubatod", closed, "--single-node", "--state-dir", folder, "--cpu-devices", "1"),
                                      stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

            def ask(closed=""):
                return subprocess.run(start("rubatoctl", closed, "--endpoint", endpoint, "get", "devices"), text=True,
                                      capture_output=True, timeout=60)
            try:
                until("rubatod", lambda: ask().returncode == 0)
                check("cpu" in ask("<&-").stdout and "cpu" in ask("2>&-").stdout, "it needs input, or an error stream")
                silent = ask("<&- >&-")
                check(silent.returncode == 1 and "cannot write to stdout" in silent.stderr, f"{silent}")
            finally:
                daemon.terminate()
                said = daemon.communicate(timeout=20)[1].decode()
            check(daemon.returncode == 0, f"{closed}: exit {daemon.returncode}: {said}")


def many_files():
    """Two data sets of the largest allowed number of files, under the limit of descriptors that systems begin with."""
    with cluster.Cluster(devices=1) as c:
        c.model("gpt", layers=1, width=32, heads=2, seq=16)
        node = c.nodes[0]
        node.stop()
        node.prefix = ["sh", "-c", 'ulimit -Sn 1024; exec "$@"', "sh"]
        node.start()
        for folder in ("train", "eval"):
            os.mkdir(c.path(folder))
            for i in range(512):
                corpus.text(c.path(f"{folder}/{i}.txt"), 40)
        c.submit("many", {"model": {"onnx": "gpt.onnx"},
                          "data": {key: {"path": key, "format": "text"} for key in ("train", "eval")},
                          "train": {"steps": 2, "globalBatch": 8, "eval": {"every": 2}},
                          "devices": {"min": 1, "max": 1}})
        c.wait("many", "done")


if __name__ == "__main__":
    cluster.main(job_files, others_checkpoints, shared_folder, folder_behind_what_is_not_there,
                 daemons, few_descriptors, closed_streams, many_files)
