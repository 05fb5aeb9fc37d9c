"""A registry on loopback that behaves: manifests by tag and digest, Basic or Bearer, and faults on demand."""

import base64
import hashlib
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from bedplate.sources.registry import DOCKER_MANIFEST

BASIC = "Basic " + base64.b64encode(b"ci:se:cret").decode()  # passwords may hold colons
TOKEN = "a-token-for-tests"


@dataclass
class Shelf:
    """What the registry has, and how it behaves."""

    manifests: dict[str, tuple[str, bytes]] = field(default_factory=dict)  # reference -> media type, bytes
    wants: str | None = None  # None, "Basic", "Bearer"
    failures: list[int] = field(default_factory=list)  # status codes of the next answers
    digest_header: str | None = None  # instead of the true one
    requests: list[tuple[str, str, str | None]] = field(default_factory=list)  # method, path, Authorization
    accepts: list[str] = field(default_factory=list)
    anonymous: bool = False  # the token service serves everybody
    swallow: Callable[[bytes], bytes] = lambda raw: raw
    address: str = ""

    def put(self, body: object, media_type: str = DOCKER_MANIFEST, *tags: str) -> str:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        digest = "sha256:" + hashlib.sha256(raw).hexdigest()
        for reference in (digest, *tags):
            self.manifests[reference] = (media_type, raw)
        return digest


def write_auth(path: Path, host: str, login: str = "ci:se:cret") -> Path:
    encoded = base64.b64encode(login.encode()).decode()
    path.write_text(json.dumps({"auths": {host: {"auth": encoded}}}))
    return path


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.shelf = Shelf(address=f"127.0.0.1:{self.server_address[1]}")


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, *_: object) -> None:
        pass

    def reply(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        shelf = self.server.shelf
        authorization = self.headers.get("Authorization")
        shelf.requests.append(("GET", self.path, authorization))
        shelf.accepts.append(self.headers.get("Accept", ""))
        parts = urlsplit(self.path)
        if shelf.failures:
            self.reply(shelf.failures.pop(0), b"{}")
        elif parts.path == "/token":
            self.token(parse_qs(parts.query), authorization)
        elif shelf.wants == "Basic" and authorization != BASIC:
            self.challenge('Basic realm="lab"')
        elif shelf.wants == "Bearer" and authorization != f"Bearer {TOKEN}":
            self.challenge(f'Bearer realm="http://{shelf.address}/token",service="lab",scope="repository:a/b:pull"')
        else:
            self.manifest(parts.path.rpartition("/")[2])

    def do_PUT(self) -> None:
        raw = self.rfile.read(int(self.headers["Content-Length"]))
        shelf = self.server.shelf
        shelf.requests.append(("PUT", self.path, self.headers.get("Authorization")))
        if shelf.failures:
            self.reply(shelf.failures.pop(0), b"{}")
            return
        shelf.put(shelf.swallow(raw), self.headers["Content-Type"], self.path.rpartition("/")[2])
        self.reply(201, b"")

    def challenge(self, how: str) -> None:
        body = json.dumps({"errors": [{"code": "UNAUTHORIZED", "message": "authentication required"}]})
        self.reply(401, body.encode(), {"WWW-Authenticate": how})

    def token(self, query: dict[str, list[str]], authorization: str | None) -> None:
        assert query == {"service": ["lab"], "scope": ["repository:a/b:pull"]}
        if authorization == BASIC or (authorization is None and self.server.shelf.anonymous):
            self.reply(200, json.dumps({"token": TOKEN}).encode())
        else:
            self.reply(401, b"{}")

    def manifest(self, reference: str) -> None:
        shelf = self.server.shelf
        if reference not in shelf.manifests:
            body = {"errors": [{"code": "MANIFEST_UNKNOWN", "message": "manifest unknown"}]}
            self.reply(404, json.dumps(body).encode())
            return
        media_type, raw = shelf.manifests[reference]
        digest = shelf.digest_header or "sha256:" + hashlib.sha256(raw).hexdigest()
        self.reply(200, raw, {"Content-Type": media_type, "Docker-Content-Digest": digest})


@contextmanager
def registry() -> Iterator[Shelf]:
    server = _Server()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server.shelf
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)
