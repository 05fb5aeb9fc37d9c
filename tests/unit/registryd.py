"""A registry on loopback that behaves: manifests, blobs, uploads, Basic or Bearer; and lies and faults on demand."""

import base64
import hashlib
import json
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from bedplate.sources.registry import DOCKER_MANIFEST, OCI_MANIFEST

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
    blobs: dict[str, bytes] = field(default_factory=dict)
    statuses: dict[str, int] = field(default_factory=dict)  # reference or digest -> what is answered instead
    breaks: dict[str, list[int]] = field(default_factory=dict)  # digest -> after how many bytes answers break off
    redirects: dict[str, str] = field(default_factory=dict)  # digest of a blob -> where it is said to be
    ranges: bool = True  # does it know Range?
    scopes: list[str] = field(default_factory=list)  # what tokens were asked for
    token_lasts: int = 1_000_000  # requests
    may_push: bool = True
    uploads: list[str] = field(default_factory=list)  # begun and not given up

    def put(self, body: object, media_type: str = DOCKER_MANIFEST, *tags: str) -> str:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        digest = "sha256:" + hashlib.sha256(raw).hexdigest()
        for reference in (digest, *tags):
            self.manifests[reference] = (media_type, raw)
        return digest

    def put_image(self, *tags: str, architecture: str = "amd64", diff_ids: Sequence[str] = ()) -> str:
        """A manifest with a configuration, and no layers that anybody could get."""
        config = {"os": "linux", "architecture": architecture, "rootfs": {"diff_ids": list(diff_ids)}}
        raw = json.dumps(config).encode()
        body = {"schemaVersion": 2, "config": {"digest": self.put_blob(raw), "size": len(raw)}, "layers": []}
        return self.put(body, OCI_MANIFEST, *tags)

    def put_blob(self, raw: bytes) -> str:
        digest = "sha256:" + hashlib.sha256(raw).hexdigest()
        self.blobs[digest] = raw
        return digest


def write_auth(path: Path, host: str, login: str = "ci:se:cret") -> Path:
    encoded = base64.b64encode(login.encode()).decode()
    path.write_text(json.dumps({"auths": {host: {"auth": encoded}}}))
    return path


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.uses_left = 1_000_000  # of the token
        self.shelf = Shelf(address=f"127.0.0.1:{self.server_address[1]}")

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients hang up on lies: nothing to tell."""


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
        if self.command != "HEAD":
            self.wfile.write(body)

    def let_in(self) -> bool:
        """Whether the request goes on; if not, it is answered."""
        shelf = self.server.shelf
        authorization = self.headers.get("Authorization")
        shelf.requests.append((self.command, self.path, authorization))
        shelf.accepts.append(self.headers.get("Accept", ""))
        parts = urlsplit(self.path)
        if shelf.failures:
            self.reply(shelf.failures.pop(0), b"{}")
        elif parts.path == "/token":
            self.token(parse_qs(parts.query), authorization)
        elif shelf.wants == "Basic" and authorization != BASIC:
            self.challenge('Basic realm="lab"')
        elif shelf.wants == "Bearer" and (authorization != f"Bearer {TOKEN}" or not self.server.uses_left):
            self.challenge(f'Bearer realm="http://{shelf.address}/token",service="lab",scope="repository:a/b:pull"')
        else:
            self.server.uses_left -= 1
            return True
        return False

    def do_GET(self) -> None:
        if self.let_in():
            kind, _, reference = urlsplit(self.path).path.rpartition("/")
            (self.blob if kind.endswith("/blobs") else self.manifest)(reference)

    do_HEAD = do_GET  # noqa: N815  the name is BaseHTTPRequestHandler's

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if not self.let_in():
            return
        if not self.server.shelf.may_push:
            self.reply(403, json.dumps({"errors": [{"code": "DENIED", "message": "no push for you"}]}).encode())
            return
        place = f"{self.path.rstrip('/')}/{len(self.server.shelf.requests)}"
        self.server.shelf.uploads.append(place)
        self.reply(202, b"", {"Location": place})

    def do_DELETE(self) -> None:
        if self.let_in():
            self.server.shelf.uploads.remove(self.path)
            self.reply(204, b"")

    def do_PUT(self) -> None:
        raw = self.rfile.read(int(self.headers["Content-Length"]))
        shelf = self.server.shelf
        if not self.let_in():
            return
        if "/blobs/" in self.path:  # what skopeo's stand-in pushes by; a real one asks for an upload first
            shelf.put_blob(raw)
        else:
            shelf.put(shelf.swallow(raw), self.headers["Content-Type"], self.path.rpartition("/")[2])
        self.reply(201, b"")

    def challenge(self, how: str) -> None:
        body = json.dumps({"errors": [{"code": "UNAUTHORIZED", "message": "authentication required"}]})
        self.reply(401, body.encode(), {"WWW-Authenticate": how})

    def token(self, query: dict[str, list[str]], authorization: str | None) -> None:
        assert query["service"] == ["lab"]
        self.server.shelf.scopes += query["scope"]
        if authorization == BASIC or (authorization is None and self.server.shelf.anonymous):
            self.server.uses_left = self.server.shelf.token_lasts
            self.reply(200, json.dumps({"token": TOKEN}).encode())
        else:
            self.reply(401, b"{}")

    def blob(self, digest: str) -> None:
        shelf = self.server.shelf
        raw = shelf.blobs.get(digest)
        if digest in shelf.redirects:
            self.reply(307, b"", {"Location": shelf.redirects[digest]})
            return
        if raw is None or digest in shelf.statuses:
            self.reply(shelf.statuses.get(digest, 404), b"{}")
            return
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", "")) if shelf.ranges else None
        begin = int(asked[1]) if asked else 0
        if begin >= len(raw) > 0:
            self.reply(416, b"{}")
            return
        self.send_response(206 if asked else 200)
        if asked:
            self.send_header("Content-Range", f"bytes {begin}-{len(raw) - 1}/{len(raw)}")
        self.send_header("Content-Length", str(len(raw) - begin))
        self.end_headers()
        if self.command != "HEAD":
            breaks = shelf.breaks.get(digest)
            self.wfile.write(raw[begin : begin + breaks.pop(0)] if breaks else raw[begin:])
            self.close_connection = breaks is not None

    def manifest(self, reference: str) -> None:
        shelf = self.server.shelf
        if reference in shelf.statuses:
            self.reply(shelf.statuses[reference], b"{}")
            return
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
