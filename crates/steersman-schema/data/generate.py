#!/usr/bin/env python3
"""Makes definitions.deflate, the table of built-in definitions that steersman-schema embeds. See README.md.

    generate.py DEFINITIONS.json GO_MODULES OUT

DEFINITIONS.json  kubernetes_validate/kubernetes-json-schema/v1.36.0-local/_definitions.json of the PyPI package kubernetes-validate
GO_MODULES        a folder with the modules k8s.io/{api,apimachinery,apiextensions-apiserver,kube-aggregator}@v0.36.2

Facts only: types, keys, merge rules, and from the Go structs' tags which empty values are written. No prose is read or kept.
"""
import json
import pathlib
import re
import sys
import zlib

MODULES = {
    "io.k8s.api.": "api",
    "io.k8s.apimachinery.": "apimachinery",
    "io.k8s.apiextensions-apiserver.": "apiextensions-apiserver",
    "io.k8s.kube-aggregator.": "kube-aggregator",
}
GO_VERSION = "v0.36.2"
# Types that are more than their JSON type says; what the package makes of them is replaced as a whole.
SPECIAL = {
    "io.k8s.apimachinery.pkg.api.resource.Quantity": {"type": "string", "x-special": "Quantity"},
    "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1": {"type": "object", "x-special": "FieldsV1"},
    "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime": {"type": "string", "format": "date-time", "x-special": "MicroTime"},
    "io.k8s.apimachinery.pkg.apis.meta.v1.Time": {"type": "string", "format": "date-time", "x-special": "Time"},
    "io.k8s.apimachinery.pkg.runtime.RawExtension": {"type": "object", "x-special": "RawExtension"},
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": {
        "x-kubernetes-int-or-string": True, "format": "int-or-string", "x-special": "IntOrString"},
    **{"io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1." + name: {"x-special": "Json"}
       for name in ("JSON", "JSONSchemaPropsOrArray", "JSONSchemaPropsOrBool", "JSONSchemaPropsOrStringArray")},
}
KEEP = ("format", "x-kubernetes-list-type", "x-kubernetes-list-map-keys", "x-kubernetes-map-type",
        "x-kubernetes-patch-strategy", "x-kubernetes-patch-merge-key")
REF = "#/$defs/"


def clean(schema):
    """The schema without prose and without what the package added: `null` beside each type, `enum` of one kind."""
    out = {}
    if "$ref" in schema:
        out["$ref"] = schema["$ref"].removeprefix(REF)
    kind = schema.get("type")
    if kind:
        out["type"] = kind if isinstance(kind, str) else next(t for t in kind if t != "null")
    out.update((key, schema[key]) for key in KEEP if key in schema)
    if schema.get("format") == "byte":
        out["x-special"] = "Bytes"
    if "properties" in schema:
        out["properties"] = {name: clean(each) for name, each in schema["properties"].items()}
    if "required" in schema:
        out["required"] = sorted(schema["required"])
    if "items" in schema:
        out["items"] = clean(schema["items"])
    if isinstance(schema.get("additionalProperties"), dict):
        out["additionalProperties"] = clean(schema["additionalProperties"])
    return out


STRUCT = re.compile(r"^type (\w+) struct \{$")
ALIAS = re.compile(r"^type (\w+) =? ?([\w.]+)$")
FIELD = re.compile(r"^\t(?:(\w+)\s+)?([\w.*\[\]]+)\s*(?:`(.*)`)?(?:\s*//.*)?$")
TAG = re.compile(r'json:"([^"]*)"')
DEFAULT = re.compile(r"^\s*// ?\+default=(.*)$")


class Structs:
    """Go structs by (folder, name): their fields as (json name, Go type, tag options, default)."""

    def __init__(self, modules):
        self.modules, self.read = modules, {}

    def folder(self, definition):
        for prefix, module in MODULES.items():
            if definition.startswith(prefix):
                return f"{module}@{GO_VERSION}/" + "/".join(definition.removeprefix(prefix).split(".")[:-1])
        raise SystemExit(f"no module holds {definition}")

    def of(self, folder):
        if folder not in self.read:
            found = self.read[folder] = {}
            for path in sorted((self.modules / folder).glob("*.go")):
                if not path.name.startswith("zz_") and not path.name.endswith(("_test.go", ".pb.go")):
                    self.parse(path.read_text(), found)
        return self.read[folder]

    def parse(self, text, found):
        fields, default = None, None
        for line in text.splitlines():
            if fields is None:
                if match := STRUCT.match(line):
                    fields = found[match[1]] = []
                elif match := ALIAS.match(line):
                    found.setdefault(match[1], match[2])
                continue
            if line == "}":
                fields = None
            elif match := DEFAULT.match(line):
                default = match[1]
            elif (match := FIELD.match(line)) and not line.strip().startswith("//"):
                name, kind, tag = match.groups()
                json_name, *options = (TAG.search(tag or "") or [None, ""])[1].split(",")
                if json_name != "-":
                    fields.append((json_name or (name if tag and "inline" not in options else None), kind, options, default))
                default = None

    def fields(self, folder, name):
        struct = self.of(folder).get(name, [])
        if isinstance(struct, str):
            return self.foreign(folder, struct)
        out = {}
        for json_name, kind, options, default in struct:
            if json_name:
                out[json_name] = (kind, options, default)
            else:
                out = self.foreign(folder, kind.lstrip("*")) | out
        return out

    def foreign(self, folder, kind):
        """The fields of a struct that another one embeds or is an alias of; `v1` is one of three packages."""
        package, _, name = kind.rpartition(".")
        if not package:
            return self.fields(folder, name)
        for where in ("apimachinery@{}/pkg/apis/meta/v1", "api@{}/core/v1", "api@{}/admissionregistration/v1"):
            if found := self.fields(where.format(GO_VERSION), name):
                return found
        raise SystemExit(f"{folder} embeds {kind}, which is nowhere")


def zero(kind, options, schema, definitions):
    """What encoding/json makes of a field's zero value: `omit`, `null`, `write`, or None where only a pointer can say so."""
    empty = "omitempty" in options or "omitzero" in options
    if kind.startswith("*"):
        return None if empty else "null"
    target = schema
    if "$ref" in schema:
        target = definitions[schema["$ref"]]
    if "omitzero" in options:
        return "omit"
    if target.get("x-special") in ("Time", "MicroTime", "RawExtension", "FieldsV1", "Json"):
        return "null"
    is_struct = target.get("type") == "object" and "additionalProperties" not in target
    if is_struct or target.get("x-special") in ("IntOrString", "Quantity"):
        return "write"
    if empty:
        return "omit"
    return "null" if target.get("type") in ("array", "object") or target.get("x-special") == "Bytes" else "write"


# Lists that validation tells from absent ones, although they are written alike.
REFUSED_WHEN_EMPTY = {("io.k8s.api.autoscaling.v2.HPAScalingRules", "policies")}


def main(source, modules, out):
    source = json.loads(pathlib.Path(source).read_text())["$defs"]
    definitions = {name: SPECIAL.get(name) or clean(schema) for name, schema in source.items()}
    structs, missing = Structs(pathlib.Path(modules)), []
    for name, schema in definitions.items():
        # version.Info is the answer of a path, not an object that is read.
        if "properties" not in schema or name == "io.k8s.apimachinery.pkg.version.Info":
            continue
        fields = structs.fields(structs.folder(name), name.rsplit(".", 1)[1])
        for field, each in schema["properties"].items():
            if field not in fields:
                missing.append(f"{name}.{field}")
                continue
            kind, options, default = fields[field]
            mark = zero(kind, options, each, definitions)
            if mark and (name, field) not in REFUSED_WHEN_EMPTY:
                each["x-zero"] = mark
            if default and not default.startswith("ref("):
                each["default"] = json.loads(default)
    if missing:
        raise SystemExit("no Go field for " + ", ".join(missing))
    lines = []
    for name, schema in source.items():
        for gvk in schema.get("x-kubernetes-group-version-kind", []):
            lines.append("\t".join(("", gvk["group"], gvk["version"], gvk["kind"], name)))
    for name in sorted(definitions):
        lines.append(name + "\t" + json.dumps(definitions[name], separators=(",", ":"), sort_keys=True))
    text = ("\n".join(lines) + "\n").encode()
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    packed = packer.compress(text) + packer.flush()
    pathlib.Path(out).write_bytes(packed)
    print(f"{len(definitions)} definitions, {len(text)} bytes, {len(packed)} packed")


if __name__ == "__main__":
    if len(sys.argv) != 4:
        raise SystemExit(__doc__)
    main(*sys.argv[1:])
