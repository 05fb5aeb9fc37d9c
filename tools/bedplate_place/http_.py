"""The file from an HTTP server, from where an earlier transfer ended."""

from __future__ import annotations

import http.client
import os
import time

from bedplate_place.faults import FAULT, MISSING, STOPPED, Failed
from bedplate_place.files import Wanted, turn
from bedplate_place.pace import Pace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from bedplate_place.talk import Talk

KIND = "part"
CHUNK = 256 * 1024
SILENCE_S = 30.0
TRIES = 5
PARTIAL = 206


def run(directory: str, spec: dict[str, Any], talk: Talk) -> None:
    wanted = Wanted(directory, spec)
    talk.listen()
    with turn(directory):
        if not wanted.there():
            wanted.check_space(KIND)
            part = wanted.part(KIND)
            _fetch_all(wanted, part, spec, talk)
            wanted.check(part)
            wanted.publish(part)
    talk.say(placed=wanted.sha256, size=wanted.size)


def _fetch_all(wanted: Wanted, part: str, spec: dict[str, Any], talk: Talk) -> None:
    with open(part, "ab") as file:
        if file.tell() > wanted.size:
            file.truncate(0)
        left = TRIES
        while (have := os.fstat(file.fileno()).st_size) < wanted.size:
            try:
                _fetch(file, have, wanted, spec, talk)
            except (OSError, http.client.HTTPException) as fault:  # noqa: PERF203  nothing beside a request
                left = TRIES if os.fstat(file.fileno()).st_size > have else left - 1
                if talk.alone or not left:
                    code = MISSING if isinstance(fault, ConnectionRefusedError | TimeoutError) else FAULT
                    where = f"{spec['address']}:{spec['port']}"
                    raise Failed(code, f"http://{where}: {fault or type(fault).__name__}") from fault
                time.sleep(1)


def _fetch(file: Any, have: int, wanted: Wanted, spec: dict[str, Any], talk: Talk) -> None:
    pace = Pace(spec["rate"])
    server = http.client.HTTPConnection(spec["address"], spec["port"], timeout=SILENCE_S)
    try:
        headers = {"Authorization": f"Bearer {spec['token']}", "Range": f"bytes={have}-"}
        server.request("GET", f"/{wanted.name}", headers=headers)
        answer = server.getresponse()
        expected = f"bytes {have}-{wanted.size - 1}/{wanted.size}"
        if answer.status != PARTIAL or answer.headers.get("Content-Range") != expected:
            raise Failed(FAULT, f"the server answered {answer.status} {answer.reason} to {expected}")
        while chunk := answer.read1(CHUNK):
            file.write(chunk)
            have += len(chunk)
            talk.have(have)
            if talk.told_to_end or talk.alone:
                file.flush()
                raise Failed(STOPPED, f"stopped at {have} of {wanted.size} bytes")
            pace.after(len(chunk))
    finally:
        file.flush()
        server.close()
