# SPDX-License-Identifier: Apache-2.0
"""The keys that deploy/kubernetes uses of each kind of object, and no others: kubectl kustomize lets misspelt ones pass.

A dict has these keys; a list of one item has items like it; ANY is a scalar, a map with names of one's own, or a value
that needs no check.  A new key that deploy/kubernetes uses is added here."""

ANY = None
METADATA = {"name": ANY, "namespace": ANY, "labels": ANY, "annotations": ANY}
SELECTOR = {"matchLabels": ANY}
RESOURCES = {"requests": ANY, "limits": ANY}
CONFINED = {"runAsNonRoot": ANY, "runAsUser": ANY, "allowPrivilegeEscalation": ANY, "readOnlyRootFilesystem": ANY,
            "capabilities": {"drop": ANY, "add": ANY}}
FROM = {"fieldRef": {"fieldPath": ANY}, "resourceFieldRef": {"containerName": ANY, "resource": ANY}}
PROBE = {"httpGet": {"path": ANY, "port": ANY}, "tcpSocket": {"port": ANY}, "initialDelaySeconds": ANY,
         "periodSeconds": ANY, "timeoutSeconds": ANY, "failureThreshold": ANY}
CONTAINER = {
    "name": ANY, "image": ANY, "command": ANY, "args": ANY,
    "env": [{"name": ANY, "value": ANY, "valueFrom": FROM}],
    "ports": [{"name": ANY, "containerPort": ANY, "protocol": ANY}],
    "livenessProbe": PROBE, "readinessProbe": PROBE,
    "resources": RESOURCES, "securityContext": CONFINED,
    "volumeMounts": [{"name": ANY, "mountPath": ANY, "readOnly": ANY}],
}
AFFINITY = {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
    {"weight": ANY, "podAffinityTerm": {"topologyKey": ANY, "labelSelector": SELECTOR}}]}}
POD = {
    "nodeSelector": ANY, "tolerations": [{"key": ANY, "operator": ANY, "effect": ANY}], "affinity": AFFINITY,
    "serviceAccountName": ANY, "automountServiceAccountToken": ANY, "enableServiceLinks": ANY,
    "terminationGracePeriodSeconds": ANY,
    "securityContext": {"runAsNonRoot": ANY, "runAsUser": ANY, "runAsGroup": ANY, "fsGroup": ANY,
                        "fsGroupChangePolicy": ANY, "seccompProfile": {"type": ANY}},
    "initContainers": [CONTAINER], "containers": [CONTAINER],
    "volumes": [{"name": ANY, "configMap": {"name": ANY}, "secret": {"secretName": ANY, "defaultMode": ANY},
                 "emptyDir": {"medium": ANY, "sizeLimit": ANY}, "hostPath": {"path": ANY, "type": ANY},
                 "persistentVolumeClaim": {"claimName": ANY}}],
}
TEMPLATE = {"metadata": METADATA, "spec": POD}
CLAIM = {"accessModes": ANY, "resources": RESOURCES, "storageClassName": ANY}
POLICY_PORTS = [{"protocol": ANY, "port": ANY}]

KEYS = {  # beside apiVersion, kind and metadata
    "v1/Namespace": {},
    "v1/ServiceAccount": {"automountServiceAccountToken": ANY},
    "v1/ConfigMap": {"data": ANY},
    "v1/PersistentVolumeClaim": {"spec": CLAIM},
    "v1/Service": {"spec": {"clusterIP": ANY, "publishNotReadyAddresses": ANY, "selector": ANY,
                            "ports": [{"name": ANY, "port": ANY, "targetPort": ANY, "protocol": ANY}]}},
    "policy/v1/PodDisruptionBudget": {"spec": {"maxUnavailable": ANY, "selector": SELECTOR}},
    "apps/v1/DaemonSet": {"spec": {
        "selector": SELECTOR, "template": TEMPLATE,
        "updateStrategy": {"type": ANY, "rollingUpdate": {"maxUnavailable": ANY}}}},
    "apps/v1/StatefulSet": {"spec": {
        "serviceName": ANY, "replicas": ANY, "podManagementPolicy": ANY, "selector": SELECTOR, "template": TEMPLATE,
        "volumeClaimTemplates": [{"metadata": METADATA, "spec": CLAIM, "apiVersion": ANY, "kind": ANY}]}},
    "networking.k8s.io/v1/NetworkPolicy": {"spec": {
        "podSelector": SELECTOR, "policyTypes": ANY,
        "ingress": [{"from": [{"podSelector": SELECTOR}], "ports": POLICY_PORTS}]}},
    "monitoring.coreos.com/v1/PodMonitor": {"spec": {
        "selector": SELECTOR, "podMetricsEndpoints": [{"port": ANY, "path": ANY}]}},
}


def strangers(value, keys, where):
    """The keys of `value` that `keys` does not have, a line each."""
    if keys is ANY:
        return []
    if isinstance(keys, list):
        items = value if isinstance(value, list) else []
        return ([] if isinstance(value, list) else [f"{where} is no list"]) + [
            line for i, item in enumerate(items) for line in strangers(item, keys[0], f"{where}[{i}]")]
    if not isinstance(value, dict):
        return [f"{where} is no map"]
    return [line for key, part in value.items() for line in (
        strangers(part, keys[key], f"{where}.{key}") if key in keys else [f"{where}.{key}: no such key is known here"])]


def misspelt(item):
    kind = f"{item.get('apiVersion')}/{item.get('kind')}"
    if kind not in KEYS:
        return [f"{kind}: no such kind is known here"]
    return strangers(item, {"apiVersion": ANY, "kind": ANY, "metadata": METADATA, **KEYS[kind]}, item["kind"])
