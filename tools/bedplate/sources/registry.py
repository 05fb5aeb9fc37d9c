"""An OCI registry: manifests, checked against the digest they were asked by.

- What is handed out has the digest that it says: computed here from the bytes, compared with the digest that
  was asked for and with the one the registry names. A registry (or a cache before it) is never believed.
- Credentials come from the containers auth.json that skopeo and buildah use; they are sent to the registry
  and, over HTTPS, to the token service that it names. They stand in no message.
- TLS is checked against the system's certificates (a site's own CA belongs there), or REQUESTS_CA_BUNDLE.

Example:
    registry = Registry("registry.lab:5443")
    manifest = registry.manifest("lab/small", "sha256:…")
    manifest.config_digest
"""

import base64
import binascii
import hashlib
import json
import os
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import requests
import urllib3
from requests.adapters import HTTPAdapter
from urllib3.util import Retry

from bedplate.model.canonical import DIGEST
from bedplate.model.faults import BedplateError

OCI_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
OCI_INDEX = "application/vnd.oci.image.index.v1+json"
DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
DOCKER_INDEX = "application/vnd.docker.distribution.manifest.list.v2+json"
MEDIA_TYPES = (OCI_MANIFEST, OCI_INDEX, DOCKER_MANIFEST, DOCKER_INDEX)
INDEX_TYPES = (OCI_INDEX, DOCKER_INDEX)

TIMEOUT_S = (10.0, 30.0)  # connecting; waiting for the next byte
DEADLINE_S = 120.0  # one manifest, with every byte
MANIFEST_LIMIT_BYTES = 8 * 1024 * 1024  # the specification asks registries to take 4 MiB
RETRIES = Retry(
    total=4, connect=2, read=2, other=0, backoff_factor=0.3, backoff_max=5, retry_after_max=10,
    status_forcelist=(429, 500, 502, 503, 504), allowed_methods=("GET", "HEAD"), raise_on_status=False,
)  # fmt: skip
SYSTEM_CA = Path("/etc/ssl/certs/ca-certificates.crt")  # Debian and Ubuntu; elsewhere certifi's
DOCKER_HUB = (
    "docker.io",
    "registry-1.docker.io",
    "https://index.docker.io/v1/",
)  # name, server, key of auth.json


class RegistryFault(BedplateError):
    """A registry did not give what was asked for."""


class Unreachable(RegistryFault):
    """It does not answer, or only with errors of its own: what it has is unknown."""

    exit_code = 4


class Unauthorised(RegistryFault):
    """It wants other credentials."""

    exit_code = 2


class NotFound(RegistryFault):
    """It does not have this."""

    exit_code = 2


class WrongBytes(RegistryFault):
    """It answered with something else than was asked for."""

    exit_code = 3


@dataclass(frozen=True)
class Credentials:
    """For one registry; `origin` says in messages where they came from."""

    username: str
    password: str
    origin: str

    def __repr__(self) -> str:
        return f"Credentials({self.origin})"

    @property
    def basic(self) -> str:
        return "Basic " + base64.b64encode(f"{self.username}:{self.password}".encode()).decode()


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


def auth_files() -> list[Path]:
    """Where credentials may stand (containers-auth.json(5)); the first file that names the host counts."""
    if named := os.environ.get("REGISTRY_AUTH_FILE"):
        return [Path(named)]
    home = Path.home()
    run = os.environ.get("XDG_RUNTIME_DIR")
    config = os.environ.get("XDG_CONFIG_HOME")
    docker = os.environ.get("DOCKER_CONFIG")
    return [
        (Path(run) if run else Path(f"/run/containers/{os.getuid()}"))
        / ("containers/auth.json" if run else "auth.json"),
        (Path(config) if config else home / ".config") / "containers" / "auth.json",
        (Path(docker) if docker else home / ".docker") / "config.json",
    ]


def credentials_for(host: str, path: str, files: Sequence[Path]) -> Credentials | None:
    """The credentials of the most specific entry: HOST/PATH/…, then HOST.

    Raises:
        Unauthorised: a file is no JSON, or its entry is damaged.
    """
    keys = [f"{host}/{path}"]
    while "/" in keys[-1]:
        keys.append(keys[-1].rpartition("/")[0])
    keys += [f"https://{host}", f"http://{host}"]  # as Docker has written them
    if host in DOCKER_HUB[:2]:
        keys += [DOCKER_HUB[0], DOCKER_HUB[2]]
    for file in files:
        try:
            entries = json.loads(file.read_text()).get("auths", {})
        except (FileNotFoundError, NotADirectoryError):
            continue
        except (OSError, ValueError, AttributeError) as fault:
            raise Unauthorised(f"cannot read the credentials in {file}: {type(fault).__name__}") from None
        for key in keys:
            # Without "auth": kept by a credential helper, or as a token (docs/image.md says what is read).
            entry = entries.get(key) if isinstance(entries, dict) else None
            if isinstance(entry, dict) and (encoded := entry.get("auth")):
                origin = f'entry "{key}" in {file}'
                return _decoded(encoded, origin)
    return None


def _decoded(encoded: str, origin: str) -> Credentials:
    try:
        name, colon, password = base64.b64decode(encoded, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError, TypeError):
        colon = ""
    if not colon:
        raise Unauthorised(f"{origin} is damaged (log in again: skopeo login)")
    return Credentials(name, password, origin)


class Registry:
    """One registry, by its host name and port."""

    def __init__(self, host: str, *, auth: Sequence[Path] | None = None, plain_http: bool = False) -> None:
        self.host = host
        self._auth = auth_files() if auth is None else list(auth)
        server = DOCKER_HUB[1] if host == DOCKER_HUB[0] else host
        self._base = f"{'http' if plain_http else 'https'}://{server}"
        self._authorization: dict[str, str] = {}  # by repository: the header that worked last

    @cached_property
    def _session(self) -> requests.Session:
        session = requests.Session()
        adapter = HTTPAdapter(max_retries=RETRIES)
        session.mount("https://", adapter)
        session.mount("http://", adapter)
        # requests looks for passwords in ~/.netrc when it is given none: auth.json alone is to decide.
        session.auth = _as_it_is
        if not (os.environ.get("REQUESTS_CA_BUNDLE") or os.environ.get("CURL_CA_BUNDLE")) and SYSTEM_CA.exists():
            session.verify = str(SYSTEM_CA)
        session.headers["User-Agent"] = "bedplate"
        return session

    def manifest(self, repository: str, reference: str) -> Manifest:
        """The manifest or index that a tag or digest names.

        Raises:
            Unreachable, Unauthorised, NotFound, WrongBytes: see the classes.
        """
        response, raw = self._get(repository, reference)
        asked = f"{self.host}/{repository}{'@' if DIGEST.fullmatch(reference) else ':'}{reference}"
        digest = "sha256:" + hashlib.sha256(raw).hexdigest()
        claimed = response.headers.get("Docker-Content-Digest")
        for what, expected in (("asked for", DIGEST.fullmatch(reference) and reference), ("named", claimed)):
            if expected and expected != digest:
                raise WrongBytes(
                    f"{asked}: the registry answered with the bytes of {digest}, {what} was {expected}"
                    " (a damaged registry or cache: have it repaired, do not go on)"
                )
        try:
            body = json.loads(raw)
        except ValueError:
            body = None
        if not isinstance(body, dict):
            raise WrongBytes(f"{asked}: the registry answered with something that is no manifest")
        said = response.headers.get("Content-Type", "").partition(";")[0].strip()
        inside = body.get("mediaType", said)
        media_type = said or inside
        if media_type not in MEDIA_TYPES or inside != media_type:
            raise WrongBytes(f'{asked}: the registry answered with "{said}", inside is "{inside}": no image')
        return Manifest(digest, media_type, body, raw)

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
        """The manifest of one platform, by way of an index where there is one.

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

    def _get(self, repository: str, reference: str) -> tuple[requests.Response, bytes]:
        url = f"{self._base}/v2/{repository}/manifests/{reference}"
        asked = f"{self.host}/{repository}{'@' if ':' in reference else ':'}{reference}"
        headers = {"Accept": ", ".join(MEDIA_TYPES)}
        response, raw = self._request(url, headers, self._authorization.get(repository))
        if response.status_code == HTTPStatus.UNAUTHORIZED:
            self._authorization.pop(repository, None)
            header = self._answer_to(response, repository)
            response, raw = self._request(url, headers, header)
            if response.ok:
                self._authorization[repository] = header
        status = response.status_code
        if status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
            raise self._refused(repository, response)
        if status == HTTPStatus.NOT_FOUND:
            raise NotFound(f"{asked}: the registry does not have it{_said(raw)}")
        if status != HTTPStatus.OK:
            raise Unreachable(f"{asked}: the registry answered {status}{_said(raw)} (try again later)")
        return response, raw

    def _answer_to(self, response: requests.Response, repository: str) -> str:
        """The Authorization header for a challenge: Bearer (by the token service) or Basic."""
        challenge = response.headers.get("WWW-Authenticate", "")
        scheme = challenge.partition(" ")[0].lower()
        credentials = credentials_for(self.host, repository, self._auth)
        if scheme == "bearer":
            return "Bearer " + self._token(challenge, repository, credentials)
        if scheme != "basic" or credentials is None:
            raise self._refused(repository, response)
        return credentials.basic

    def _token(self, challenge: str, repository: str, credentials: Credentials | None) -> str:
        fields = dict(re.findall(r'([a-z_]+)="([^"]*)"', challenge))
        realm = fields.get("realm", "")
        parts = urlsplit(realm)
        # The registry chooses whom the password goes to; at least nobody on the way may read it.
        if not parts.netloc or (parts.scheme != "https" and not self._base.startswith("http://")):
            raise Unauthorised(f'{self.host} sends to a token service without TLS: "{realm}"')
        wanted = {"service": fields.get("service", ""), "scope": f"repository:{repository}:pull"}
        response, raw = self._request(realm, {}, credentials.basic if credentials else None, wanted)
        if response.status_code in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
            raise self._refused(repository, response, at=parts.netloc)
        try:
            answer = json.loads(raw)
            token = answer.get("token") or answer.get("access_token")
        except (ValueError, AttributeError):
            token = None
        if response.status_code != HTTPStatus.OK or not isinstance(token, str):
            raise Unreachable(f"{parts.netloc}, token service of {self.host}: {response.status_code}, no token")
        return token

    def _request(
        self,
        url: str,
        headers: Mapping[str, str],
        authorization: str | None,
        params: Mapping[str, str] | None = None,
    ) -> tuple[requests.Response, bytes]:
        """GET, with all of the answer's bytes as they were sent."""
        headers = {**headers, "Accept-Encoding": "identity"}
        if authorization:
            headers["Authorization"] = authorization
        host = urlsplit(url).netloc
        deadline = time.monotonic() + DEADLINE_S
        try:
            with self._session.get(url, headers=headers, params=params, stream=True, timeout=TIMEOUT_S) as response:
                raw = bytearray()
                for chunk in response.raw.stream(65536, decode_content=False):
                    raw += chunk
                    if len(raw) > MANIFEST_LIMIT_BYTES:
                        raise WrongBytes(f"{host}: an answer of more than {MANIFEST_LIMIT_BYTES} bytes is no manifest")
                    if time.monotonic() > deadline:
                        raise Unreachable(f"{host}: no whole answer within {DEADLINE_S:g} s (try again later)")
                return response, bytes(raw)
        except requests.exceptions.SSLError as fault:
            raise Unreachable(
                f"{host}: TLS: {_root(fault)} (the registry's CA belongs into the system's certificates,"
                " or REQUESTS_CA_BUNDLE names it)"
            ) from None
        except (requests.RequestException, urllib3.exceptions.HTTPError, OSError) as fault:
            raise Unreachable(f"{host}: {_root(fault)}") from None

    def _refused(self, repository: str, response: requests.Response, at: str | None = None) -> Unauthorised:
        credentials = credentials_for(self.host, repository, self._auth)
        tried = f"with {credentials.origin}" if credentials else (
            "without credentials: none for it in " + ", ".join(map(str, self._auth))
        )  # fmt: skip
        return Unauthorised(
            f"{at or self.host} refuses {repository} ({response.status_code}), asked {tried}"
            f" (run: skopeo login {self.host})"
        )


def _as_it_is(request: requests.PreparedRequest) -> requests.PreparedRequest:
    return request


def _root(fault: BaseException) -> str:
    """The reason below the layers of requests and urllib3, without their addresses of objects."""
    reason: BaseException = fault
    while True:
        inner = getattr(reason, "reason", None) or next((a for a in reason.args if isinstance(a, BaseException)), None)
        if not isinstance(inner, BaseException):
            break
        reason = inner
    return re.sub(r"<[^>]* at 0x[0-9a-f]+>:? ?|\w*Connection\(host=[^)]*\): ", "", str(reason)) or type(reason).__name__


def _said(raw: bytes) -> str:
    """The registry's own words, from the errors of its JSON."""
    try:
        errors = json.loads(raw)["errors"]
        words = "; ".join(f"{error['code']}: {error.get('message', '')}" for error in errors)[:300]
    except (ValueError, KeyError, TypeError, AttributeError):
        return ""
    return f" ({words})" if words else ""
