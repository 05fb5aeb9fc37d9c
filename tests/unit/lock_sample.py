"""A whole lock document, for tests that change one thing in it."""

import copy
import json
from typing import Any

from bedplate.decide.lockdoc import Image, LockDocument, Package, assemble, lock_text, parse_lock
from bedplate.model.layers import Layer


def digest(letter: str) -> str:
    return "sha256:" + letter * 64


def layers() -> dict[str, dict[str, Any]]:
    managed: dict[str, dict[str, Any]] = {
        "hardware": {"models": ["lab-gpu8"]}, "os": {"distribution": "debian", "release": "trixie"},
        "driver": {}, "fabric": {}, "image": {"definition": "images/a"}, "config": {},
    }  # fmt: skip
    return {str(layer): managed.get(layer, {"unmanaged": f"no {layer} here"}) for layer in Layer}


def document() -> dict[str, Any]:
    def package(name: str, version: str, layer: str, *, asked: bool = True) -> tuple[str, Package]:
        file = f"pool/{name}_{version}_amd64.deb"
        return name, Package(name, version, "amd64", digest("a"), 1000, file, layer, asked)

    made = assemble(
        name="A",
        spec_sha256=digest("1"),
        kinds={"gpu": {"model": "lab-gpu8", "architecture": "amd64"}},
        archive={
            "url": "http://archive.lab:8080/", "suite": "a", "components": ("main",),
            "key_sha256": digest("2"), "inrelease_sha256": digest("3"),
        },
        layers=layers(),
        packages={
            "gpu": dict(
                [
                    package("nvidia-driver-570-open", "570.133.20-0ubuntu1", "driver"),
                    package("nvidia-fabricmanager-570", "570.133.20-1", "fabric"),
                    package("libnuma1", "2.0.18-1+b1", "os", asked=False),
                ]
            )
        },
        image=Image(
            name="lab-small", reference=f"registry.lab:5443/lab/small@{digest('5')}", index_digest=None,
            manifest_digest=digest("5"), config_digest=digest("6"), base_digest=digest("7"),
            squashfs_sha256=digest("8"), squashfs_size=12345, definition_sha256=digest("9"),
            build_record_sha256=digest("b"),
        ),
        config={
            "templates": {"roles/base/templates/nccl.conf.j2": digest("c")},
            "files_sha256": {"roles/base/files.yml": digest("d")},
            "values": {"nccl_debug": "WARN"},
        },
    )  # fmt: skip
    return copy.deepcopy(made)


def parsed(changed: dict[str, Any] | None = None) -> LockDocument:
    return parse_lock(lock_text(changed or document()), "lock")


def set_at(data: Any, path: str, value: Any) -> dict[str, Any]:
    """A copy with one value changed; `a/b/0` is data["a"]["b"][0]; ... removes it."""
    copied = json.loads(json.dumps(data))
    *parents, last = (int(part) if part.isdigit() else part for part in path.split("/"))
    here = copied
    for part in parents:
        here = here[part]
    if value is ...:
        del here[last]
    else:
        here[last] = value
    return copied  # type: ignore[no-any-return]
