"""kopf: an operator with handlers for creation, change and deletion, and one with handlers for admission."""

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


FLOCK = yaml.safe_load("""
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: flocks.kopf.example.com}
spec:
  group: kopf.example.com
  names: {plural: flocks, singular: flock, kind: Flock}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, properties: {heads: {type: integer}, breed: {type: string}}}
""")


class Kopf(unittest.TestCase):
    def test_admission_handlers_change_and_refuse(self):
        config.load_kube_config(os.environ["KUBECONFIG"])
        custom, hooks = client.CustomObjectsApi(), client.AdmissionregistrationV1Api()
        client.ApiextensionsV1Api().create_custom_resource_definition(FLOCK)
        log = open(pathlib.Path(os.environ["SCRATCH"], "kopf-admission.log"), "w")
        here = pathlib.Path(__file__).parent
        operator = subprocess.Popen(
            [sys.executable, "-m", "kopf", "run", "--all-namespaces", "--verbose", here / "flock_operator.py"],
            stdout=log,
            stderr=log,
        )
        place = ("kopf.example.com", "v1", "default", "flocks")

        def until(listing, is_it):
            for event in watch.Watch().stream(listing, timeout_seconds=PATIENCE):
                found = event["object"].webhooks or []
                if is_it(found):
                    return found
            self.fail(f"it did not come to pass; see {log.name}")

        def flock(name, **spec):
            body = {"apiVersion": "kopf.example.com/v1", "kind": "Flock", "metadata": {"name": name}, "spec": spec}
            return custom.create_namespaced_custom_object_with_http_info(*place, body)

        try:
            until(hooks.list_mutating_webhook_configuration, lambda found: len(found) == 1 and found[0].rules)
            until(hooks.list_validating_webhook_configuration, lambda found: len(found) == 2 and found[0].rules)
            made, _, headers = flock("geese", heads=7)
            self.assertEqual(made["spec"], {"heads": 7, "breed": "common"})
            self.assertEqual(headers["warning"], '299 - "the breed was not set and is common"')

            with self.assertRaises(client.ApiException) as refused:
                flock("none", heads=0, breed="any")
            self.assertEqual(refused.exception.status, 422)
            message = yaml.safe_load(refused.exception.body)["message"]
            name = "heads.flocks.kopf.example.com"
            self.assertEqual(message, f'admission webhook "{name}" denied the request: a flock has heads')

            grazes = {"metadata": {"labels": {"grazes": "yes"}}}
            custom.patch_namespaced_custom_object(*place, "geese", grazes)
            with self.assertRaises(client.ApiException) as refused:
                custom.delete_namespaced_custom_object(*place, "geese")
            self.assertIn("it grazes, ", yaml.safe_load(refused.exception.body)["message"])
            custom.patch_namespaced_custom_object(*place, "geese", {"metadata": {"labels": None}})
            custom.delete_namespaced_custom_object(*place, "geese")
        finally:
            operator.terminate()
            self.assertEqual(operator.wait(PATIENCE), 0)
            log.close()
        # It takes its webhooks back at its end.
        self.assertFalse(hooks.read_validating_webhook_configuration("flocks.kopf.example.com").webhooks)
        made, _, _ = flock("none", heads=0)
        self.assertEqual(made["spec"], {"heads": 0})

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
            # The handler emptied what the herd had; being the herd's, it is collected after it.
            stream = watch.Watch().stream(
                core.list_namespaced_config_map,
                namespace,
                field_selector="metadata.name=goats",
                resource_version=start,
                timeout_seconds=PATIENCE,
            )
            seen = []
            for event in stream:
                seen.append((event["type"], event["object"].data))
                if event["type"] == "DELETED":
                    break
            self.assertEqual(seen, [("MODIFIED", {"heads": "0"}), ("DELETED", {"heads": "0"})])
            events = watch.Watch().stream(core.list_namespaced_event, namespace, timeout_seconds=PATIENCE)
            told = next(event["object"] for event in events if event["object"].reason == "Made")
            self.assertEqual(told.involved_object.uid, made["metadata"]["uid"])
        finally:
            operator.terminate()
            self.assertEqual(operator.wait(PATIENCE), 0)
            log.close()
