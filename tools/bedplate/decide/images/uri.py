"""How Docker, Podman and Enroot read the name of an image, and how each of them must be told it.

Invariants
- `meant` accepts only what names exactly one thing; it tells every fault of a name at once.
- `form` gives, for each program, a text that this program reads as what was meant; `reading` proves it.
- Where a text goes is computed by each program's own grammar, never by what was meant.

Example: registry.lab/team/img:1@sha256:… is one image for Docker; Enroot 4 reads docker:// before it the same way;
Enroot 3.5 takes `registry.lab/team/img` for a user and asks Docker Hub for an image named `sha256`.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

from bedplate.decide.reference import HUB, HUB_NAMES, Reference
from bedplate.model.canonical import DIGEST
from bedplate.model.faults import BadInput, Fault

SCHEME = "docker://"
LONGEST_PATH = 255  # distribution's reference grammar; the registry refuses more

_LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?")
_PIECE = re.compile(r"[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
_LIKE_DIGEST = re.compile(r"sha[0-9]+(:.*)?|[A-Za-z0-9+._-]+:[0-9A-Fa-f]{32,}")

# src/docker.sh of Enroot 3.5.0 and 4.1.2: the classes, and the forms in the order in which they are tried. `,-@` in the
# class of users is a range: it has / : ; < = > ? @ and the digits, and that is how a registry becomes a user.
_USER = r"(?P<user>[A-Za-z0-9_.!~*\\'()%;:&=+$,-@]+)@"
_IMAGE = r"(?P<image>[a-z0-9/._-]+)"
_ENROOT_TAG = r"(?P<tag>[A-Za-z0-9._:-]+)"
_ENROOT_DIGEST = r"(?P<digest>sha256:[A-Za-z0-9]+)"
_OLD = re.compile(rf"docker://({_USER})?((?P<registry>[^#]+)#)?{_IMAGE}(:{_ENROOT_TAG})?")
_ENDS = (f":{_ENROOT_TAG}@{_ENROOT_DIGEST}", f"@{_ENROOT_DIGEST}", f"(:{_ENROOT_TAG})?")
_NEW = tuple(
    re.compile(f"docker://({_USER})?{middle}{end}")
    for middle in (f"(?P<space>[^/#]+)/{_IMAGE}", r"(?P<short>[^/@#:]+)", f"(?P<registry>[^#/@]+)#{_IMAGE}")
    for end in _ENDS
)


class Program(StrEnum):
    """Who reads a name; the value is what messages and JSON call it."""

    DOCKER = "docker"
    PODMAN = "podman, skopeo"
    ENROOT_3 = "enroot 3.5"
    ENROOT_4 = "enroot 4.x"


@dataclass(frozen=True)
class Reading:
    """Where a text goes: `goes` names registry, path, and tag or digest; None: it is refused. why: what surprises."""

    program: Program
    goes: Reference | None
    why: str = ""
    user: str = ""


@dataclass(frozen=True)
class _Parts:
    host: str
    path: str
    tag: str | None
    digest: str | None
    faults: tuple[tuple[str, str], ...]


def meant(text: str) -> Reference:
    """The image that a name in any of the grammars means, with its registry written out.

    Raises:
        BadInput: every fault of it.
    """
    parts = _parts(text)
    faults = [*parts.faults, *_host_faults(parts.host), *_path_faults(parts.path)]
    if parts.tag is not None and not _TAG.fullmatch(parts.tag):
        faults.append((f'"{parts.tag}" is no tag', "at most 128 letters, digits and . _ -, not beginning with . or -"))
    if parts.digest is not None and not DIGEST.fullmatch(parts.digest):
        faults.append((f'"{parts.digest}" is no digest', "sha256: and 64 hexadecimal digits, in small letters"))
    if faults:
        raise BadInput(Fault(f'"{text}"', None, *fault) for fault in faults)
    return Reference(parts.host, parts.path, parts.tag, parts.digest)


def _parts(text: str) -> _Parts:
    faults: list[tuple[str, str]] = []
    scheme, colons, rest = text.partition("://")
    if not colons:
        rest = text
    elif f"{scheme}://" != SCHEME:
        faults.append((f'"{scheme}://" is no way to name an image of a registry', f"{SCHEME} or nothing"))
    head, at, tail = rest.rpartition("@")
    digest = None
    if at and (_LIKE_DIGEST.fullmatch(tail) or not colons):
        rest, digest = head, tail
    if "@" in rest:
        user, _, rest = rest.partition("@")
        if not colons or not user or "@" in rest:
            faults.append((f'"{user}@" before the registry', f"at most one user, and only behind {SCHEME}"))
    registry, sharp, path = rest.partition("#")
    if sharp and "#" in path:
        faults.append(("more than one #", "the registry stands before the only one"))
        path = path.replace("#", "/")
    path, tag, late = _tagged(path if sharp else rest)
    if late is not None and digest is not None:
        faults.append(("two digests", "one is enough"))
    digest = digest if late is None else late
    if not sharp:
        registry, path = _docker_host(path)
    elif registry.lower() in HUB_NAMES and "/" not in path:
        path = f"library/{path}"  # both Enroots ask for it this way
    return _Parts(registry, path, tag, digest, tuple(faults))


def _tagged(text: str) -> tuple[str, str | None, str | None]:
    """What stands before the tag, the tag, and a digest that stands in its place, as Enroot 3 wants it."""
    start = text.rfind("/") + 1
    name, colon, tag = text[start:].partition(":")
    if not colon:
        return text, None, None
    if ":" in tag or tag.startswith("sha256"):
        return text[:start] + name, None, tag
    return text[:start] + name, tag, None


def _docker_host(name: str) -> tuple[str, str]:
    """Docker's rule: the first piece is a registry if it has a dot or a port, or is localhost."""
    first, slash, rest = name.partition("/")
    if slash and (re.search(r"[.:]", first) or first == "localhost"):
        if first.lower() in HUB_NAMES:
            return "docker.io", rest if "/" in rest else f"library/{rest}"
        return first, rest
    return "docker.io", name if slash else f"library/{name}"


def _host_faults(host: str) -> Iterator[tuple[str, str]]:
    name, colon, port = host.partition(":")
    if len(name) > 253 or not all(_LABEL.fullmatch(label) for label in name.split(".")):  # noqa: PLR2004  RFC 1035
        yield f'"{name}" is no host name of a registry', "letters, digits and -, with dots between"
    if colon and not (re.fullmatch(r"[1-9][0-9]{0,4}", port) and int(port) <= 65535):  # noqa: PLR2004
        yield f'"{port}" is no port', "1 to 65535"


def _path_faults(path: str) -> Iterator[tuple[str, str]]:
    if len(path) > LONGEST_PATH:
        yield f"a path of {len(path)} characters", f"at most {LONGEST_PATH}"
    if path != path.lower():
        yield f'"{path}" has capital letters', "small letters only: no registry and no Enroot takes others"
    elif not all(_PIECE.fullmatch(piece) for piece in path.split("/")):
        yield f'"{path}" is no path in a registry', "small letters and digits, with . _ __ or - between them, and /"


def form(program: Program, image: Reference) -> str:
    """How a program must be told an image; `reading` of it is that image."""
    hub = image.host.lower() in HUB_NAMES
    if program in {Program.ENROOT_3, Program.ENROOT_4}:
        # Always with #: without one, a registry that has neither dot nor port is a user of Docker Hub.
        at = ":" if program is Program.ENROOT_3 or not image.digest else "@"
        return f"{SCHEME}{HUB if hub else image.host}#{image.path}{at}{image.digest or image.tag or 'latest'}"
    host = "docker.io" if hub else image.host
    if not re.search(r"[.:]", host) and host != "localhost":
        host += ":443"  # else Docker takes it for a user of Docker Hub
    if program is Program.DOCKER:
        return str(Reference(host, image.path, image.tag, image.digest))
    # skopeo refuses a name with tag and digest, so the digest alone.
    return SCHEME + str(Reference(host, image.path, None if image.digest else image.tag, image.digest))


def readings(text: str) -> list[Reading]:
    """Where a text goes, by each program's own grammar."""
    return [reading(program, text) for program in Program]


def reading(program: Program, text: str) -> Reading:
    """Where one program goes with a text."""
    if program is Program.ENROOT_3:
        return _enroot_3(text)
    if program is Program.ENROOT_4:
        return _enroot_4(text)
    return _containers(program, text)


def _containers(program: Program, text: str) -> Reading:
    """Docker, and those of github.com/containers, which read a name by Docker's rules."""
    if text.startswith(SCHEME) and program is Program.DOCKER:
        return Reading(program, None, f"refused: {SCHEME} before it")
    text = text.removeprefix(SCHEME)
    try:
        goes = meant(text)
    except BadInput as fault:
        return Reading(program, None, f"refused: {'; '.join(each.found for each in fault.faults)}")
    if "#" in text or (goes.digest and f":{goes.digest}" in text):
        return Reading(program, None, "refused: # and a digest behind : are Enroot's")
    goes = replace(goes, host=HUB) if goes.host == "docker.io" else goes
    first = text.partition("/")[0]
    why = ""
    if "/" not in text or not (re.search(r"[.:]", first) or first == "localhost"):
        why = f'without a registry: Docker Hub, whatever "{first}" is'
        if program is Program.PODMAN:
            why = "without a registry: skopeo asks Docker Hub, podman those of registries.conf"
    elif program is Program.PODMAN and goes.tag and goes.digest:
        why = "podman drops the tag; skopeo refuses tag and digest together"
    return Reading(program, goes, why)


def _enroot_3(text: str) -> Reading:
    program = Program.ENROOT_3
    if "\n" in text or (found := _OLD.fullmatch(text)) is None:
        return Reading(program, None, _refusal(text))
    user, registry, image = found["user"] or "", found["registry"], found["image"]
    why = ""
    if registry is None and (user or "/" in image):
        taken = f'"{user}" is taken for a user' if user else f'"{image.partition("/")[0]}" is no registry to it'
        why = f"{taken}: Docker Hub is asked" + ("" if user else ", unless .credentials has a machine of this name")
    registry = registry or HUB
    image = f"library/{image}" if "/" not in image and registry.endswith("docker.io") else image
    return Reading(program, _target(registry, image, found["tag"]), why, user)


def _enroot_4(text: str) -> Reading:
    program = Program.ENROOT_4
    found = None if "\n" in text else next(filter(None, (each.fullmatch(text) for each in _NEW)), None)
    if found is None:
        return Reading(program, None, _refusal(text))
    parts = found.groupdict()
    reference = parts.get("digest") or parts.get("tag")
    why = "the tag is dropped: the digest counts" if parts.get("digest") and parts.get("tag") else ""
    registry, image = parts.get("registry") or HUB, parts.get("image") or f"library/{parts.get('short')}"
    if space := parts.get("space"):
        if re.search(r"[.:]", space):
            registry = space
        else:
            image = f"{space}/{image}"
            why = f'"{space}" has no dot and no port, so it is no registry to it: Docker Hub is asked'
    if registry == "docker.io":
        why = f"asks docker.io itself (up to 4.1.2), which is no registry: Docker Hub is {HUB}"
    return Reading(program, _target(registry, image, reference), why, parts.get("user") or "")


def _target(registry: str, image: str, reference: str | None) -> Reference:
    reference = reference or "latest"
    digest = reference.startswith("sha256:")
    return Reference(registry, image, None if digest else reference, reference if digest else None)


def _refusal(text: str) -> str:
    if not text.startswith(SCHEME):
        return f"refused: without {SCHEME}"
    return "refused: Invalid image reference"


def same(goes: Reference | None, image: Reference) -> bool:
    """Whether a request goes to what was meant: Docker Hub has three names, 443 is the port where none is named."""
    if goes is None:
        return False
    asked = goes.digest or goes.tag or "latest"
    host = HUB if image.host.lower() in HUB_NAMES else image.host
    wanted = (_host(host), image.path, image.digest or image.tag or "latest")
    return (_host(goes.host), goes.path, asked) == wanted


def _host(host: str) -> str:
    return host.lower().removesuffix(":443")
