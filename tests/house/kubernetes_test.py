#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""deploy/kubernetes, as far as it can be tried without a cluster: each name is that of an existing object, no key is
misspelt, and the commands of its containers run: three etcds, a pod's certificate, and a rubatod that becomes a node."""
import copy
import os
import re
import shutil
import subprocess
import sys
import tempfile

try:
    import yaml
except ImportError:
    print("python3-yaml is missing")
    sys.exit(77)

from kubernetes_keys import misspelt
from kubernetes_run import run_all

root, rubatod = sys.argv[1:]
FOLDER = os.path.join(root, "deploy/kubernetes")
BASE = os.path.join(FOLDER, "base")
SECRETS = {"rubato-authority", "rubato-etcd-tls"}  # made by hand: docs/kubernetes.md
bad = []


def check(condition, text):
    if not condition:
        bad.append(text)


def read(*path):
    with open(os.path.join(*path)) as file:
        return list(yaml.safe_load_all(file))


def labelled(item, labels):
    """What kustomize's labels with includeTemplates do, for the kinds that are here."""
    for part in (item, item.get("spec", {}).get("template")):
        if part:
            part["metadata"].setdefault("labels", {}).update(labels)


def assembled():
    """The base, put together without kubectl."""
    rules = read(BASE, "kustomization.yaml")[0]
    items = [item for name in rules["resources"] for item in read(BASE, name)]
    for made in rules["configMapGenerator"]:
        data = {}
        for path in made["files"]:
            with open(os.path.join(BASE, path)) as file:
                data[os.path.basename(path)] = file.read()
        items.append({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": made["name"]}, "data": data})
    items = copy.deepcopy(items)  # YAML's anchors share objects that differ below
    for item in items:
        if item["kind"] != "Namespace":
            item["metadata"]["namespace"] = rules["namespace"]
        labelled(item, rules["labels"][0]["pairs"])
    return yaml.safe_load(yaml.dump(items, Dumper=Plain))


class Plain(yaml.SafeDumper):
    def ignore_aliases(self, data):
        return True


def rendered(*components):
    """The base with these components, as a user's overlay takes them in; without kubectl the base alone, or None."""
    if not shutil.which("kubectl"):
        return None if components else assembled()
    with tempfile.TemporaryDirectory() as mine:
        def path(name):
            return os.path.relpath(os.path.join(FOLDER, name), os.path.realpath(mine))
        with open(os.path.join(mine, "kustomization.yaml"), "w") as file:
            yaml.safe_dump({"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization",
                            "resources": [path("base")], "components": [path(name) for name in components]}, file)
        done = subprocess.run(["kubectl", "kustomize", mine], capture_output=True, text=True)
    check(done.returncode == 0 and not done.stderr, f"{components}: {done.stderr.strip()}")
    return list(yaml.safe_load_all(done.stdout))


def seconds(text):
    return int(re.fullmatch(r"(\d+)(s|m)", text).group(1)) * (60 if text.endswith("m") else 1)


def check_container(where, container, volumes):
    for mount in container.get("volumeMounts", []):
        check(mount["name"] in volumes, f"{where}: no volume {mount['name']}")
    named = {entry["name"] for entry in container.get("env", [])}
    for word in container.get("command", []) + container.get("args", []):
        for name in re.findall(r"\$\((\w+)\)", word):
            check(name in named, f"{where}: no variable {name}")
    ports = {port["name"] for port in container.get("ports", [])}
    for key in ("livenessProbe", "readinessProbe"):
        for way in ("httpGet", "tcpSocket"):
            port = container.get(key, {}).get(way, {}).get("port")
            check(port is None or port in ports, f"{where}: no port {port} for {key}")
    confined = container.get("securityContext", {})
    check(confined.get("allowPrivilegeEscalation") is False and confined.get("readOnlyRootFilesystem") is True
          and confined.get("capabilities", {}).get("drop") == ["ALL"], f"{where} is not confined")


def check_pods(item, names):
    where, spec = f"{item['kind']} {item['metadata']['name']}", item["spec"]
    pod = spec["template"]["spec"]
    volumes = {volume["name"] for volume in pod.get("volumes", [])}
    volumes |= {claim["metadata"]["name"] for claim in spec.get("volumeClaimTemplates", [])}
    check(matches(spec["selector"], spec["template"]["metadata"]["labels"]), f"{where} does not select its pods")
    check(("ServiceAccount", pod["serviceAccountName"]) in names, f"{where}: no such account")
    check(pod["automountServiceAccountToken"] is False, f"{where} has a token")
    confined = pod["securityContext"]
    check(confined["runAsNonRoot"] and confined["seccompProfile"]["type"] == "RuntimeDefault",
          f"{where}: runAsNonRoot, seccompProfile")
    if "serviceName" in spec:
        check(("Service", spec["serviceName"]) in names, f"{where}: no service {spec['serviceName']}")
    for volume in pod.get("volumes", []):
        for source, key, kind in (("configMap", "name", "ConfigMap"),
                                  ("persistentVolumeClaim", "claimName", "PersistentVolumeClaim")):
            if source in volume:
                check((kind, volume[source][key]) in names, f"{where}: no {kind} {volume[source][key]}")
        if "secret" in volume:
            secret = volume["secret"]["secretName"]
            check(secret in SECRETS, f"{where}: who makes secret {secret}?")
    for container in pod.get("initContainers", []) + pod["containers"]:
        check_container(f"{where}, {container['name']}", container, volumes)


def matches(selector, labels):
    wanted = selector.get("matchLabels", selector)
    return bool(wanted) and wanted.items() <= labels.items()


def selected(selector, items):
    """The ports of the pods that a selector finds."""
    return [{port["name"] for container in item["spec"]["template"]["spec"]["containers"] for port in container["ports"]}
            for item in items if "template" in item.get("spec", {})
            and matches(selector, item["spec"]["template"]["metadata"]["labels"])]


def check_selector(item, items):
    """Services, budgets, policies and monitors select the pods of one set, which have the ports that they name."""
    spec = item["spec"]
    found = selected(spec.get("selector") or spec.get("podSelector"), items)
    where = f"{item['kind']} {item['metadata']['name']}"
    check(len(found) == 1, f"{where} selects {len(found)} sets of pods")
    wanted = [port["targetPort"] for port in spec.get("ports", [])]
    wanted += [port["port"] for rule in spec.get("ingress", []) for port in rule.get("ports", [])]
    wanted += [endpoint["port"] for endpoint in spec.get("podMetricsEndpoints", [])]
    for port in wanted:
        check(found and port in found[0], f"{where}: no port {port}")
    for rule in spec.get("ingress", []):
        for peer in rule.get("from", []):
            labels = peer["podSelector"]["matchLabels"]
            check("rubato.dev/client" in labels or selected(peer["podSelector"], items), f"{where}: nobody is {labels}")


def check_all(name, items):
    names = {(item["kind"], item["metadata"]["name"]) for item in items}
    check(len(names) == len(items), f"{name}: two objects of one name")
    for item in items:
        bad.extend(f"{name}: {line}" for line in misspelt(item))
        if item["kind"] != "Namespace":
            check(("Namespace", item["metadata"].get("namespace")) in names, f"{name}: {item['metadata']} is nowhere")
        if "template" in item.get("spec", {}):
            check_pods(item, names)
        elif "selector" in item.get("spec", {}) or "podSelector" in item.get("spec", {}):
            check_selector(item, items)


def find(items, kind, start):
    return next(item for item in items if item["kind"] == kind and item["metadata"]["name"].startswith(start))


def check_words(items):
    """The grace period suffices for leaveTimeout; docs/kubernetes.md has both, the secrets and the label of nodes."""
    settings = yaml.safe_load(find(items, "ConfigMap", "rubatod")["data"]["rubatod.yaml"])
    pod = find(items, "DaemonSet", "rubatod")["spec"]["template"]["spec"]
    leaves, grace = seconds(settings["leaveTimeout"]), pod["terminationGracePeriodSeconds"]
    check(grace >= leaves + 5, f"terminationGracePeriodSeconds {grace} is too short for leaveTimeout {leaves} s")
    with open(os.path.join(root, "docs/kubernetes.md")) as file:
        page = file.read()
    for word in (*SECRETS, *pod["nodeSelector"], f"`leaveTimeout` ({leaves} s)", f"({grace} s)"):
        check(word in page, f"docs/kubernetes.md does not say {word}")


def check_versions():
    """The image is of this version, and its user is the one that the pods name."""
    with open(os.path.join(root, "deploy/Containerfile")) as file:
        recipe = file.read()
    version = subprocess.run([rubatod, "--version"], capture_output=True, text=True, check=True).stdout.split()[1]
    tag = read(BASE, "kustomization.yaml")[0]["images"][0]["newTag"]
    label = re.search(r'image\.version="([^"]*)"', recipe).group(1)
    check(tag == version == label, f"rubatod is {version}, the manifests' image {tag}, the Containerfile's {label}")
    check("\nUSER 10001:10001\n" in recipe, "the image's user is not 10001")


base = rendered()
components = sorted(name for name in os.listdir(FOLDER) if name != "base")
for chosen in ([], *([name] for name in components), components):
    items = rendered(*chosen)
    if items:
        check_all(" and ".join(["base", *chosen]), items)
check_words(base)
check_versions()
if not bad:
    bad = run_all(root, rubatod, base)
print("\n".join(bad) or f"{len(base)} objects")
sys.exit(bool(bad))
