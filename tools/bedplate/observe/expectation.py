"""What a node must show under its lock: the input of every check, computed before a node is asked anything."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from bedplate.decide.lockdoc import LockDocument
from bedplate.decide.render import Rendering, manifest
from bedplate.decide.squashfs import IMAGES
from bedplate.decide.wiring import the_driver, the_kernel
from bedplate.model.faults import BadInput
from bedplate.model.fleet import Node
from bedplate.model.layers import Layer
from bedplate.sources import checkout
from bedplate.sources.site import Site


@dataclass(frozen=True)
class Expectation:
    """One node and what its lock says.

    packages: name -> version, the whole closure; files: path -> {mode, sha256}; image: the squashfs' path and
    sha256, None where the image layer is unmanaged; unmanaged: layer -> reason.
    """

    node: Node
    lock: LockDocument
    packages: Mapping[str, str]
    layer_of: Mapping[str, str]
    files: Mapping[str, Mapping[str, str]]
    image: tuple[str, str] | None
    unmanaged: Mapping[str, str]
    units: Mapping[str, str] = field(default_factory=dict)
    """systemd unit that must be active and enabled -> layer of the role that says so."""
    replaces: tuple[str, ...] = ()
    """Regular expressions over names of packages: installed ones that the lock lacks are of another branch."""
    modules: tuple[str, ...] = ()
    """Kernel modules that the roles of this node need."""
    kernel: str = ""
    """The kernel's release; empty where the lock has none."""
    driver: str = ""
    """The version that driver, Fabric Manager and their libraries must all have; empty where the lock has none."""

    def packages_of(self, layer: str) -> dict[str, str]:
        return {name: version for name, version in self.packages.items() if self.layer_of[name] == layer}


def expectations(site: Site, asked: Mapping[str, str]) -> dict[str, Expectation]:
    """Node name -> what it must show; asked: node name -> environment name.

    Raises:
        BadInput: an unknown node; a lock is missing or damaged.
        Refused: the templates are not those of a lock.
    """
    unknown = sorted(asked.keys() - site.fleet.nodes.keys())
    if unknown:
        raise BadInput(f"no such node in {site.fleet_path}: {', '.join(unknown)}")
    locks = {name: site.lock(name) for name in sorted(set(asked.values()))}
    sources = checkout.roles()
    renderings = {name: Rendering(lock, sources, site.surroundings) for name, lock in locks.items()}
    result = {}
    for name, environment in asked.items():
        lock, node = locks[environment], site.fleet.nodes[name]
        closure = lock.packages(node.kind)
        squashfs = lock.image.squashfs_sha256 if lock.image else None
        result[name] = Expectation(
            node, lock,
            packages={p: package.version for p, package in closure.items()},
            layer_of={p: str(package.layer) for p, package in closure.items()},
            files=manifest(renderings[environment].files(node)),
            image=(f"{IMAGES}/{squashfs.replace(':', '-')}.sqsh", squashfs) if squashfs else None,
            units={unit: str(role.layer) for role in renderings[environment].roles[node.kind] for unit in role.units},
            replaces=tuple(p for role in renderings[environment].roles[node.kind] for p in role.replaces),
            modules=tuple(sorted({m for role in renderings[environment].roles[node.kind] for m in role.modules})),
            kernel=the_kernel(closure),
            driver=the_driver({p: package.version for p, package in closure.items()}),
            unmanaged={str(layer): reason for layer in Layer if (reason := lock.unmanaged(layer)) is not None},
        )  # fmt: skip
    return result
