"""Every template of every role, rendered in the sandbox that a rollout renders in, for whole environments."""

import copy
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from bedplate.act.lock import _layers
from bedplate.decide.lockdoc import LockDocument, Package, assemble, lock_text, parse_lock
from bedplate.decide.render import Rendering, file_entries
from bedplate.decide.roles import declared
from bedplate.model.canonical import sha256
from bedplate.model.environment import Environment, parse_environment
from bedplate.model.layers import Layer
from bedplate.sources import checkout
from bedplate.sources.site import open_site
from lab.guestsite import Kernels, site_files
from unit.lock_sample import digest, parsed

SITE = open_site(checkout.root() / "inventory")
# What an environment may set beyond the example's, so that roles which apply by a value are rendered, too.
EVERY_VALUE = {
    match[1]: "svc1" if match[1].startswith("log_") else "10.20.0.31"
    for name, data in checkout.roles().items()
    for match in re.finditer(r"\bvalues\.([a-z0-9_]+)", data.decode(errors="replace"))
}


# A package for every role that applies where one of some packages is there.
EVERY_PACKAGE = {
    pattern.replace("*", "x"): role.layer for role in declared(checkout.roles()) for pattern in role.packages
}


def locked(environment: Environment, extra: dict[str, str], besides: Mapping[str, Layer]) -> LockDocument:
    """As if everything that is asked for resolved to itself; no archive is asked."""
    hashes = {path: sha256(data) for path, data in checkout.roles().items()}
    packages = {
        name: Package(name, version, "amd64", digest("a"), 1, f"pool/{name}.deb", layer.value, asked=True)
        for name, (layer, version) in environment.packages().items()
    }
    for name, layer in besides.items():
        package = Package(name, "1.0", "amd64", digest("a"), 1, f"pool/{name}.deb", layer.value, asked=False)
        packages.setdefault(name, package)
    values = extra | dict(environment.layers[Layer.CONFIG].values)
    layers = _layers(environment)
    if besides:  # every role of the layer, those of nodes among them
        layers["scheduler"] = {"controller": "2026.11-controller"}
    image = parsed().image if besides else None
    layers["image"] = {"definition": "images/a"} if image else {"unmanaged": "not what is rendered here"}
    document = assemble(
        name=environment.name, spec_sha256=environment.spec_sha256,
        kinds={kind: {"model": "any", "architecture": "amd64"} for kind in environment.kinds},
        archive={"url": environment.archive.url, "suite": environment.archive.suite,
                 "components": environment.archive.components, "key_sha256": digest("1"),
                 "inrelease_sha256": digest("2")},
        layers=layers, packages=dict.fromkeys(environment.kinds, packages), image=image,
        config={"templates": {p: h for p, h in hashes.items() if "/templates/" in p},
                "files_sha256": {p: h for p, h in hashes.items() if "/templates/" not in p}, "values": values},
    )  # fmt: skip
    return parse_lock(lock_text(document), f"{environment.name}.lock.json")


def surroundings() -> dict[str, Any]:
    """The example's, with what no public source says of its models: Slurm's configuration refuses without it."""
    around = copy.deepcopy(SITE.surroundings)
    for model in around["models"].values():
        model["memory_mib"] = model["memory_mib"] or 2_000_000
        model["cpu"] = model["cpu"] or {"sockets": 2, "cores_per_socket": 56, "threads_per_core": 2}
    return around


def files_of(
    environment: Environment, extra: dict[str, str] | None = None, besides: Mapping[str, Layer] | None = None
) -> dict[str, bytes]:
    """Path -> bytes, for the first node that the environment is for."""
    rendering = Rendering(locked(environment, extra or {}, besides or {}), checkout.roles(), surroundings())
    node = SITE.fleet.nodes_of(environment.kinds)[0]
    return {file.path: file.data for file in rendering.files(node)}


@pytest.mark.parametrize("name", SITE.environment_names())
def test_the_examples_render_whole(name: str) -> None:
    files = files_of(SITE.environment(name))
    assert files
    for path, data in files.items():
        assert b"{{" not in data, path
        assert b"{%" not in data, path


def test_the_kernels_line_and_the_locks_kernel_are_what_grub_is_told() -> None:
    kernels = {"linux-image-6.1.0-50-cloud-amd64": "6.1.176-1", "linux-image-cloud-amd64": "6.1.176-1"}
    texts = site_files(Kernels(Path("/nowhere"), "", kernels, kernels), "ssh-ed25519 A", "ssh-ed25519 A")
    text = texts["environments/K1.yml"].replace("kinds: [vm]", "kinds: [gpu]")
    told = files_of(parse_environment(text, "K1.yml"))["/etc/default/grub.d/90-bedplate.cfg"].decode()
    assert 'GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX bedplate.lab=first"\n' in told
    assert 'GRUB_DEFAULT="gnulinux-6.1.0-50-cloud-amd64-advanced-$(grub-probe --target=fs_uuid /)"\n' in told


@pytest.mark.slow
def test_every_template_is_rendered_by_one_of_these() -> None:
    written = set[str]()
    for name in SITE.environment_names():
        written |= files_of(SITE.environment(name), EVERY_VALUE, EVERY_PACKAGE).keys()
    never = {entry.path: entry.role for entry in file_entries(checkout.roles()) if entry.path not in written}
    assert never == {}
