"""kopf: an operator with handlers for creation, change and deletion."""

import os
import pathlib
import subprocess
import sys
import unittest
import uuid

import yaml
from kubernetes import client, config, watch

PATIENCE = 90

HERD = yaml.safe_load("""
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: herds.kopf.example.com}
spec:
  group: kopf.example.com
  names: {plural: herds, singular: herd, kind: Herd}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, x-kubernetes-preserve-unknown-fields: true}
          status: {type: object, x-kubernetes-preserve-unknown-fields: true}
""")


class Kopf(unittest.TestCase):
    def test_an_operator_makes_changes_and_cleans_up(self):
        config.load_kube_config(os.environ["KUBECONFIG"])
        core, custom = client.CoreV1Api(), client.CustomObjectsApi()
        namespace = f"kopf-{uuid.uuid4().hex[:8]}"
        core.create_namespace(client.V1Namespace(metadata=client.V1ObjectMeta(name=namespace)))
        client.ApiextensionsV1Api().create_custom_resource_definition(HERD)
        log = open(pathlib.Path(os.environ["SCRATCH"], "kopf.log"), "w")
        here = pathlib.Path(__file__).parent
        operator = subprocess.Popen(
            [sys.executable, "-m", "kopf", "run", "--namespace", namespace, "--verbose", here / "herd_operator.py"],
            stdout=log,
            stderr=log,
        )
        try:
            place = ("kopf.example.com", "v1", namespace, "herds")

            def until(is_it):
                stream = watch.Watch().stream(
                    custom.list_namespaced_custom_object, *place, timeout_seconds=PATIENCE
                )
                for event in stream:
                    if is_it(event):
                        return event["object"]
                self.fail(f"it did not come to pass; see {log.name}")

            herd = {
                "apiVersion": "kopf.example.com/v1",
                "kind": "Herd",
                "metadata": {"name": "goats"},
                "spec": {"heads": 3},
            }
            custom.create_namespaced_custom_object(*place, herd)
            made = until(lambda event: event["object"].get("status", {}).get("made", {}).get("heads") == 3)
            self.assertEqual(made["metadata"]["finalizers"], ["kopf.zalando.org/KopfFinalizerMarker"])
            self.assertEqual(core.read_namespaced_config_map("goats", namespace).data, {"heads": "3"})
            owners = core.read_namespaced_config_map("goats", namespace).metadata.owner_references
            self.assertEqual([owner.uid for owner in owners], [made["metadata"]["uid"]])

            custom.patch_namespaced_custom_object(*place, "goats", {"spec": {"heads": 5}})
            until(lambda event: event["object"].get("status", {}).get("changed/spec.heads", {}).get("heads") == 5)
            self.assertEqual(core.read_namespaced_config_map("goats", namespace).data, {"heads": "5"})

            start = custom.list_namespaced_custom_object(*place)["metadata"]["resourceVersion"]
            custom.delete_namespaced_custom_object(*place, "goats")
            stream = watch.Watch().stream(
                custom.list_namespaced_custom_object, *place, resource_version=start, timeout_seconds=PATIENCE
            )
            self.assertTrue(any(event["type"] == "DELETED" for event in stream), "the finalizer stayed")
            self.assertEqual(core.read_namespaced_config_map("goats", namespace).data, {"heads": "0"})
            events = watch.Watch().stream(core.list_namespaced_event, namespace, timeout_seconds=PATIENCE)
            told = next(event["object"] for event in events if event["object"].reason == "Made")
            self.assertEqual(told.involved_object.uid, made["metadata"]["uid"])
        finally:
            operator.terminate()
            self.assertEqual(operator.wait(PATIENCE), 0)
            log.close()
