"""An operator as kopf's documentation teaches to write one: a ConfigMap for each Herd."""

import kopf
from kubernetes import client, config

config.load_kube_config()


@kopf.on.create("kopf.example.com", "v1", "herds")
def made(body, spec, name, namespace, **_):
    data = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"heads": str(spec["heads"])}}
    kopf.adopt(data)
    client.CoreV1Api().create_namespaced_config_map(namespace, data)
    kopf.info(body, reason="Made", message="its ConfigMap is there")
    return {"heads": spec["heads"]}


@kopf.on.update("kopf.example.com", "v1", "herds", field="spec.heads")
def changed(new, name, namespace, **_):
    client.CoreV1Api().patch_namespaced_config_map(name, namespace, {"data": {"heads": str(new)}})
    return {"heads": new}


@kopf.on.delete("kopf.example.com", "v1", "herds")
def gone(name, namespace, **_):
    client.CoreV1Api().patch_namespaced_config_map(name, namespace, {"data": {"heads": "0"}})
