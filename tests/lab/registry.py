"""The lab's OCI registry: Debian's docker-registry with TLS and a password, in the lab's namespace alone."""

import base64
import json
import secrets
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from bedplate.model.faults import BedplateError
from bedplate.process import run
from lab import machine
from lab.baseimage import BaseImage
from lab.places import BRIDGE_ADDRESS, REGISTRY_PORT, Places

HOST = "registry.lab"
ADDRESS = f"{HOST}:{REGISTRY_PORT}"
USER = "bedplate"
BASE_REPOSITORY = "base/debian"
START_S = 15.0

CONFIGURATION = """\
version: 0.1
log: {{level: warn, accesslog: {{disabled: true}}}}
storage:
  filesystem: {{rootdirectory: {directory}/data}}
  delete: {{enabled: true}}
  maintenance: {{uploadpurging: {{enabled: false}}}}
auth:
  htpasswd: {{realm: bedplate-lab, path: {directory}/htpasswd}}
http:
  addr: {address}:{port}
  tls: {{certificate: {directory}/registry.crt, key: {directory}/registry.key}}
"""


@dataclass(frozen=True)
class Registry:
    directory: Path
    password: str

    @property
    def certificate(self) -> str:
        return (self.directory / "registry.crt").read_text()

    @property
    def auth_json(self) -> str:
        """The credentials as containers auth.json."""
        token = base64.b64encode(f"{USER}:{self.password}".encode()).decode()
        return json.dumps({"auths": {ADDRESS: {"auth": token}}}, indent=2) + "\n"

    @property
    def enroot_credentials(self) -> str:
        """The same as Enroot's netrc; it looks the host up without its port."""
        return f"machine {HOST} login {USER} password {self.password}\n"


def make(places: Places) -> Registry:
    """Key, certificate, password and configuration."""
    directory = places.live / "registry"
    directory.mkdir(mode=0o700)
    run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "365",
         "-keyout", directory / "registry.key", "-out", directory / "registry.crt", "-subj", "/CN=Bedplate lab",
         "-addext", f"subjectAltName=DNS:{HOST},IP:{BRIDGE_ADDRESS}"],
    )  # fmt: skip
    if places.kept_registry.exists():
        places.kept_registry.rename(directory / "data")
    password = secrets.token_urlsafe(18)
    hashed = run(["htpasswd", "-niB", USER], stdin=password).out
    (directory / "htpasswd").write_text(hashed)
    (directory / "config.yml").write_text(
        CONFIGURATION.format(directory=directory, address=BRIDGE_ADDRESS, port=REGISTRY_PORT)
    )
    registry = Registry(directory, password)
    (directory / "auth.json").write_text(registry.auth_json)
    certificates = directory / "certs.d"
    certificates.mkdir()
    shutil.copy(directory / "registry.crt", certificates / "ca.crt")
    return registry


def keep(places: Places) -> None:
    """Put the storage of a registry that has ended where the next lab finds it."""
    data = places.live / "registry/data"
    if data.is_dir():
        shutil.rmtree(places.kept_registry, ignore_errors=True)
        data.rename(places.kept_registry)


def start(places: Places, registry: Registry) -> None:
    machine.start(
        places, "registry", ["docker-registry", "serve", str(registry.directory / "config.yml")],
        log=places.logs / "registry.log", namespace=places.namespace(), environment={"OTEL_TRACES_EXPORTER": "none"},
    )  # fmt: skip


def push_base(places: Places, registry: Registry, image: BaseImage) -> None:
    """Push the base image as soon as the registry answers."""
    target = f"docker://{BRIDGE_ADDRESS}:{REGISTRY_PORT}/{BASE_REPOSITORY}:{places.name}"
    deadline = time.monotonic() + START_S
    while True:
        pushed = run(
            ["ip", "netns", "exec", places.namespace(), "skopeo", "copy", "--quiet", "--preserve-digests",
             "--dest-cert-dir", registry.directory / "certs.d", "--dest-creds", f"{USER}:{registry.password}",
             f"oci:{image.layout}:base", target], check=False, timeout_s=120,
        )  # fmt: skip
        if pushed.code == 0:
            return
        if time.monotonic() > deadline:
            log = places.logs / "registry.log"
            raise BedplateError(f"the registry took no image within {START_S:g} s: {pushed.err.strip()} (see {log})")
        time.sleep(0.2)
