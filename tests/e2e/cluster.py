# SPDX-License-Identifier: Apache-2.0
"""A real cluster for one test: etcd, rubatods, workers, rubatoctl, in a folder that goes away.

    with Cluster() as c:                      # one node with a private etcd
        c.submit("gpt", spec)
        c.wait("gpt", "done")

Nothing here waits for a fixed time: each wait is for an event, and gives up with the daemons' logs.
"""
import contextlib
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request

from ports import free_ports

BUILD = os.environ.get("RUBATO_BUILD") or os.path.join(os.path.dirname(__file__), "../../build")
BUILD = os.path.abspath(BUILD)
if os.environ.get("RUBATO_LIBRARIES"):  # folders that our programs need, and that python3 should do without
    os.environ["LD_LIBRARY_PATH"] = ":".join(
        os.environ[name] for name in ("RUBATO_LIBRARIES", "LD_LIBRARY_PATH") if os.environ.get(name))
ENDLESS = 1000000  # steps of a job that is ended by its test
PACE = "worker.vote:do=15ms"  # a step of most jobs takes 10 ms


class Failure(Exception):
    pass


def check(condition, text):
    if not condition:
        raise Failure(text)


LOST = ("steps_lost", "samples_repeated", "samples_skipped")


def check_nothing_lost(receipt, what=""):
    check(all(receipt[key] == 0 for key in LOST), f"{what}: {receipt}")


def until(what, predicate, seconds=60):
    """Poll `predicate` until it returns a true value, and return that."""
    end = time.monotonic() + seconds
    while True:
        found = predicate()
        if found:
            return found
        if time.monotonic() > end:
            raise Failure(f"waited {seconds} s for {what}")
        time.sleep(0.02)


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def digest(path):
    """The file's sha256."""
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def to_yaml(value, indent=0):
    """Enough YAML for a job file: JSON is YAML, so nested values are written as JSON."""
    return "".join(f"{' ' * indent}{key}: {json.dumps(part)}\n" for key, part in value.items())


class Node:
    """One rubatod."""

    def __init__(self, cluster, name, arguments):
        self.cluster, self.name, self.arguments = cluster, name, arguments
        self.state = os.path.join(cluster.folder, name)
        self.log = os.path.join(cluster.folder, name + ".log")
        self.process = None
        self.prefix = []  # of its command line
        self.core = None  # that it and its workers keep to
        self.endpoint = f"unix:{self.state}/rubatod.sock"

    def start(self, wait=True):
        with open(self.log, "a") as log:
            self.process = subprocess.Popen(
                [*self.prefix, os.path.join(BUILD, "rubatod"), "--state-dir", self.state, *self.arguments],
                stderr=log, stdout=log, stdin=subprocess.DEVNULL, env=os.environ | self.cluster.environment,
                preexec_fn=self.keep_to_core)
        if wait:
            until(f"{self.name} to answer", self.answers, 30)
        return self

    def keep_to_core(self):
        if self.core is not None:
            os.sched_setaffinity(0, {self.core})

    def answers(self):
        check(self.process.poll() is None, f"{self.name} ended with {self.process.poll()}")
        found = self.cluster.try_json("get", "nodes", endpoint=self.endpoint)
        return bool(found) and any(item["name"] == self.name or len(self.cluster.nodes) == 1
                                   for item in found["items"])

    def stop(self, how=signal.SIGTERM, seconds=15):
        if self.process and self.process.poll() is None:
            self.process.send_signal(how)
            try:
                self.process.wait(seconds)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                raise Failure(f"{self.name} did not stop within {seconds} s")
        return self.process.returncode if self.process else None


@contextlib.contextmanager
def standing_still(*pids):
    """These processes are stopped meanwhile; their kernel still answers for them."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


class Cluster:
    address = "127.0.0.1"  # of etcd, where there are several nodes

    def __init__(self, nodes=1, devices=3, keep=False, pinned=False, etcds=1, paced=False):
        """pinned: each of several nodes keeps to a core of its own.  etcds: how many members the one etcd of several
        nodes has; a single node has its own etcd.  paced: workers wait in each vote, except those of alone(), so that
        few steps are done while a test waits for something else, and few have to be done again.  It is for tests of
        what happens around steps, not of what happens to a worker in the middle of one."""
        self.folder = tempfile.mkdtemp(prefix="rubato-e2e.")
        self.environment = {"RUBATO_FAULT": "@" + self.path("pace")} if paced else {}
        self.pace(PACE)
        self.pinned = pinned
        self.etcds, self.nodes, self.devices, self.keep = [], [], devices, keep
        self.count, self.n_etcds = nodes, etcds

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.__exit__(*sys.exc_info())
            raise
        return self

    def start(self):
        if self.count == 1:
            self.nodes = [Node(self, "local", ["--single-node", "--cpu-devices", str(self.devices)])]
        else:
            url = self.start_etcd()
            self.nodes = [Node(self, f"n{i}", ["--node", f"n{i}", "--etcd", url,
                                               "--cpu-devices", str(self.devices)])
                          for i in range(self.count)]
        self.place_nodes()
        for number, node in enumerate(self.nodes):
            node.core = number % os.cpu_count() if self.pinned else None
            node.start(wait=False)
        for node in self.nodes:
            until(f"{node.name} to answer", node.answers, 30)
        until("the first node to know of all", lambda: len(self.json("get", "nodes")["items"]) == len(self.nodes))

    def place_nodes(self):
        """Called before the nodes start; subclasses place the nodes elsewhere, or give them more arguments."""

    def start_etcd(self):
        """Starts the members of etcd; returns their URLs as rubatod takes them."""
        urls = [f"http://{self.address}:{port}" for port in free_ports(2 * self.n_etcds, self.address)]
        clients, peers = urls[:self.n_etcds], urls[self.n_etcds:]
        everyone = ",".join(f"e{i}={peer}" for i, peer in enumerate(peers))
        self.etcd_arguments = [[
            "etcd", "--name", f"e{i}", "--data-dir", os.path.join(self.folder, f"etcd{i}"),
            "--listen-client-urls", client, "--advertise-client-urls", client,
            "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
            "--initial-cluster", everyone, "--heartbeat-interval", "50",
            "--election-timeout", "500"] for i, (client, peer) in enumerate(zip(clients, peers))]
        self.url = clients[0]
        self.run_etcd()
        for client in clients:
            until(f"etcd at {client}", lambda: self.etcd_answers(client), 60)
        return ",".join(clients)

    def etcd_answers(self, url):
        """Whether this member is there and leads, or follows a leader: rubatods do not wait for that for long."""
        with contextlib.suppress(OSError), urllib.request.urlopen(url + "/health", timeout=5) as answer:
            return json.loads(answer.read())["health"] == "true"

    def run_etcd(self):
        with open(os.path.join(self.folder, "etcd.log"), "a") as log:
            self.etcds = [subprocess.Popen(arguments, stderr=log, stdout=log) for arguments in self.etcd_arguments]

    def etcd_pids(self):
        """The pids of all members of etcd; those of a single node's own etcd too."""
        if self.count > 1:
            return [etcd.pid for etcd in self.etcds]
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError), open(f"/proc/{pid}/stat") as file:
                name, rest = file.read().rsplit(")", 1)
                if name.endswith("(etcd") and int(rest.split()[1]) == self.nodes[0].process.pid:
                    found.append(int(pid))
        return found

    def signal_etcd(self, number):
        for pid in self.etcd_pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def __exit__(self, kind, error, trace):
        ended = error is not None and not isinstance(error, Exception)
        if error is not None:
            with contextlib.suppress(OSError):
                self.keep_logs()
            with contextlib.suppress(OSError):  # our output may be closed: nodes are stopped all the same
                self.print_logs()
        late = []
        for node in self.nodes:
            if node.process and node.process.poll() is None:
                try:
                    node.stop(signal.SIGKILL if ended else signal.SIGTERM)
                except Failure as failure:
                    late.append(str(failure))
        for etcd in self.etcds:
            etcd.kill()
            etcd.wait()
        left = self.processes()
        words = [looks(pid) for pid in left]
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if error is None and (left or late):
            self.print_logs()
        if self.keep or os.environ.get("RUBATO_KEEP"):
            print(f"kept {self.folder}")
        else:
            shutil.rmtree(self.folder, ignore_errors=True)
        if error is None:
            check(not left and not late, f"left behind: {words}; late: {late}")

    def print_logs(self):
        """Prints the end of each log."""
        for node in self.nodes:
            if os.path.exists(node.log):
                print(f"--- {node.log}")
                with open(node.log) as log:
                    print("".join(log.readlines()[-60:]))
        with contextlib.suppress(Exception):
            for folder, _, names in os.walk(self.folder):
                for name in names:
                    if folder.endswith("/logs"):
                        print(f"--- {os.path.join(folder, name)}")
                        with open(os.path.join(folder, name)) as log:
                            print("".join(log.readlines()[-12:]))

    def keep_logs(self):
        """Copies the whole logs below RUBATO_LOGS, where that is set."""
        kept = os.environ.get("RUBATO_LOGS")
        for folder, _, names in os.walk(self.folder) if kept else ():
            for name in names:
                if name.endswith(".log") or folder.endswith("/logs"):
                    path = os.path.join(folder, name)
                    to = os.path.join(kept, os.path.relpath(path, os.path.dirname(self.folder)))
                    os.makedirs(os.path.dirname(to), exist_ok=True)
                    shutil.copyfile(path, to)

    def processes(self, name=None):
        """Pids of living processes that have our folder in their command line, or work in it."""
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                with open(f"/proc/{pid}/cmdline", "rb") as file:
                    words = file.read().decode(errors="replace").split("\0")
                with open(f"/proc/{pid}/stat") as file:
                    state = file.read().rsplit(")", 1)[1].split()[0]
                ours = [*words, os.readlink(f"/proc/{pid}/cwd")]
                if state != "Z" and any(self.folder in word for word in ours) and int(pid) != os.getpid():
                    if name is None or os.path.basename(words[0]) == name:
                        found.append(int(pid))
        return found

    # ---- rubatoctl ---------------------------------------------------------------------------

    def run(self, *words, endpoint=None, timeout=240, **more):
        """Runs rubatoctl WORDS; returns a CompletedProcess with text."""
        endpoint = endpoint or self.nodes[0].endpoint
        return subprocess.run([os.path.join(BUILD, "rubatoctl"), "--endpoint", endpoint, *map(str, words)],
                              capture_output=True, text=True, timeout=timeout, cwd=self.folder, **more)

    def ctl(self, *words, code=0, **more):
        done = self.run(*words, **more)
        check(done.returncode == code,
              f"rubatoctl {' '.join(map(str, words))}: exit {done.returncode}, not {code}\n{done.stdout}{done.stderr}")
        return done.stdout

    def json(self, *words, **more):
        return json.loads(self.ctl("-o", "json", *words, **more))

    def try_json(self, *words, **more):
        """None where rubatoctl is refused, or gets no answer."""
        done = self.run("-o", "json", *words, **more)
        return None if done.returncode else json.loads(done.stdout)

    def path(self, name):
        return os.path.join(self.folder, name)

    def model(self, kind, name=None, **settings):
        path = self.path((name or kind) + ".onnx")
        words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
        self.ctl("model", "new", kind, *words, "--out", path)
        return path

    def job_file(self, name, spec):
        path = self.path(name + ".yaml")
        with open(path, "w") as file:
            file.write(to_yaml({"apiVersion": "rubato/v1", "kind": "TrainJob", "metadata": {"name": name},
                                "spec": spec}))
        return path

    def submit(self, name, spec):
        return self.json("submit", "-f", self.job_file(name, spec))

    def wait(self, job, what, timeout=200):
        self.ctl("wait", job, "--for", what, "--timeout", timeout, timeout=timeout + 20)

    def status(self, job):
        return self.json("status", job)

    def events(self, kind, *job, **more):
        return [event for event in self.json("events", *job, **more)["items"] if event["kind"] == kind]

    def kinds(self, job, **more):
        """The kinds of its events, in their order."""
        return [event["kind"] for event in self.json("events", job, **more)["items"]]

    def train_on(self, job, devices, steps=10):
        """The job's status after `steps` more steps on `devices` devices, when it trains on them and is not over."""
        while True:
            self.wait(job, f"devices={devices}")
            self.wait(job, f"step={self.status(job)['step'] + steps}")
            status = self.status(job)
            check(status["phase"] in ("Running", "Preparing"), f"too late to meddle with {job}: {status['phase']}")
            if status["phase"] == "Running" and len(status["devices"]) == devices:
                return status  # else rubatod has just heard that a device is gone

    def kill(self, job, device, how=signal.SIGKILL):
        """Kills the worker on this device of a status, and returns the status once rubatod knows of the death: a worker
        that is left answers what is asked next."""
        os.kill(device["pid"], how)

        def without():
            status = self.status(job)
            return device["pid"] not in [other.get("pid") for other in status["devices"]] and status

        return until(f"the death of {device['pid']} to be heard of", without)

    def export(self, job):
        """The exported file's sha256."""
        path = self.path(job + ".safetensors")
        self.ctl("export", job, "--out", path)
        return digest(path)

    def metrics(self, job):
        """Rows as dicts of floats, by column."""
        lines = self.ctl("metrics", job).strip().splitlines()
        columns = lines[0].split(",")
        return [{column: float(field) for column, field in zip(columns, line.split(",")) if field}
                for line in lines[1:]]

    def break_off(self, job, since=0, heard=True):
        """(steps, sha256) of an endless job, which is paused where it is and deleted; each step behind `since` has its
        row, if rubatod heard all of them (`heard`)."""
        self.ctl("pause", job)
        until("the pause", lambda: self.status(job)["phase"] == "Paused")
        rows = [row["step"] for row in self.metrics(job)]
        steps = int(rows[-1]) if rows else since
        check(not heard or rows == list(range(since + 1, steps + 1)), f"metrics do not have each step behind {since} once: {rows}")
        sha = self.export(job)
        self.ctl("cancel", job)
        self.ctl("delete", job)
        return steps, sha

    def pace(self, fault):
        """Sets the fault of workers that start from now on, in a paced cluster."""
        with open(self.path("pace"), "w") as file:
            file.write(fault)

    @contextlib.contextmanager
    def unpaced(self):
        """Workers that start meanwhile are not paced."""
        self.pace("")
        yield
        self.pace(PACE)

    def alone(self, spec, steps):
        """The sha256 of an endless job's weights at step `steps`, on one device and undisturbed.  The checkpoint of
        that step is kept until it is read, however many follow it."""
        folder = tempfile.mkdtemp(prefix="alone-", dir=self.folder)  # an older job may save in its own
        path = os.path.join(folder, f"step-{steps:08}", "model.safetensors")
        with self.unpaced():
            self.submit("alone", {**spec, "devices": {**spec["devices"], "min": 1, "want": 1},
                                  "checkpoint": {"path": folder, "every": steps, "keep": 10000}})
            self.wait("alone", f"step={steps}", 500)  # as many steps may have been done on several cores, and not been counted
        until("its checkpoint", lambda: os.path.exists(path))
        sha = digest(path)
        self.drop("alone")
        return sha

    def same_as_alone(self, job, spec, what, since=0, heard=True):
        """Ends an endless job that was meddled with: its bits are those of one that was left alone.  However slow the
        machine is, no change comes after the job's end, and no step is trained for nothing."""
        steps, sha = self.break_off(job, since, heard)
        check(self.alone(spec, steps) == sha, f"{what}: after {steps} steps the bits differ")

    def drop(self, job):
        """Cancels and deletes a job that has not ended; nothing is left of it."""
        self.ctl("cancel", job)
        self.wait(job, "devices=0")
        self.ctl("delete", job)

    def finish(self, job, timeout=200):
        """Wait for the end, export, delete; returns the sha256."""
        self.wait(job, "done", timeout)
        sha = self.export(job)
        self.ctl("delete", job)
        return sha


def looks(pid):
    """What a process is and does, in a few words."""
    with contextlib.suppress(OSError):
        with open(f"/proc/{pid}/cmdline") as words, open(f"/proc/{pid}/status") as status:
            facts = [line for line in status.read().splitlines() if line.split(":")[0] in ("State", "PPid", "Threads")]
            return " ".join([str(pid), *words.read().split("\0")[:3], *facts])
    return f"{pid}, which is gone by now"


def unwind_when_told_to_end():
    """SIGTERM raises an exception, so that each `with` ends what it started."""
    def unwind(number, frame):
        signal.signal(number, signal.SIG_IGN)
        sys.exit(128 + number)

    signal.signal(signal.SIGTERM, unwind)


class TooLong(Exception):
    """Not a Failure: code that suppresses Failures while it cleans up would go on without an alarm."""


def end_test(number, frame):
    raise TooLong("it takes too long")


def main(*tests, go_on=0):
    """Run test functions; the exit status is meson's: 0, 1 or 77 for a skip.  go_on: seconds that a test may take; the
    other tests run even where one fails or takes longer.  0: no limit, and the first failure ends the run."""
    unwind_when_told_to_end()
    signal.signal(signal.SIGALRM, end_test)
    failed, mark = [], "TABLE   " if go_on else ""
    for test in tests:
        start = time.monotonic()
        try:
            signal.alarm(go_on)
            test()
        except Failure as failure:
            failed.append(f"FAILED {test.__name__}: {failure}")
        except Exception as error:
            if not go_on:
                raise
            failed.append(f"FAILED {test.__name__}: {type(error).__name__}: {error}")
        else:
            print(f"{mark}ok {test.__name__} ({time.monotonic() - start:.1f} s)", flush=True)
            continue
        finally:
            signal.alarm(0)
        print(failed[-1], flush=True)
        if go_on:
            print(mark + failed[-1].splitlines()[0][:180], flush=True)
        if not go_on:
            break
    sys.exit(1 if failed else 0)
