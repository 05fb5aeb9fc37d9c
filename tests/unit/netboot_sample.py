"""The example site with a lock, a key and public parts of a vault: what an installation is made of."""

import functools
import shutil
import tempfile
from pathlib import Path
from typing import Any

from bedplate.decide.lockdoc import LockDocument, Package, lock_text, parse_lock
from bedplate.decide.netboot.recipe import Recipe
from bedplate.model.canonical import sha256
from bedplate.model.netboot import Secrets
from bedplate.sources import checkout
from bedplate.sources.site import Site, open_site
from unit.autoinstall_sample import HASH, KEY
from unit.lock_sample import digest, document

ROOT = Path(__file__).resolve().parents[2]
ARCHIVE_KEY = b"""-----BEGIN PGP PUBLIC KEY BLOCK-----

bm90IGEga2V5LCBhIHNhbXBsZSBvZiBvbmU=
=AAAA
-----END PGP PUBLIC KEY BLOCK-----
"""
SECRETS = Secrets(HASH, (KEY,))
KERNEL = "6.8.0-138"
MODELS = {"gpu": "hgx-b200", "cpu": "cpu-2s", "controller": "service-1u"}


def packages() -> dict[str, dict[str, Any]]:
    """What one kind of node gets: a kernel, something of the system, a driver."""
    given = {
        f"linux-image-{KERNEL}-generic": (f"{KERNEL}.138", "kernel", True),
        f"linux-modules-{KERNEL}-generic": (f"{KERNEL}.138", "kernel", True),
        f"linux-modules-extra-{KERNEL}-generic": (f"{KERNEL}.138", "kernel", True),
        "linux-base": ("4.5ubuntu9", "kernel", False),
        "numactl": ("2.0.18-1build1", "os", True),
        "libnuma1": ("2.0.18-1build1", "os", False),
        "nvidia-driver-580-open": ("580.178.04-0ubuntu1", "driver", True),
    }
    return {
        name: Package(
            name,
            version,
            "amd64",
            digest("a"),
            1000,
            f"pool/{name}_{version.replace(':', '%3a')}_amd64.deb",
            layer,
            asked,
        ).as_dict()
        for name, (version, layer, asked) in given.items()
    }


def lock_document() -> dict[str, Any]:
    made = document()
    made["kinds"] = {kind: {"model": model, "architecture": "amd64"} for kind, model in MODELS.items()}
    made["packages"] = {kind: packages() for kind in MODELS}
    made["layers"]["kernel"] = {}
    made["layers"]["os"] = {"distribution": "ubuntu", "release": "noble"}
    made["layers"]["fabric"] = {"unmanaged": "no fabric here"}
    made["layers"]["hardware"] = {"models": sorted(MODELS.values())}
    made["archive"]["key_sha256"] = sha256(ARCHIVE_KEY)
    return made


def locked(changed: dict[str, Any] | None = None) -> LockDocument:
    return parse_lock(lock_text(changed or lock_document()), "A.lock.json")


def _small(text: str) -> str:
    """The example without most of its 660 GPU machines: what is read again and again in tests."""
    return text.replace('"gpu[001-640]"', '"gpu[001-003]"').replace('"gpu[641-660]"', '"gpu[641-642]"')


FLEET = _small((ROOT / "inventory/fleet.yml").read_text())
NODES = "".join(
    line
    for line in (ROOT / "inventory/nodes.csv").read_text().splitlines(keepends=True)
    if not line.startswith("gpu") or line[:6] in ("gpu001", "gpu002", "gpu003", "gpu641", "gpu642")
)
OF_MODEL = {"hgx-b200": "gpu001", "cpu-2s": "cpu01", "service-1u": "ctl1"}
"""For each hardware model of the example, one node of it."""


def write_example(root: Path) -> Path:
    """The small example on disk, for tests that change one thing in it."""
    shutil.copytree(ROOT / "inventory", root, ignore=shutil.ignore_patterns("nodes.csv", "fleet.yml"))
    (root / "fleet.yml").write_text(FLEET)
    (root / "nodes.csv").write_text(NODES)
    return root


@functools.cache
def example() -> Site:
    with tempfile.TemporaryDirectory() as folder:
        site = open_site(write_example(Path(folder) / "site"))
        assert site.fleet.nodes
        for name in site.model_names():
            site.model(name)
    return site


def recipe(
    site: Site | None = None,
    *,
    lock: LockDocument | None = None,
    key: bytes = ARCHIVE_KEY,
    secrets: Secrets = SECRETS,
) -> Recipe:
    site = site or example()
    models = {kind.model: site.model(kind.model) for kind in site.fleet.kinds.values()}
    return Recipe(lock or locked(), site.fleet, models, key=key, secrets=secrets, sources=checkout.autoinstall())
