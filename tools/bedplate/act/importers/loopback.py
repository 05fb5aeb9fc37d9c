"""A registry with one image on loopback, for a program that takes an image from registries alone.

Enroot has no source for an OCI layout: docker:// asks a registry, dockerd:// and podman:// an engine with a daemon or
a storage of its own. What this serves was hashed before, so what Enroot gets is what was verified. It answers a
manifest of any type to any Accept header: Enroot's first requests name index types only, or none, and registries
answer them 406 or 404.

The address is always the same: versions of Enroot after 4.1.2 write the registry into the image's /etc/rc, and the
same image is to give the same bytes. While it serves, users of this machine could read the image; nobody else can.
"""

import errno
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from bedplate.model.faults import Busy
from bedplate.sources.imagestore import Image

ADDRESS, PORT = "127.0.0.77", 5077  # Linux answers on all of 127/8; a machine's own registry has 127.0.0.1:5000
WAIT_S = 3600.0  # for another import that serves there
_PROBE_S = 2.0


@contextmanager
def serving(image: Image, repository: str) -> Iterator[str]:
    """Serve the image as a repository, and say at which HOST:PORT.

    Raises:
        Busy: another import served there all the time.
    """
    server = _bound(image, repository)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
    thread.start()
    try:
        yield f"{ADDRESS}:{PORT}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _bound(image: Image, repository: str) -> "_Server":
    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            return _Server(image, repository)
        except OSError as fault:
            if fault.errno != errno.EADDRINUSE:
                raise
            if time.monotonic() > deadline:
                raise Busy(f"another import serves its image at {ADDRESS}:{PORT}: wait for its end") from None
        time.sleep(_PROBE_S)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, image: Image, repository: str) -> None:
        self.image, self.repository = image, repository
        super().__init__((ADDRESS, PORT), _Handler)

    def handle_error(self, *_: Any) -> None:
        """A client that hangs up needs no word: what it lacks is found when the squashfs is read back."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        image, place = self.server.image, f"/v2/{self.server.repository}"
        blobs = {f"{place}/blobs/{blob.digest}": blob for blob in image.manifest.blobs}
        if self.path == "/v2/":
            self._begin("application/json", 2)
            self._write(b"{}")
        elif self.path == f"{place}/manifests/{image.manifest.digest}":
            self._begin(image.manifest.media_type, len(image.manifest.raw), image.manifest.digest)
            self._write(image.manifest.raw)
        elif blob := blobs.get(self.path):
            self._begin("application/octet-stream", blob.size, blob.digest)
            if self.command != "HEAD":
                with image.path(blob).open("rb") as file:
                    shutil.copyfileobj(file, self.wfile, 1024 * 1024)
        else:
            self.send_error(404)

    do_HEAD = do_GET  # noqa: N815  the name is BaseHTTPRequestHandler's

    def _begin(self, kind: str, size: int, digest: str = "") -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(size))
        if digest:
            self.send_header("Docker-Content-Digest", digest)
        self.end_headers()

    def _write(self, data: bytes) -> None:
        if self.command != "HEAD":
            self.wfile.write(data)
