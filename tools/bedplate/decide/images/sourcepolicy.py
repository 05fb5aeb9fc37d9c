"""BuildKit's source policy for one Dockerfile: what it takes by tag or address is pinned, other images are denied.

The engine reads a policy from the top; of ALLOW and DENY the last that matches wins, a CONVERT changes the source, and
the whole is read again (buildkit, sourcepolicy/engine.go). So first everything is denied, then each pin allowed.
A CONVERT names no match type: where it says EXACT, the source is replaced by its own selector, so by nothing new
(formatter.go; seen with BuildKit of docker 26.1). An identifier without `*` matches itself alone either way.
"""

from collections.abc import Mapping
from typing import Any

_IMAGE = "docker-image://"


def source_policy(base: str, images: Mapping[str, str], addresses: Mapping[str, str]) -> dict[str, Any]:
    """The policy for a Dockerfile that stands on base.

    images: as they are written there -> with the digest; addresses: of an ADD -> digest.
    """
    allowed = sorted({full(name) for name in [base, *images.values()] if "/" in name})
    rules: list[dict[str, Any]] = [_rule("DENY", f"{_IMAGE}*")]
    rules += [_rule("ALLOW", _IMAGE + name) for name in allowed]
    for name in sorted({full(image) for image in images.values()}):
        rules.append(_rule("CONVERT", _IMAGE + name.partition("@")[0], {"identifier": _IMAGE + name}))
    for address, digest in sorted(addresses.items()):
        rules.append(_rule("CONVERT", address, {"identifier": address, "attrs": {"http.checksum": digest}}))
    return {"rules": rules}


def pinned(name: str, pins: Mapping[str, str]) -> str | None:
    """An image that a Dockerfile names by a tag, with the digest that the pins have for it."""
    known = pins.get(full(name))
    return f"{full(name)}@{known}" if known else None


def full(name: str) -> str:
    """An image's name as BuildKit writes it: registry and `library` spelled out (distribution/reference)."""
    first, slash, _ = name.partition("/")
    if not slash or not ("." in first or ":" in first or first == "localhost"):
        name = f"docker.io/{name}" if slash else f"docker.io/library/{name}"
    elif first in {"docker.io", "index.docker.io"} and name.count("/") == 1:
        name = f"docker.io/library/{name.partition('/')[2]}"
    return name


def _rule(action: str, identifier: str, updates: dict[str, Any] | None = None) -> dict[str, Any]:
    rule = {"action": action, "selector": {"identifier": identifier}}
    return rule | ({"updates": updates} if updates else {})
