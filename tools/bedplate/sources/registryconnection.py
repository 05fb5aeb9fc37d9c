"""The conversation with one registry: TLS, credentials, tokens, limits and deadlines. What it means is registry.py.

- Every answer has a limit of bytes and a deadline; what was sent is handed on as it was, never decompressed.
- A registry may ask for a password at any time (a token has run out in the middle of 25 GB): it is answered once
  for each request, with a new token.
- A password goes to the registry, and over HTTPS to the token service that it names; never along a redirect.
"""

import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

import requests
import urllib3
from requests.adapters import HTTPAdapter
from urllib3.util import Retry

from bedplate.decide.reference import HUB, HUB_NAMES
from bedplate.sources import certificates
from bedplate.sources.credentials import Credentials, look_up, machines
from bedplate.sources.registryfaults import RegistryFault, Unauthorised, Unreachable, WrongBytes

TIMEOUT_S = (10.0, 30.0)  # connecting; waiting for the next byte
DEADLINE_S = 120.0  # one answer that is held in memory, with every byte
LIMIT_BYTES = 8 * 1024 * 1024  # of such an answer; the specification asks registries to take manifests of 4 MiB
CHUNK_BYTES = 1024 * 1024
RETRIES = Retry(
    total=4, connect=2, read=2, other=0, backoff_factor=0.3, backoff_max=5, retry_after_max=10,
    status_forcelist=(429, 500, 502, 503, 504), allowed_methods=("GET", "HEAD"), raise_on_status=False,
)  # fmt: skip
PULL, PUSH = "pull", "pull,push"  # what a token is for, in the words of the token specification
REFUSALS = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN})
NGC, NGC_TOKENS = "nvcr.io", "authn.nvidia.com"


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    raw: bytes

    @property
    def said(self) -> str:
        """The registry's own words, from the errors of its JSON."""
        try:
            errors = json.loads(self.raw)["errors"]
            words = "; ".join(f"{error['code']}: {error.get('message', '')}" for error in errors)[:300]
        except (ValueError, KeyError, TypeError, AttributeError):
            return ""
        return f" ({words})" if words else ""


class _Session(requests.Session):
    def rebuild_auth(self, prepared_request: requests.PreparedRequest, response: requests.Response) -> None:
        """Along a redirect: what was sent to this host stays with it, and ~/.netrc gives nothing to others."""
        if self.should_strip_auth(response.request.url, prepared_request.url):  # type: ignore[no-untyped-call]
            prepared_request.headers.pop("Authorization", None)


class _Adapter(HTTPAdapter):
    """Believes a registry's own certificates besides the system's."""

    def __init__(self, host: str) -> None:
        self._host = host
        super().__init__(max_retries=RETRIES)

    def init_poolmanager(self, *args: Any, **keywords: Any) -> None:
        if context := certificates.context(self._host):
            keywords["ssl_context"] = context
        super().init_poolmanager(*args, **keywords)


class Connection:
    def __init__(self, host: str, *, auth: Sequence[Path], plain_http: bool) -> None:
        self.host = host
        self._auth = list(auth)
        self._server = HUB if host in HUB_NAMES else host
        self.base = f"{'http' if plain_http else 'https'}://{self._server}"
        self._authorization: dict[tuple[str, str], str] = {}  # by repository and action: what let us in last

    @cached_property
    def _session(self) -> requests.Session:
        session = _Session()
        session.mount(f"{self.base}/", _Adapter(self._server))
        for scheme in ("https://", "http://"):
            session.mount(scheme, HTTPAdapter(max_retries=RETRIES))
        # requests looks for passwords in ~/.netrc when it is given none: the files of credentials are to decide.
        session.auth = _as_it_is
        session.verify = certificates.bundle()
        session.headers["User-Agent"] = "bedplate"
        return session

    def credentials(self, repository: str) -> Credentials | None:
        """What this registry would be shown."""
        return look_up(self.host, repository, self._auth).credentials

    def ask(
        self,
        repository: str,
        path: str,
        *,
        method: str = "GET",
        headers: Mapping[str, str] | None = None,
        action: str = PULL,
    ) -> Answer:
        """One answer, whole. path: behind /v2/REPOSITORY/, or an address that the registry named.

        Raises:
            Unreachable, Unauthorised, WrongBytes: see the classes.
        """
        with self.asking(repository, path, method=method, headers=headers, action=action) as response:
            raw = self._whole(response, urlsplit(str(response.url)).netloc)
            return Answer(response.status_code, response.headers, raw)

    @contextmanager
    def asking(
        self,
        repository: str,
        path: str,
        *,
        method: str = "GET",
        headers: Mapping[str, str] | None = None,
        action: str = PULL,
    ) -> Iterator[requests.Response]:
        """An answer whose bytes are still to be read.

        Raises:
            Unreachable, Unauthorised, WrongBytes: see the classes.
        """
        url = urljoin(f"{self.base}/v2/{repository}/", path)
        key = (repository, action)
        response = self._request(method, url, headers, self._authorization.get(key))
        try:
            if response.status_code == HTTPStatus.UNAUTHORIZED:
                self._authorization.pop(key, None)
                response.close()
                header = self._answer_to(response, repository, action)
                response = self._request(method, url, headers, header)
                if response.ok:
                    self._authorization[key] = header
            if response.status_code in REFUSALS:
                raise self.refused(repository, response.status_code, action)
            yield response
        except (requests.RequestException, urllib3.exceptions.HTTPError, OSError) as fault:
            raise Unreachable(f"{self.host}: {_root(fault)}") from None
        finally:
            response.close()

    def _answer_to(self, response: requests.Response, repository: str, action: str) -> str:
        """The Authorization header for a challenge: Bearer (by the token service) or Basic."""
        challenge = response.headers.get("WWW-Authenticate", "")
        scheme = challenge.partition(" ")[0].lower()
        credentials = self.credentials(repository)
        if scheme == "bearer":
            return "Bearer " + self._token(challenge, repository, action, credentials)
        if scheme != "basic" or credentials is None:
            raise self.refused(repository, response.status_code, action)
        return credentials.basic

    def _token(self, challenge: str, repository: str, action: str, credentials: Credentials | None) -> str:
        fields = dict(re.findall(r'([a-z_]+)="([^"]*)"', challenge))
        realm = fields.get("realm", "")
        parts = urlsplit(realm)
        # The registry chooses whom the password goes to; at least nobody on the way may read it.
        if not parts.netloc or (parts.scheme != "https" and not self.base.startswith("http://")):
            raise Unauthorised(f'{self.host} sends to a token service without TLS: "{realm}"')
        wanted = {"service": fields.get("service", ""), "scope": f"repository:{repository}:{action}"}
        response = self._request("GET", realm, None, credentials.basic if credentials else None, wanted)
        try:
            raw = self._whole(response, parts.netloc)
        finally:
            response.close()
        if response.status_code in REFUSALS:
            raise self.refused(repository, response.status_code, action, at=parts.netloc)
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
        method: str,
        url: str,
        headers: Mapping[str, str] | None,
        authorization: str | None,
        params: Mapping[str, str] | None = None,
    ) -> requests.Response:
        sent = {**(headers or {}), "Accept-Encoding": "identity"}
        if authorization:
            sent["Authorization"] = authorization
        host = urlsplit(url).netloc
        try:
            return self._session.request(
                method, url, headers=sent, params=params, stream=True, timeout=TIMEOUT_S, allow_redirects=True
            )
        except requests.exceptions.SSLError as fault:
            raise Unreachable(
                f"{host}: TLS: {_root(fault)} (the registry's CA belongs into the system's certificates or"
                f" {certificates.FOLDERS[0]}/{host}/ca.crt, or REQUESTS_CA_BUNDLE names it)"
            ) from None
        except (requests.RequestException, urllib3.exceptions.HTTPError, OSError) as fault:
            raise Unreachable(f"{host}: {_root(fault)}") from None

    def _whole(self, response: requests.Response, host: str) -> bytes:
        deadline = time.monotonic() + DEADLINE_S
        raw = bytearray()
        try:
            for chunk in response.raw.stream(65536, decode_content=False):
                raw += chunk
                if len(raw) > LIMIT_BYTES:
                    raise WrongBytes(f"{host}: an answer of more than {LIMIT_BYTES} bytes is no manifest")
                if time.monotonic() > deadline:
                    raise Unreachable(f"{host}: no whole answer within {DEADLINE_S:g} s (try again later)")
        except (requests.RequestException, urllib3.exceptions.HTTPError, OSError) as fault:
            raise Unreachable(f"{host}: {_root(fault)}") from None
        return bytes(raw)

    def refused(self, repository: str, status: int, action: str, at: str | None = None) -> RegistryFault:
        """Who let us not in, what we showed, and what is to be done; without what we showed."""
        found = look_up(self.host, repository, self._auth)
        if found.credentials:
            tried = f"asked with {found.credentials.origin}"
            if action == PUSH:
                tried += ", which may not push there or is wrong"
        else:
            tried = f"asked without credentials: none for it in {', '.join(map(str, self._auth)) or 'no file'}"
        for each in found.not_read:
            tried += f"; {each}, which is not read"
        remedy = f"run: skopeo login {self.host}"
        if self.host == NGC:
            remedy = (
                "run: skopeo login nvcr.io --username '$oauthtoken' (literally, in single quotes), the password is"
                f" an NGC API key; Enroot's file wants the same line for machine {NGC} and for machine {NGC_TOKENS}"
            )
        elif found.credentials and found.credentials.enroots and at and (name := self._machine_lacking(at)):
            remedy += f"; Enroot itself would also need a line for machine {name}, its token service"
        what = "a push to" if action == PUSH else ""
        who = f"{at}, token service of {self.host}," if at and at != self.host else self.host
        return Unauthorised(f"{who} refuses {what} {repository} ({status}), {tried} ({remedy})".replace("  ", " "))

    def _machine_lacking(self, at: str) -> str | None:
        """The token service, if Enroot's file has no line of its own for it: curl then sends it no password."""
        name = at.partition(":")[0]
        files = [file for file in self._auth if file.name == ".credentials" and file.exists()]
        return None if any(name in machines(file.read_text()) for file in files) else name


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
