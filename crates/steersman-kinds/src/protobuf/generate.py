#!/usr/bin/env python3
"""Makes messages.deflate: the field numbers of the built-in kinds' protobuf form.

    for m in api apimachinery apiextensions-apiserver kube-aggregator; do go mod download k8s.io/$m@v0.36.2; done
    python3 generate.py "$(go env GOMODCACHE)/k8s.io" messages.deflate

One line a message: its name as the schema crate names definitions, a tab, its fields parted by blanks, each `NUMBER:NAME:TYPE`.
TYPE is s (string), b (bytes), i (integer), t (truth), d (double), or the name of a message; `[]` before it means a list, `{}` a map of
such values. An empty NAME means that the fields of the message are fields of the one it is in. Facts of the .proto files alone.
"""
import pathlib, re, sys, zlib

MODULES = ["api", "apimachinery", "apiextensions-apiserver", "kube-aggregator"]
SCALARS = {"string": "s", "bytes": "b", "bool": "t", "double": "d", "int32": "i", "int64": "i", "uint32": "i", "uint64": "i"}
# Fields whose message is part of the one around it in JSON, and where.
INLINE = {
    "deviceConfiguration": {"DeviceAllocationConfiguration", "DeviceClaimConfiguration", "DeviceClassConfiguration"},
    "ephemeralContainerCommon": {"EphemeralContainer"},
    "handler": {"Probe"},
    "ingressRuleValue": {"IngressRule"},
    "localObjectReference": {"ConfigMapEnvSource", "ConfigMapKeySelector", "ConfigMapProjection", "ConfigMapVolumeSource",
                             "SecretEnvSource", "SecretKeySelector", "SecretProjection"},
    "persistentVolumeSource": {"PersistentVolumeSpec"},
    "rule": {"RuleWithOperations"},
    "ruleWithOperations": {"NamedRuleWithOperations"},
    "volumeSource": {"Volume"},
}
# Names that are others in JSON.
NAMES = {"Expression": "expression", "Name": "name", "Webhooks": "webhooks", "aPIGroup": "apiGroup", "uID": "uid"}
RENAMED = {"JSONSchemaProps": lambda name: {"schema": "$schema", "ref": "$ref"}.get(name, re.sub(
    r"^xKubernetes(.*)$", lambda m: "x-kubernetes" + re.sub(r"[A-Z]", lambda c: "-" + c[0].lower(), m[1]), name))}


def definition(package, name):
    """`k8s.io.api.core.v1` is `io.k8s.api.core.v1` in definitions."""
    return re.sub(r"^k8s\.io\.", "io.k8s.", package).replace("_", "-") + "." + name


def messages(text):
    text = re.sub(r"//[^\n]*", "", text)
    package = re.search(r"package ([\w.]+);", text)[1]
    for name, body in re.findall(r"message (\w+) \{(.*?)\n\}", text, re.S):
        yield package, name, body


def fields(package, message, body):
    pattern = r"(optional|repeated|required|map<string,\s*([.\w]+)>)\s+(?:([.\w]+)\s+)?(\w+) = (\d+)"
    for label, map_type, kind, name, number in re.findall(pattern, body):
        kind = map_type or kind
        form = "{}" if map_type else "[]" if label == "repeated" else ""
        if kind in SCALARS:
            kind = SCALARS[kind]
        elif "." in kind:
            kind = definition(*kind.lstrip(".").rsplit(".", 1))
        else:
            kind = definition(package, kind)
        if message in INLINE.get(name, ()):
            name = ""
        name = NAMES.get(name, name)
        yield f"{number}:{RENAMED.get(message, str)(name)}:{form}{kind}"


def main(root, out):
    lines = []
    for module in MODULES:
        newest = sorted(pathlib.Path(root).glob(module + "@v0.36.*"))[-1]
        for path in sorted(newest.rglob("generated.proto")):
            for package, name, body in messages(path.read_text()):
                lines.append(f"{definition(package, name)}\t{' '.join(fields(package, name, body))}")
    # The common lead of all names is left out.
    text = "\n".join(sorted(lines)).replace("io.k8s.", "~")
    packed = zlib.compressobj(9, zlib.DEFLATED, -15)
    pathlib.Path(out).write_bytes(packed.compress(text.encode()) + packed.flush())
    print(len(lines), "messages,", len(text), "bytes as text")


main(*sys.argv[1:])
