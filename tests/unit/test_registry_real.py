"""The client against Debian's docker-registry with TLS and a password, filled by skopeo; all on loopback."""

import gzip
import hashlib
import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import bcrypt
import pytest

from bedplate.sources.registry import DOCKER_MANIFEST, NotFound, Registry, Unauthorised, Unreachable
from unit.registryd import write_auth

pytestmark = pytest.mark.skipif(
    not all(map(shutil.which, ("docker-registry", "skopeo", "openssl"))),
    reason="needs docker-registry, skopeo and openssl (tools/setup installs them)",
)


@dataclass
class Running:
    host: str
    ca: Path
    auth: Path
    digest: str
    config_digest: str


def write_image(folder: Path) -> str:
    """A one-layer image in skopeo's dir: layout; returns its config's digest."""
    folder.mkdir()
    layer = gzip.compress(b"\0" * 10240, mtime=0)  # an empty tar
    config = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {},
            "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(b"\0" * 10240).hexdigest()]},
        }
    ).encode()
    described = []
    for blob, kind in ((config, "container.image.v1+json"), (layer, "image.rootfs.diff.tar.gzip")):
        hexadecimal = hashlib.sha256(blob).hexdigest()
        (folder / hexadecimal).write_bytes(blob)
        digest = f"sha256:{hexadecimal}"
        described.append({"mediaType": f"application/vnd.docker.{kind}", "size": len(blob), "digest": digest})
    manifest = {"schemaVersion": 2, "mediaType": DOCKER_MANIFEST, "config": described[0], "layers": described[1:]}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    (folder / "version").write_text("Directory Transport Version: 1.1\n")
    return str(described[0]["digest"])


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    root = tmp_path_factory.mktemp("registry")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    host = f"localhost:{port}"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
         "-keyout", root / "key.pem", "-out", root / "ca.crt", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=DNS:localhost"],
        check=True, capture_output=True,
    )  # fmt: skip
    (root / "htpasswd").write_text("ci:" + bcrypt.hashpw(b"se:cret", bcrypt.gensalt(4)).decode() + "\n")
    (root / "config.yml").write_text(
        json.dumps(  # JSON is YAML
            {
                "version": "0.1",
                "log": {"level": "warn", "accesslog": {"disabled": True}},
                "storage": {"filesystem": {"rootdirectory": str(root / "data")}},
                "auth": {"htpasswd": {"realm": "lab", "path": str(root / "htpasswd")}},
                "http": {
                    "addr": f"127.0.0.1:{port}",
                    "tls": {"certificate": str(root / "ca.crt"), "key": str(root / "key.pem")},
                },
            }
        )
    )
    config_digest = write_image(root / "image")
    auth = write_auth(root / "auth.json", host)
    with (root / "log").open("wb") as log:
        server = subprocess.Popen(
            ["docker-registry", "serve", root / "config.yml"], stdout=log, stderr=log, stdin=subprocess.DEVNULL
        )
    try:
        for _ in range(200):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        subprocess.run(
            ["skopeo", "copy", "--quiet", "--preserve-digests", "--digestfile", root / "digest", f"dir:{root}/image",
             f"docker://{host}/lab/small:1"],
            check=True, capture_output=True,
            env={**os.environ, "REGISTRY_AUTH_FILE": str(auth), "SSL_CERT_FILE": str(root / "ca.crt")},
        )  # fmt: skip
        yield Running(host, root / "ca.crt", auth, (root / "digest").read_text().strip(), config_digest)
    finally:
        server.terminate()
        server.wait(10)


def test_what_skopeo_pushed_is_found_by_digest(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(running.ca))
    found = Registry(running.host, auth=[running.auth]).manifest("lab/small", running.digest)
    assert (found.digest, found.config_digest) == (running.digest, running.config_digest)
    assert found.media_type == DOCKER_MANIFEST


def test_what_nobody_pushed_is_not_found(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(running.ca))
    registry = Registry(running.host, auth=[running.auth])
    assert not registry.exists("lab/small", "sha256:" + "0" * 64)
    with pytest.raises(NotFound):
        registry.manifest("lab/other", "1")


def test_it_wants_a_password(running: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(running.ca))
    wrong = write_auth(tmp_path / "auth.json", running.host, login="ci:hunter2")
    for auth in ([], [wrong]):
        with pytest.raises(Unauthorised):
            Registry(running.host, auth=auth).manifest("lab/small", "1")


def test_a_certificate_that_nobody_vouches_for_is_refused(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REQUESTS_CA_BUNDLE", raising=False)
    monkeypatch.delenv("CURL_CA_BUNDLE", raising=False)
    with pytest.raises(Unreachable, match=r"TLS: .*certificate verify failed"):
        Registry(running.host, auth=[running.auth]).manifest("lab/small", "1")
