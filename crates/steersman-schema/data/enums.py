#!/usr/bin/env python3
"""Makes enums.txt, the values of the fields that take one of a few. See README.md.

    enums.py ZZ_GENERATED_OPENAPI_GO DEFINITIONS OUT

ZZ_GENERATED_OPENAPI_GO  pkg/generated/openapi/zz_generated.openapi.go of the Go module k8s.io/kubernetes@v1.36.2
DEFINITIONS              definitions.deflate; other definitions are left out

Facts only: names of fields and their values. No prose is read or kept.
"""
import pathlib
import re
import sys
import zlib

PACKAGES = {
    "k8sio_api_": "io.k8s.api.",
    "pkg_apis_apiextensions_": "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.",
    "pkg_apis_apiregistration_": "io.k8s.kube-aggregator.pkg.apis.apiregistration.",
    "pkg_apis_meta_": "io.k8s.apimachinery.pkg.apis.meta.",
}
FUNCTION = re.compile(r"^func schema_(\w+)\(ref .*?^}", re.S | re.M)
FIELD = re.compile(r'^\t{5}"(\w+)": \{')
VALUES = re.compile(r"^(\t+)Enum:\s+\[\]interface\{\}\{(.*)\}")
# How far the values of a field are indented; those of the items of a list are further.
OF_FIELD = 7


def main(source, definitions, out):
    table = zlib.decompress(pathlib.Path(definitions).read_bytes(), -15).decode()
    known = {line.split("\t")[0] for line in table.splitlines()}
    lines = []
    for function in FUNCTION.finditer(pathlib.Path(source).read_text()):
        prefix = next((prefix for prefix in PACKAGES if function[1].startswith(prefix)), None)
        if prefix is None:
            continue
        definition = PACKAGES[prefix] + function[1].removeprefix(prefix).replace("_", ".")
        for line in function[0].splitlines():
            if match := FIELD.match(line):
                field = match[1]
            elif (match := VALUES.match(line)) and definition in known:
                items = "" if len(match[1]) == OF_FIELD else "[]"
                values = re.findall(r'"([^"]*)"', match[2])
                lines.append("\t".join([definition, field + items, *values]) + "\n")
    lines.sort()
    pathlib.Path(out).write_text("".join(lines))
    print(f"{len(lines)} fields")


if __name__ == "__main__":
    if len(sys.argv) != 4:
        raise SystemExit(__doc__)
    main(*sys.argv[1:])
