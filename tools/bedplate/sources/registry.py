"""An OCI registry: manifests and blobs, checked against the digest they were asked by.

- What is handed out has the digest that it says: computed here from the bytes, compared with the digest that
  was asked for and with the one the registry names. A registry (or a cache before it) is never believed.
- A blob is read to its end and hashed; where a connection breaks off, the rest is asked for (Range).
- Credentials, TLS and deadlines: registryconnection.py.

Example:
    registry = Registry("registry.lab:5443")
    manifest = registry.manifest("lab/small", "sha256:…")
    for blob in manifest.blobs:
        registry.check_blob("lab/small", blob)
"""

import hashlib
import json
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

import requests
import urllib3

from bedplate.model.canonical import DIGEST, sha256
from bedplate.sources.credentials import Credentials, auth_files
from bedplate.sources.registryconnection import CHUNK_BYTES, PUSH, Connection
from bedplate.sources.registryfaults import NotFound, RegistryFault, Unauthorised, Unreachable, WrongBytes

__all__ = (
    "Blob", "Credentials", "Manifest", "NotFound", "Registry", "RegistryFault", "Unauthorised", "Unreachable",
    "WrongBytes", "read_manifest",
)  # fmt: skip

OCI_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
OCI_INDEX = "application/vnd.oci.image.index.v1+json"
DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
DOCKER_INDEX = "application/vnd.docker.distribution.manifest.list.v2+json"
MEDIA_TYPES = (OCI_MANIFEST, OCI_INDEX, DOCKER_MANIFEST, DOCKER_INDEX)
INDEX_TYPES = (OCI_INDEX, DOCKER_INDEX)

SLOWEST = 1_000_000  # bytes/s: a blob that comes slower has failed
SPARE_S = 120.0
TRIES = 4  # requests in a row that brought not one byte of a blob


@dataclass(frozen=True)
class Blob:
    """A configuration or a layer, as a manifest names it."""

    digest: str
    size: int
    media_type: str = ""

    @property
    def hexadecimal(self) -> str:
        return self.digest.removeprefix("sha256:")


@dataclass(frozen=True)
class Manifest:
    """A manifest or an index, with the digest of its bytes."""

    digest: str
    media_type: str
    body: Mapping[str, Any]
    raw: bytes

    @property
    def is_index(self) -> bool:
        return self.media_type in INDEX_TYPES

    @property
    def config_digest(self) -> str | None:
        digest = (self.body.get("config") or {}).get("digest")
        return digest if isinstance(digest, str) else None

    @property
    def size_bytes(self) -> int:
        """Of the layers as the registry holds them, together."""
        return sum(int(layer.get("size", 0)) for layer in self.body.get("layers", ()))

    @property
    def layers(self) -> list[Blob]:
        """Bottom first.

        Raises:
            WrongBytes: one is described in a way that no digest could be compared with.
        """
        return [self._blob(each) for each in self.body.get("layers", ())]

    @property
    def config(self) -> Blob:
        return self._blob(self.body.get("config"))

    @property
    def blobs(self) -> list[Blob]:
        """Configuration and layers, each once."""
        return list(dict.fromkeys([self.config, *self.layers]))

    def _blob(self, said: object) -> Blob:
        digest, size = (said.get("digest"), said.get("size")) if isinstance(said, dict) else (None, None)
        if not isinstance(said, dict) or not isinstance(digest, str) or not DIGEST.fullmatch(digest):
            raise WrongBytes(f'manifest {self.digest}: "{digest}" is no digest of a blob')
        if not isinstance(size, int) or size < 0:
            raise WrongBytes(f'manifest {self.digest}: blob {digest} has "{size}" for a size')
        return Blob(digest, size, str(said.get("mediaType", "")))


def read_manifest(raw: bytes, said: str, asked: str) -> Manifest:
    """A manifest from its bytes. said: the media type that came with it, if any.

    Raises:
        WrongBytes: it is none.
    """
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict):
        raise WrongBytes(f"{asked}: the registry answered with something that is no manifest")
    inside = body.get("mediaType", said)
    media_type = said or inside
    if media_type not in MEDIA_TYPES or inside != media_type:
        raise WrongBytes(f'{asked}: the registry answered with "{said}", inside is "{inside}": no image')
    return Manifest(sha256(raw), media_type, body, raw)


class Registry:
    """One registry, by its host name and port."""

    def __init__(self, host: str, *, auth: Sequence[Path] | None = None, plain_http: bool = False) -> None:
        self.host = host
        self._connection = Connection(host, auth=auth_files() if auth is None else auth, plain_http=plain_http)

    def credentials(self, repository: str) -> Credentials | None:
        """What this registry would be shown, if it asked."""
        return self._connection.credentials(repository)

    def manifest(self, repository: str, reference: str) -> Manifest:
        """The manifest or index that a tag or digest names.

        Raises:
            Unreachable, Unauthorised, NotFound, WrongBytes: see the classes.
        """
        asked = self._asked(repository, reference)
        answer = self._connection.ask(repository, f"manifests/{reference}", headers={"Accept": ", ".join(MEDIA_TYPES)})
        if answer.status == HTTPStatus.NOT_FOUND:
            raise NotFound(f"{asked}: the registry does not have it{answer.said}")
        if answer.status == HTTPStatus.NOT_ACCEPTABLE:
            raise Unreachable(
                f"{asked}: the registry answered 406{answer.said}: it does not give a manifest of one platform by"
                " itself (ask for the digest of the index, or have the registry's proxy repaired)"
            )
        if answer.status != HTTPStatus.OK:
            raise Unreachable(f"{asked}: the registry answered {answer.status}{answer.said} (try again later)")
        digest = sha256(answer.raw)
        claimed = answer.headers.get("Docker-Content-Digest")
        for what, expected in (("asked for", DIGEST.fullmatch(reference) and reference), ("named", claimed)):
            if expected and expected != digest:
                raise WrongBytes(
                    f"{asked}: the registry answered with the bytes of {digest}, {what} was {expected}"
                    " (a damaged registry or cache: have it repaired, do not go on)"
                )
        said = answer.headers.get("Content-Type", "").partition(";")[0].strip()
        return read_manifest(answer.raw, said, asked)

    def exists(self, repository: str, reference: str) -> bool:
        """Does the registry have it? By its bytes, not by its word.

        Raises:
            Unreachable, Unauthorised, WrongBytes: nobody knows.
        """
        try:
            self.manifest(repository, reference)
        except NotFound:
            return False
        return True

    def platform(self, repository: str, reference: str, architecture: str) -> tuple[str | None, Manifest]:
        """The manifest of one platform, by way of an index where there is one; the tag is asked once.

        architecture: as Debian and OCI both name it: amd64, arm64.

        Returns:
            The index's digest (None: there is no index), and the platform's manifest.
        """
        found = self.manifest(repository, reference)
        if not found.is_index:
            return None, found
        fitting = [
            entry.get("digest", "")
            for entry in found.body.get("manifests", ())
            if (entry.get("platform") or {}).get("os") == "linux"
            and entry["platform"].get("architecture") == architecture
        ]
        if len(fitting) != 1:
            raise NotFound(
                f"{self.host}/{repository}@{found.digest}: the index has {len(fitting)} manifests for"
                f" linux/{architecture}, expected one"
            )
        return found.digest, self.manifest(repository, fitting[0])

    def config(self, repository: str, manifest: Manifest) -> Mapping[str, Any]:
        """The configuration that a manifest names.

        Raises:
            NotFound, WrongBytes, Unreachable, Unauthorised: see the classes.
        """
        blob = manifest.config
        asked = self._asked(repository, blob.digest)
        answer = self._connection.ask(repository, f"blobs/{blob.digest}")
        if answer.status == HTTPStatus.NOT_FOUND:
            raise NotFound(f"{asked}: the registry has the manifest, and not this blob of it (push it again)")
        if answer.status != HTTPStatus.OK:
            raise Unreachable(f"{asked}: the registry answered {answer.status}{answer.said} (try again later)")
        if sha256(answer.raw) != blob.digest:
            raise WrongBytes(
                f"{asked}: the registry answered with the bytes of {sha256(answer.raw)}"
                " (a damaged registry or cache: have it repaired, do not go on)"
            )
        try:
            config = json.loads(answer.raw)
        except (ValueError, RecursionError):
            config = None
        if not isinstance(config, dict):
            raise WrongBytes(f"{asked}: is no configuration of an image")
        return config

    def has_blob(self, repository: str, blob: Blob) -> bool:
        """Does the registry say that it has a blob, of the right size? Its word only: check_blob reads it.

        Raises:
            Unreachable, Unauthorised: nobody knows.
        """
        answer = self._connection.ask(repository, f"blobs/{blob.digest}", method="HEAD")
        if answer.status not in {HTTPStatus.OK, HTTPStatus.NOT_FOUND}:
            raise Unreachable(f"{self._asked(repository, blob.digest)}: the registry answered {answer.status}")
        return answer.status == HTTPStatus.OK and answer.headers.get("Content-Length") in {None, str(blob.size)}

    def check_blob(self, repository: str, blob: Blob) -> None:
        """Read a blob to its end, and compare size and sha256.

        Raises:
            NotFound, WrongBytes, Unreachable, Unauthorised: see the classes.
        """
        asked = self._asked(repository, blob.digest)
        reading = _Reading(asked, blob)
        idle = 0
        while True:
            had = reading.have
            headers = {"Range": f"bytes={had}-"} if had else {}
            broken = ""
            try:
                with self._connection.asking(repository, f"blobs/{blob.digest}", headers=headers) as response:
                    reading.begin(response)
                    for chunk in response.raw.stream(CHUNK_BYTES, decode_content=False):
                        reading.add(chunk)
            except _TooSlow:
                raise
            except (Unreachable, requests.RequestException, urllib3.exceptions.HTTPError, OSError) as fault:
                broken = str(fault)
            if reading.have == blob.size and not broken:
                break
            idle = 0 if reading.have > had else idle + 1
            if idle >= TRIES:
                raise Unreachable(f"{asked}: broke off after {reading.have} of {blob.size} bytes {broken}".rstrip())
        reading.end()

    def let_in_to_push(self, repository: str) -> None:
        """May we push there? An upload is begun and given up again: no other question has a binding answer.

        Raises:
            Unauthorised, NotFound, Unreachable: see the classes.
        """
        begun = self._connection.ask(
            repository, "blobs/uploads/", method="POST", headers={"Content-Length": "0"}, action=PUSH
        )
        asked = f"{self.host}/{repository}"
        if begun.status == HTTPStatus.NOT_FOUND:
            raise NotFound(f"{asked}: the registry knows no such repository or project{begun.said}")
        if begun.status == HTTPStatus.METHOD_NOT_ALLOWED:
            raise Unauthorised(f"{asked}: this registry takes no pushes (405{begun.said}): a cache, or read-only")
        if begun.status not in {HTTPStatus.ACCEPTED, HTTPStatus.CREATED}:
            raise Unreachable(f"{asked}: the registry answered {begun.status}{begun.said} to a push (try again later)")
        if place := begun.headers.get("Location"):
            self._connection.ask(repository, place, method="DELETE", action=PUSH)

    def _asked(self, repository: str, reference: str) -> str:
        return f"{self.host}/{repository}{'@' if DIGEST.fullmatch(reference) else ':'}{reference}"


class _TooSlow(Unreachable):
    """The deadline of the whole blob is over: no further try."""


class _Reading:
    """A blob as far as it has come."""

    def __init__(self, asked: str, blob: Blob) -> None:
        self._asked, self._blob = asked, blob
        self._hash, self.have = hashlib.sha256(), 0
        self._deadline = time.monotonic() + SPARE_S + blob.size / SLOWEST

    def begin(self, response: requests.Response) -> None:
        status = response.status_code
        if status == HTTPStatus.NOT_FOUND:
            raise NotFound(f"{self._asked}: the registry has the manifest, and not this blob of it (push it again)")
        if status == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            raise self._cut_off(self.have)
        if status == HTTPStatus.PARTIAL_CONTENT:
            span = re.match(r"bytes (\d+)-\d+/(\d+|\*)", response.headers.get("Content-Range", ""))
            if span is None or int(span[1]) != self.have:
                raise WrongBytes(f"{self._asked}: asked for the bytes from {self.have} on, and given others")
            return
        if status != HTTPStatus.OK:
            raise Unreachable(f"{self._asked}: the registry answered {status} (try again later)")
        self._hash, self.have = hashlib.sha256(), 0  # all of it, whatever was asked for
        announced = response.headers.get("Content-Length", "")
        if announced.isdecimal() and int(announced) < self._blob.size:
            raise self._cut_off(int(announced))

    def add(self, chunk: bytes) -> None:
        self._hash.update(chunk)
        self.have += len(chunk)
        if self.have > self._blob.size:
            raise WrongBytes(
                f"{self._asked}: the registry gives more bytes than the {self._blob.size} of the manifest"
                " (a damaged registry or cache: have it repaired, do not go on)"
            )
        if time.monotonic() > self._deadline:
            raise _TooSlow(f"{self._asked}: {self.have} of {self._blob.size} bytes came, slower than {SLOWEST} B/s")

    def end(self) -> None:
        if f"sha256:{self._hash.hexdigest()}" != self._blob.digest:
            raise WrongBytes(
                f"{self._asked}: the registry answered with the bytes of sha256:{self._hash.hexdigest()}"
                " (a damaged registry or cache: have it repaired, do not go on)"
            )

    def _cut_off(self, has: int) -> WrongBytes:
        return WrongBytes(
            f"{self._asked}: cut off: the registry has {has} bytes, the manifest says {self._blob.size}"
            " (a damaged registry or cache: have it repaired, push the image again)"
        )
