"""From an HTTP server of this controller: one file, for those who know its word, for as long as it is needed."""

import http.server
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any

from bedplate.act.distribution.engine import Job
from bedplate.act.distribution.engines.ssh import Counter
from bedplate.act.distribution.fanout import Ended, FanOut
from bedplate.act.distribution.payload import Payload
from bedplate.act.distribution.visit import Orders, Visit

CHUNK = 256 * 1024
SILENCE_S = 60.0


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: str, payload: Payload, rate: int) -> None:
        self.payload, self.token = payload, secrets.token_urlsafe(32)
        self.sent, self.pace = Counter(), _Pace(rate)
        super().__init__((address, 0), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A node that goes away in the middle says so itself."""


class _Handler(http.server.BaseHTTPRequestHandler):
    server: _Server
    timeout = SILENCE_S

    def do_GET(self) -> None:
        payload = self.server.payload
        given = self.headers.get("Authorization", "")
        if not secrets.compare_digest(given.encode(), f"Bearer {self.server.token}".encode()):
            self.send_error(HTTPStatus.UNAUTHORIZED)
            return
        offset = _offset(self.headers.get("Range", "bytes=0-"), payload.size)
        if self.path != f"/{payload.name}" or offset is None:
            self.send_error(HTTPStatus.NOT_FOUND if offset is not None else HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE)
            return
        self.send_response(HTTPStatus.PARTIAL_CONTENT)
        self.send_header("Content-Length", str(payload.size - offset))
        self.send_header("Content-Range", f"bytes {offset}-{payload.size - 1}/{payload.size}")
        self.end_headers()
        self._send(payload.path, offset)

    def _send(self, path: Path, offset: int) -> None:
        self.wfile.flush()
        with path.open("rb") as file:
            while count := self.connection.sendfile(file, offset, CHUNK):
                offset += count
                self.server.sent.add(count)
                self.server.pace.after(count)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  the name is http.server's
        """Every node has its row: a second account of it helps nobody."""


class _Pace:
    """What all connections together may send."""

    def __init__(self, rate: int) -> None:
        self._rate, self._due, self._lock = rate, 0.0, threading.Lock()

    def after(self, count: int) -> None:
        if not self._rate:
            return
        with self._lock:
            now = time.monotonic()
            self._due = max(now, self._due) + count / self._rate
            wait_s = self._due - now
        time.sleep(max(0.0, wait_s - 0.1))


def _offset(header: str, size: int) -> int | None:
    """Of `bytes=N-`, the one form that nodes use."""
    unit, _, begin = header.removesuffix("-").partition("=")
    if unit != "bytes" or not begin.isdecimal() or not header.endswith("-") or int(begin) >= size:
        return None
    return int(begin)


@contextmanager
def serving(address: str, payload: Payload, rate: int) -> Iterator[_Server]:
    with _Server(address, payload, rate) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def own_address(other: str) -> str:
    """The address of this machine that another one sees."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as way:
        way.connect((other, 9))  # sends nothing: asks the kernel for the route
        return str(way.getsockname()[0])


def move(job: Job, ended: Ended) -> int:
    """One server for each of our addresses that nodes see: nearly always one."""
    sent = 0
    by_address: dict[str, list[Any]] = {}
    for target in job.targets:
        by_address.setdefault(own_address(target.address), []).append(target)
    for address, targets in by_address.items():
        with serving(address, job.payload, job.caps.source) as server:
            spec = {
                "do": "http", **job.payload.spec, "rate": job.caps.node,
                "address": address, "port": server.server_address[1], "token": server.token,
            }  # fmt: skip

            def feed(_visit: Visit, spec: dict[str, Any] = spec) -> Orders:
                return Orders(spec)

            def said(_visit: Visit, _word: dict[str, Any]) -> None: ...

            FanOut(job.payload, targets, feed, said, job.width, job.patience, job.progress).run(ended)
            sent += server.sent.total
    return sent
