"""An operator with admission handlers as kopf's documentation teaches to write them: defaults and rules for Flocks."""

import os
import pathlib

import kopf
import trustme


@kopf.on.startup()
def configure(settings: kopf.OperatorSettings, **_):
    files = pathlib.Path(os.environ["SCRATCH"], "kopf-admission")
    files.mkdir()
    authority = trustme.CA()
    authority.cert_pem.write_to_path(files / "ca.pem")
    served = authority.issue_cert("127.0.0.1")
    served.cert_chain_pems[0].write_to_path(files / "tls.pem")
    served.private_key_pem.write_to_path(files / "key.pem")
    settings.admission.server = kopf.WebhookServer(
        addr="127.0.0.1", certfile=files / "tls.pem", pkeyfile=files / "key.pem", cafile=files / "ca.pem"
    )
    settings.admission.managed = "flocks.kopf.example.com"


@kopf.on.mutate("kopf.example.com", "v1", "flocks")
def defaults(spec, patch, warnings, **_):
    if "breed" not in spec:
        patch.spec["breed"] = "common"
        warnings.append("the breed was not set and is common")


@kopf.on.validate("kopf.example.com", "v1", "flocks")
def heads(spec, **_):
    if spec["heads"] < 1:
        raise kopf.AdmissionError("a flock has heads", code=422)


@kopf.on.validate("kopf.example.com", "v1", "flocks", operations=["DELETE"], labels={"grazes": "yes"})
def grazing(userinfo, **_):
    raise kopf.AdmissionError(f"it grazes, {userinfo['username']}")
