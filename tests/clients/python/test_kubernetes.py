"""The official Python client: typed, dynamic, custom objects, watches, apply, leader election, tokens."""

import os
import pathlib
import subprocess
import sys
import unittest
import uuid

import yaml
from kubernetes import client, config, dynamic, watch
from kubernetes.client.rest import ApiException

PATIENCE = 60

CROP = yaml.safe_load("""
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: crops.farm.example.com}
spec:
  group: farm.example.com
  names: {plural: crops, singular: crop, kind: Crop, shortNames: [cr]}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}, scale: {specReplicasPath: .spec.rows, statusReplicasPath: .status.rows}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            required: [plant]
            properties:
              plant: {type: string, minLength: 3}
              rows: {type: integer, default: 1}
          status:
            type: object
            properties:
              rows: {type: integer}
""")


def refused(call):
    """The status and reason with which the server refuses a call."""
    try:
        call()
    except ApiException as error:
        return error.status, yaml.safe_load(error.body)["reason"]
    raise AssertionError("it was not refused")


class Kubernetes(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        config.load_kube_config(os.environ["KUBECONFIG"])
        cls.core = client.CoreV1Api()
        cls.custom = client.CustomObjectsApi()
        cls.namespace = f"python-{uuid.uuid4().hex[:8]}"
        cls.core.create_namespace(client.V1Namespace(metadata=client.V1ObjectMeta(name=cls.namespace)))
        definitions = client.ApiextensionsV1Api()
        definitions.create_custom_resource_definition(CROP)
        wait_for(
            watch.Watch().stream(
                definitions.list_custom_resource_definition,
                field_selector="metadata.name=crops.farm.example.com",
                timeout_seconds=PATIENCE,
            ),
            lambda event: any(
                condition.type == "Established" and condition.status == "True"
                for condition in event["object"].status.conditions or []
            ),
        )

    def map(self, name, **data):
        return client.V1ConfigMap(metadata=client.V1ObjectMeta(name=name, labels={"app": name}), data=data)

    def test_an_object_is_created_read_changed_and_deleted(self):
        made = self.core.create_namespaced_config_map(self.namespace, self.map("life", color="red"))
        self.assertEqual(made.data, {"color": "red"})
        patched = self.core.patch_namespaced_config_map("life", self.namespace, {"data": {"size": "7"}})
        self.assertEqual(patched.data, {"color": "red", "size": "7"})
        made.data = {"color": "blue"}
        self.assertEqual(
            refused(lambda: self.core.replace_namespaced_config_map("life", self.namespace, made)), (409, "Conflict")
        )
        patched.data = {"color": "blue"}
        replaced = self.core.replace_namespaced_config_map("life", self.namespace, patched)
        self.assertEqual(replaced.data, {"color": "blue"})
        self.core.delete_namespaced_config_map("life", self.namespace)
        self.assertEqual(
            refused(lambda: self.core.read_namespaced_config_map("life", self.namespace)), (404, "NotFound")
        )

    def test_what_exists_is_not_made_again(self):
        self.core.create_namespaced_config_map(self.namespace, self.map("twice"))
        again = lambda: self.core.create_namespaced_config_map(self.namespace, self.map("twice"))
        self.assertEqual(refused(again), (409, "AlreadyExists"))

    def test_lists_are_selected_and_come_in_pages(self):
        for number in range(7):
            self.core.create_namespaced_config_map(
                self.namespace,
                client.V1ConfigMap(metadata=client.V1ObjectMeta(name=f"page-{number}", labels={"book": "one"})),
            )
        names, token = [], None
        while token != "":
            page = self.core.list_namespaced_config_map(
                self.namespace, label_selector="book=one", limit=3, _continue=token
            )
            self.assertLessEqual(len(page.items), 3)
            names += [item.metadata.name for item in page.items]
            token = page.metadata._continue or ""
        self.assertEqual(names, [f"page-{number}" for number in range(7)])
        one = self.core.list_namespaced_config_map(self.namespace, field_selector="metadata.name=page-3")
        self.assertEqual([item.metadata.name for item in one.items], ["page-3"])

    def test_a_watch_tells_every_change_in_order(self):
        start = self.core.list_namespaced_config_map(self.namespace).metadata.resource_version
        made = self.core.create_namespaced_config_map(self.namespace, self.map("watched", n="1"))
        self.core.patch_namespaced_config_map("watched", self.namespace, {"data": {"n": "2"}})
        self.core.delete_namespaced_config_map("watched", self.namespace)
        seen = []
        stream = watch.Watch().stream(
            self.core.list_namespaced_config_map,
            self.namespace,
            label_selector="app=watched",
            resource_version=start,
            timeout_seconds=PATIENCE,
        )
        for event in stream:
            seen.append((event["type"], event["object"].data["n"]))
            self.assertEqual(event["object"].metadata.uid, made.metadata.uid)
            if event["type"] == "DELETED":
                break
        self.assertEqual(seen, [("ADDED", "1"), ("MODIFIED", "2"), ("DELETED", "2")])

    def test_custom_objects_follow_their_schema(self):
        crop = {
            "apiVersion": "farm.example.com/v1",
            "kind": "Crop",
            "metadata": {"name": "oats"},
            "spec": {"plant": "oats"},
        }
        place = ("farm.example.com", "v1", self.namespace, "crops")
        made = self.custom.create_namespaced_custom_object(*place, crop)
        self.assertEqual(made["spec"], {"plant": "oats", "rows": 1})
        self.custom.patch_namespaced_custom_object_status(*place, "oats", {"status": {"rows": 1}})
        self.custom.patch_namespaced_custom_object_scale(*place, "oats", {"spec": {"replicas": 4}})
        read = self.custom.get_namespaced_custom_object(*place, "oats")
        self.assertEqual((read["spec"]["rows"], read["status"]["rows"]), (4, 1))
        crop["metadata"]["name"] = "no"
        crop["spec"]["plant"] = "x"
        self.assertEqual(
            refused(lambda: self.custom.create_namespaced_custom_object(*place, crop)), (422, "Invalid")
        )

    def test_the_dynamic_client_finds_kinds_and_applies(self):
        api = dynamic.DynamicClient(client.ApiClient())
        crops = api.resources.get(api_version="farm.example.com/v1", kind="Crop")
        self.assertTrue(crops.namespaced)
        body = {"apiVersion": "farm.example.com/v1", "kind": "Crop", "metadata": {"name": "rye"}}
        body["spec"] = {"plant": "rye", "rows": 2}
        applied = crops.server_side_apply(body=body, namespace=self.namespace, field_manager="one")
        self.assertEqual(applied.spec.rows, 2)
        body["spec"]["rows"] = 3
        other = lambda **more: crops.server_side_apply(
            body=body, namespace=self.namespace, field_manager="two", **more
        )
        with self.assertRaises(dynamic.exceptions.ConflictError):
            other()
        self.assertEqual(other(force_conflicts=True).spec.rows, 3)

    def test_another_takes_over_from_a_leader_that_was_killed(self):
        name = "leader"
        candidate = lambda identity: subprocess.Popen(
            [sys.executable, pathlib.Path(__file__).with_name("candidate.py"), self.namespace, name, identity],
            stdout=subprocess.PIPE,
            text=True,
        )
        first = candidate("first")
        try:
            self.assertEqual(first.stdout.readline(), "first leads\n")
        finally:
            first.kill()
            first.wait()
            first.stdout.close()
        lease = client.CoordinationV1Api().read_namespaced_lease(name, self.namespace)
        self.assertEqual(lease.spec.holder_identity, "first")
        second = candidate("second")
        try:
            self.assertEqual(second.stdout.readline(), "second leads\n")
        finally:
            second.kill()
            second.wait()
            second.stdout.close()
        lease = client.CoordinationV1Api().read_namespaced_lease(name, self.namespace)
        self.assertEqual(lease.spec.holder_identity, "second")

    def test_an_account_may_what_its_role_says(self):
        name = "reader"
        self.core.create_namespaced_service_account(
            self.namespace, client.V1ServiceAccount(metadata=client.V1ObjectMeta(name=name))
        )
        request = client.AuthenticationV1TokenRequest(spec=client.V1TokenRequestSpec(audiences=[]))
        token = self.core.create_namespaced_service_account_token(name, self.namespace, request)
        settings = client.Configuration.get_default_copy()
        settings.cert_file = settings.key_file = None
        settings.api_key = {"authorization": f"Bearer {token.status.token}"}
        theirs = client.CoreV1Api(client.ApiClient(settings))
        self.assertEqual(refused(lambda: theirs.list_namespaced_config_map(self.namespace)), (403, "Forbidden"))
        access = client.RbacAuthorizationV1Api()
        access.create_namespaced_role(
            self.namespace,
            client.V1Role(
                metadata=client.V1ObjectMeta(name=name),
                rules=[client.V1PolicyRule(api_groups=[""], resources=["configmaps"], verbs=["list"])],
            ),
        )
        access.create_namespaced_role_binding(
            self.namespace,
            client.V1RoleBinding(
                metadata=client.V1ObjectMeta(name=name),
                role_ref=client.V1RoleRef(api_group="rbac.authorization.k8s.io", kind="Role", name=name),
                subjects=[client.RbacV1Subject(kind="ServiceAccount", name=name, namespace=self.namespace)],
            ),
        )
        theirs.list_namespaced_config_map(self.namespace)
        self.assertEqual(refused(lambda: theirs.list_namespaced_secret(self.namespace)), (403, "Forbidden"))
        who = client.AuthenticationV1Api(client.ApiClient(settings)).create_self_subject_review({})
        self.assertEqual(who.status.user_info.username, f"system:serviceaccount:{self.namespace}:{name}")


def wait_for(events, is_it):
    for event in events:
        if is_it(event):
            return event
    raise AssertionError("it did not come to pass")
