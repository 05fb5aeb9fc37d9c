"""How an image is named: HOST[:PORT]/PATH[:TAG][@DIGEST], and the same in enroot's grammar."""

import re
from dataclasses import dataclass

from bedplate.model.canonical import DIGEST
from bedplate.model.faults import BadInput

HUB = "registry-1.docker.io"
HUB_NAMES = ("docker.io", "index.docker.io", HUB)  # index: what Docker's own files of credentials call it
_REFERENCE = re.compile(
    r"(?P<host>[A-Za-z0-9.-]+(:[0-9]{1,5})?)/(?P<path>[a-z0-9]+([._/-]+[a-z0-9]+)*)"
    r"(:(?P<tag>[A-Za-z0-9_][A-Za-z0-9._-]{0,127}))?(@(?P<digest>[^@]+))?"
)
_ENROOT_VERSION = re.compile(r"([0-9]+)\.([0-9]+)")


@dataclass(frozen=True)
class Reference:
    """host: with the port, if any. The registry is always named: no short names, no Docker Hub by default."""

    host: str
    path: str
    tag: str | None = None
    digest: str | None = None

    @property
    def repository(self) -> str:
        return f"{self.host}/{self.path}"

    def __str__(self) -> str:
        return self.repository + (f":{self.tag}" if self.tag else "") + (f"@{self.digest}" if self.digest else "")


def parse_reference(text: str) -> Reference:
    """Read a reference.

    Raises:
        BadInput: it names no registry, or is none.
    """
    found = _REFERENCE.fullmatch(text)
    if found is None or not (re.search(r"[.:]", found["host"]) or found["host"] == "localhost"):
        raise BadInput(f'"{text}" names no image (write HOST[:PORT]/PATH[:TAG][@sha256:…], the registry included)')
    if found["digest"] and not DIGEST.fullmatch(found["digest"]):
        raise BadInput(f'"{text}": "{found["digest"]}" is no digest (sha256: and 64 hexadecimal digits)')
    return Reference(found["host"], found["path"], found["tag"], found["digest"])


def enroot_uri(repository: str, digest: str, enroot_version: str) -> str:
    """The URI that enroot imports an image by, always with `#` behind the registry.

    Without `#`, enroot takes a registry that has neither dot nor port for a user of Docker Hub. Enroot 3 has
    no `@DIGEST`, it takes the digest where the tag stands; since 4.0.0 `@` is the form that is documented.
    Docker Hub goes by the name of its registry: up to 4.1.2 enroot asks docker.io itself, which is none.

    Raises:
        BadInput: the version is none.
    """
    found = _ENROOT_VERSION.search(enroot_version)
    if found is None:
        raise BadInput(f'enroot says that its version is "{enroot_version}": expected 4.1.2 or the like')
    reference = parse_reference(repository)
    before_digest = "@" if int(found[1]) >= 4 else ":"  # noqa: PLR2004  see above
    host = HUB if reference.host in HUB_NAMES else reference.host
    return f"docker://{host}#{reference.path}{before_digest}{digest}"
