"""Debian's docker-registry with TLS and a password, on loopback."""

import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import bcrypt
import pytest

from unit.registryd import write_auth

needed = pytest.mark.skipif(
    not all(map(shutil.which, ("docker-registry", "skopeo", "openssl"))),
    reason="needs docker-registry, skopeo and openssl (tools/setup installs them)",
)


@dataclass(frozen=True)
class Running:
    host: str
    root: Path

    @property
    def ca(self) -> Path:
        return self.root / "ca.crt"

    @property
    def auth(self) -> Path:
        return self.root / "auth.json"

    @property
    def environment(self) -> dict[str, str]:
        """What a program needs to be let in."""
        return {
            **os.environ, "REGISTRY_AUTH_FILE": str(self.auth), "SSL_CERT_FILE": str(self.ca),
            "REQUESTS_CA_BUNDLE": str(self.ca),
        }  # fmt: skip

    def skopeo(self, *words: str | Path) -> None:
        command: Sequence[str | Path] = ("skopeo", "copy", "--quiet", "--preserve-digests", *words)
        subprocess.run(command, check=True, capture_output=True, env=self.environment)

    def collect_garbage(self) -> None:
        """As an operator does: what no tag names goes."""
        command = ("docker-registry", "garbage-collect", "--delete-untagged", self.root / "config.yml")
        # REGISTRY_* are settings to docker-registry, and one of them is our file of credentials.
        env = {key: value for key, value in os.environ.items() if not key.startswith("REGISTRY_")}
        done = subprocess.run(command, check=False, capture_output=True, text=True, env=env)
        assert done.returncode == 0, done.stdout + done.stderr


@contextmanager
def serving(root: Path) -> Iterator[Running]:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    running = Running(f"localhost:{port}", root)
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
         "-keyout", root / "key.pem", "-out", running.ca, "-subj", "/CN=localhost",
         "-addext", "subjectAltName=DNS:localhost"],
        check=True, capture_output=True,
    )  # fmt: skip
    (root / "htpasswd").write_text("ci:" + bcrypt.hashpw(b"se:cret", bcrypt.gensalt(4)).decode() + "\n")
    configuration = {
        "version": "0.1",
        "log": {"level": "warn", "accesslog": {"disabled": True}},
        "storage": {"filesystem": {"rootdirectory": str(root / "data")}, "delete": {"enabled": True}},
        "auth": {"htpasswd": {"realm": "lab", "path": str(root / "htpasswd")}},
        "http": {"addr": f"127.0.0.1:{port}", "tls": {"certificate": str(running.ca), "key": str(root / "key.pem")}},
    }
    (root / "config.yml").write_text(json.dumps(configuration))  # JSON is YAML
    write_auth(running.auth, running.host)
    with (root / "log").open("wb") as log:
        server = subprocess.Popen(
            ["docker-registry", "serve", root / "config.yml"], stdout=log, stderr=log, stdin=subprocess.DEVNULL
        )
    try:
        for _ in range(1200):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        yield running
    finally:
        server.terminate()
        server.wait(60)
