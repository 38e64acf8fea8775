# SPDX-License-Identifier: Apache-2.0
"""Run the commands of the pods of deploy/kubernetes, as they are written there: three etcds, the init container that
makes a pod's certificate, and rubatod.  Names and addresses of the cluster become this host's; nothing else is
changed."""
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../e2e"))
from ports import free_ports

NODE = "worker-7"


class Here:
    """The cluster's names, as they are on this host."""

    def __init__(self, root, folder, items):
        self.root, self.folder, self.items, self.processes = root, folder, items, []
        names = [(member, port) for member in range(3) for port in (2379, 2380, 2381)]
        self.ports = dict(zip(names, free_ports(len(names))))

    def path(self, *parts):
        return os.path.join(self.folder, *parts)

    def words(self, text, member=0):
        text = re.sub(r"etcd-(\d)\.etcd\.rubato\.svc:(\d+)",
                      lambda found: f"127.0.0.1:{self.ports[int(found[1]), int(found[2])]}", text)
        text = re.sub(r"//0\.0\.0\.0:(\d+)", lambda found: f"//127.0.0.1:{self.ports[member, int(found[1])]}", text)
        for there, here in (("/usr/share/rubato/certificates", os.path.join(self.root, "deploy/certificates")),
                            ("/var/lib/etcd", self.path(f"etcd-{member}")), ("/etc/etcd/tls", self.path("certs/etcd")),
                            ("/etc/rubato/authority", self.path("certs")), ("/etc/rubato", self.path("settings")),
                            ("/run/rubato", self.path("run")), ("/var/lib/rubato", self.path("state"))):
            text = text.replace(there, here)
        return text

    def container(self, kind, name, values, member=0):
        """The command line and the environment of a container."""
        pod = next(item for item in self.items if item["kind"] == kind)["spec"]["template"]["spec"]
        found = next(each for each in pod.get("initContainers", []) + pod["containers"] if each["name"] == name)
        environment = {entry["name"]: entry.get("value") or values[entry["name"]] for entry in found.get("env", [])}
        given = re.compile(r"\$\((\w+)\)")
        line = [self.words(given.sub(lambda one: environment[one[1]], word), member)
                for word in found["command"] + found.get("args", [])]
        return line, {**os.environ, **{key: self.words(value) for key, value in environment.items()}}

    def start(self, line, environment, log):
        with open(self.path(log), "w") as file:
            process = subprocess.Popen(line, env=environment, stdin=subprocess.DEVNULL, stdout=file, stderr=file)
        self.processes.append(process)
        return process

    def stop(self):
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()


def said(path):
    with open(path) as file:
        return file.read()[-2000:]


def until(predicate, seconds):
    end = time.monotonic() + seconds
    while not predicate():
        if time.monotonic() > end:
            return False
        time.sleep(0.1)
    return True


def certificates(here):
    """Makes the certificates of etcd and the authority, as docs/kubernetes.md says."""
    script = os.path.join(here.root, "deploy/certificates")
    with open(os.path.join(here.root, "docs/kubernetes.md")) as file:
        names = re.search(r"^ *deploy/certificates certs etcd (.*)$", file.read(), re.M)[1]
    subprocess.run([script, here.path("certs"), "etcd", *names.split()], check=True, capture_output=True)


def own_certificate(here):
    """Runs the init container `certificate` twice: a pod may be started again with the folder of its last start."""
    os.mkdir(here.path("run"))
    line, environment = here.container("DaemonSet", "certificate", {"POD_IP": "127.0.0.1"})
    for _ in range(2):
        done = subprocess.run(line, env=environment, capture_output=True, text=True)
        if done.returncode:
            return [f"certificate: {done.stderr}"]
    left = sorted(os.listdir(here.path("run")))
    return [] if left == ["tls"] else [f"certificate: it leaves {left}"]


def settings(here):
    os.mkdir(here.path("settings"))
    held = next(item for item in here.items if item["kind"] == "ConfigMap")["data"]
    for name, text in held.items():
        with open(here.path("settings", name), "w") as file:
            file.write(here.words(text))


def probes(here):
    """The paths that rubatod's pod is asked for over HTTP."""
    template = next(item for item in here.items if item["kind"] == "DaemonSet")["spec"]["template"]
    container = template["spec"]["containers"][0]
    return [container["livenessProbe"]["httpGet"]["path"], container["readinessProbe"]["httpGet"]["path"],
            template["metadata"]["annotations"]["prometheus.io/path"]]


def probe(url):
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return [] if answer.status == 200 else [f"{url}: {answer.status}"]
    except OSError as error:
        return [f"{url}: {error}"]


def node(here, rubatod):
    """rubatod with the settings and the arguments of its pod becomes a node, and ends on SIGTERM."""
    line, environment = here.container("DaemonSet", "rubatod",
                                       {"POD_IP": "127.0.0.1", "NODE_NAME": NODE, "CPU_DEVICES": "1"})
    http = free_ports(1)[0]
    line = [re.sub(r"127\.0\.0\.1:\d+$", f"127.0.0.1:{http if word.startswith('--http=') else 0}", word)
            for word in line]
    process = here.start([rubatod, *line[1:]], environment, "rubatod.log")
    control = os.path.join(os.path.dirname(rubatod), "rubatoctl")

    def there():
        done = subprocess.run([control, "get", "nodes"], env=environment, capture_output=True, text=True)
        return process.poll() is not None or NODE in done.stdout

    if not until(there, 40) or process.poll() is not None:
        return [f"rubatod {' '.join(line[1:])}: {said(here.path('rubatod.log'))}", said(here.path("etcd-0.log"))]

    def unwell():
        return [line for path in probes(here) for line in probe(f"http://127.0.0.1:{http}{path}")]

    if not until(lambda: not unwell(), 40):
        return unwell()
    process.send_signal(signal.SIGTERM)
    try:
        status = process.wait(20)
    except subprocess.TimeoutExpired:
        status = "nothing"
    return [] if status == 0 else [f"rubatod ends with {status}: {said(here.path('rubatod.log'))}"]


def run_all(root, rubatod, items):
    """What went wrong, a line each."""
    missing = [name for name in ("etcd", "openssl") if not shutil.which(name)]
    if missing:
        print(f"not run, for lack of {missing}")
        return []
    with tempfile.TemporaryDirectory(prefix="rubato-kubernetes.") as folder:
        here = Here(root, folder, items)
        try:
            certificates(here)
            for member in range(3):
                os.mkdir(here.path(f"etcd-{member}"))
                line, environment = here.container("StatefulSet", "etcd", {"POD_NAME": f"etcd-{member}"}, member)
                here.start([shutil.which("etcd"), *line[1:]], environment, f"etcd-{member}.log")
            settings(here)
            return own_certificate(here) or node(here, rubatod)
        finally:
            here.stop()
