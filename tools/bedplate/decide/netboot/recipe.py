"""The recipe of an installation: lock, fleet, public parts of the vault, templates -> every file of it.

Invariants
- Same input, same bytes; no clock, no randomness, no secret beyond a password's hash.
- Disks are named by serial, never by size; a node without the serials of its boot disks has no rendering. Data disks
  are in it where the fleet asks for them, and nowhere else.
- The archive of the lock is the only source of packages, its key is the one that the lock names, and kernel and
  modules are those of the lock.
- The one-time token is a placeholder, TOKEN: the boot server puts it in when it serves a machine that is armed.

Example: Recipe(lock, fleet, models, key=…, secrets=…, sources=…).files(node)["user-data"] begins with `#cloud-config`.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any
from uuid import UUID, uuid5

from jinja2 import Environment, StrictUndefined

from bedplate.decide.autoinstall.credentials import hash_fault, key_fault
from bedplate.decide.lockdoc import LockDocument, Package
from bedplate.decide.packages import kernel_release
from bedplate.model.canonical import sha256
from bedplate.model.faults import BadInput, Fault, Refused
from bedplate.model.fleet import Fleet, Node
from bedplate.model.hardware import HardwareModel
from bedplate.model.layers import Layer
from bedplate.model.netboot import HASH_KEY, KEYS_KEY, DataDisks, Netboot, Secrets

TOKEN = "@BEDPLATE_TOKEN@"  # noqa: S105  the place of one
FOLDER = "autoinstall/"
PROGRAM = f"{FOLDER}node.py"
# The files of a node, each by its template.
SEED = ("user-data", "meta-data", "vendor-data", "network-config")
NODE_FILES = (*SEED, "install.grub", "install.ipxe")
COMMON_FILES = ("dnsmasq.conf", "tftp/grub/grub.cfg", "http/boot.ipxe", "http/local.ipxe")
_NAMED = re.compile(r"[A-Za-z0-9._+-]+")  # a serial that can be part of a file's name, and of GRUB's script
# The namespace of the UUIDs that file systems on data disks get. Never to be changed: they are found again by them.
_DATA = UUID("5f0a4c52-7d0c-4f6e-9a53-1d8c3b1f6e27")
# What the installed system needs for them where curtin, which would add it, is not told of them.
_KEPT_PACKAGES = {"raid0": "mdadm", "xfs": "xfsprogs"}
_PLAIN = re.compile(r"[\x20-\x7e]*")


def quoted(value: str) -> str:
    """A text as a YAML scalar, whatever stands in it; single quotes, in which nothing is replaced."""
    return "'" + value.replace("'", "''") + "'" if _PLAIN.fullmatch(value) else json.dumps(value)


def _environment() -> Environment:
    # These templates come with the code, as trusted as it is; a sandbox would cost more than the rest of the rendering.
    jinja = Environment(
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=False,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701
    )
    del jinja.filters["random"], jinja.globals["lipsum"]
    jinja.filters["q"] = quoted
    return jinja


@dataclass(frozen=True)
class _OfKind:
    """What all nodes of a kind have in common."""

    apt: str
    kernel: str
    bond: str | None
    shim: bool
    firmware: str
    model: HardwareModel
    data: DataDisks | None


class Recipe:
    """Read once for a lock; files of a node in less than a millisecond."""

    def __init__(
        self,
        lock: LockDocument,
        fleet: Fleet,
        models: Mapping[str, HardwareModel],
        *,
        key: bytes,
        secrets: Secrets,
        sources: Mapping[str, bytes],
    ) -> None:
        """Read them; models by name, key: that of the archive, sources: path in the checkout -> bytes.

        Raises:
            BadInput: the fleet has no netboot section, the environment cannot be installed, a secret is none.
            Refused: the key is not the one of the lock.
        """
        if fleet.netboot is None:
            raise BadInput([fleet.document.fault((), "no netboot section", "add it: docs/site.md has its keys")])
        self.lock, self.fleet, self.netboot, self.secrets = lock, fleet, fleet.netboot, secrets
        _same_key(lock, key)
        faults = [*_secret_faults(secrets), *_kind_faults(lock, fleet, models)]
        if faults:
            raise BadInput(faults)
        jinja = _environment()
        self._templates = {
            name.removeprefix(f"{FOLDER}templates/").removesuffix(".j2"): jinja.from_string(data.decode())
            for name, data in sources.items()
            if name.startswith(f"{FOLDER}templates/")
        }
        self._program = "\n".join(f"      {line}".rstrip() for line in sources[PROGRAM].decode().splitlines())
        self._keys = "\n".join(f"- {quoted(each)}" for each in secrets.authorized_keys)
        self._kinds = {kind: self._of_kind(kind, models[fleet.kinds[kind].model], key) for kind in lock.kinds}
        self._environment = {"name": lock.name, "identity": lock.identity}

    def _of_kind(self, kind: str, model: HardwareModel, key: bytes) -> _OfKind:
        packages = self.lock.packages(kind)
        asked = [package for package in packages.values() if package.asked and package.layer in ("os", "kernel")]
        kernel = _kernels(packages)[0]
        beside = [package.name for package in asked if package.layer == "kernel" and package.name != kernel]
        data = self.netboot.data_disks.get(kind)
        if data and not data.wipe:
            beside += [_KEPT_PACKAGES[word] for word in (data.array, data.filesystem) if word in _KEPT_PACKAGES]
        scope = {
            "archive": self.lock.document["archive"],
            "key_lines": [line or "." for line in key.decode().strip().splitlines()],
            "pins": [{"name": package.name, "version": package.version} for package in _pinned(packages)],
        }
        return _OfKind(
            apt=self._templates["apt"].render(scope).rstrip("\n"),
            kernel=self._templates["kernel"].render(kernel=kernel, packages=[*beside, "python3"]).rstrip("\n"),
            bond=self.fleet.kinds[kind].bond,
            shim=_shim(model),
            firmware=model.firmware or "uefi",
            model=model,
            data=data,
        )

    def nodes(self, wanted: Sequence[str] | None = None) -> list[Node]:
        """The nodes that the environment is for, or those of them that are wanted.

        Raises:
            BadInput: one of them cannot be installed; every fault of every node.
        """
        names = None if wanted is None else set(wanted)
        chosen = [node for node in self.fleet.nodes_of(self.lock.kinds) if names is None or node.name in names]
        faults = [fault for node in chosen for fault in self._node_faults(node)]
        for name in wanted or ():
            if self.fleet.nodes[name].kind not in self.lock.kinds:
                node = self.fleet.nodes[name]
                found = f"node {name} is of kind {node.kind}, the lock is for {', '.join(self.lock.kinds)}"
                faults.append(Fault(self.fleet.csv_file, node.line, found, "choose its environment"))
        if faults:
            raise BadInput(faults)
        return chosen

    def _node_faults(self, node: Node) -> Iterator[Fault]:
        model = self._kinds[node.kind].model
        most, there = model.boot_disks, len(node.boot_disk_serials)
        if not there:
            found = f"node {node.name} has no boot_disk_serials: no disk of it may be wiped"
            yield Fault(self.fleet.csv_file, node.line, found, "add the serial numbers of the disks that it boots from")
        elif most is not None and there != most:
            found = f"node {node.name} has {there} boot_disk_serials, its model {model.model} has {most} boot disks"
            yield Fault(self.fleet.csv_file, node.line, found, "correct one of the two")
        most, there = model.data_disks, len(node.data_disk_serials)
        if not there and self._kinds[node.kind].data:
            found = f"node {node.name} has no data_disk_serials, netboot.data_disks.{node.kind} asks for its data disks"
            remedy = f"add their serial numbers, or take the asking out of {self.fleet.document.file}"
            yield Fault(self.fleet.csv_file, node.line, found, remedy)
        elif there and most is not None and there != most:
            found = f"node {node.name} has {there} data_disk_serials, its model {model.model} has {most} data disks"
            yield Fault(self.fleet.csv_file, node.line, found, "correct one of the two")
        if len(node.nic_macs) != model.nics:
            found = f"node {node.name} has {len(node.nic_macs)} nic_macs, its model {model.model} has {model.nics}"
            yield Fault(self.fleet.csv_file, node.line, found, "its machine is compared with them before it is wiped")

    def files(self, node: Node) -> dict[str, str]:
        """The files of a node by name; those of its seed, and what GRUB and iPXE are given when it is armed."""
        kind, netboot = self._kinds[node.kind], self.netboot
        seed = f"{netboot.url}/seed/{node.name}/{TOKEN}/"
        scope: dict[str, Any] = {
            "node": node, "environment": self._environment, "netboot": netboot, "secrets": self.secrets,
            "url": netboot.url, "token": TOKEN, "seed": seed, "program": self._program, "keys": self._keys,
            "apt": kind.apt, "kernel": kind.kernel, "firmware": kind.firmware, "shim": kind.shim, "bond": kind.bond,
            "ports": (node.boot_mac, *node.bond_macs), "prefix_length": self.fleet.networks["management"].prefixlen,
            "gateway": self.fleet.gateway, "dns": self.fleet.dns, "ntp": self.fleet.ntp,
            "ssh_user": self.fleet.ssh.user, "expected": json.dumps(self.expected(node), sort_keys=True),
            "instance": self.lock.identity.removeprefix("sha256:")[:12],
            "arguments": " ".join(_arguments(netboot, node)),
            "console": "".join(f" {word}" for word in netboot.command_line),
            "data": kind.data, "volumes": _volumes(kind.data, node.data_disk_serials) if kind.data else [],
        }  # fmt: skip
        render = self._templates
        scope["link"] = render["link"].render(scope).rstrip("\n")
        scope["network"] = render["network"].render(scope).rstrip("\n")
        return {
            "user-data": render["user-data"].render(scope),
            "meta-data": render["meta-data"].render(scope),
            "vendor-data": render["vendor-data"].render(scope),
            "network-config": scope["network"] + "\n",
            "install.grub": render["install.grub"].render(scope),
            "install.ipxe": render["install.ipxe"].render(scope),
        }

    def expected(self, node: Node) -> dict[str, Any]:
        """What a machine compares itself with before a disk is wiped."""
        model, data = self._kinds[node.kind].model, self._kinds[node.kind].data
        asked = {} if data is None else {"data_disks": {
            "serials": list(node.data_disk_serials), "wipe": data.wipe,
            "volumes": _volumes(data, node.data_disk_serials),
        }}  # fmt: skip
        known = model.boot_disks is not None and model.data_disks is not None
        return {
            "node": node.name,
            "serial": node.serial,
            "macs": [node.boot_mac, *node.bond_macs],
            "boot_disk_serials": list(node.boot_disk_serials),
            "nic_macs": list(node.nic_macs),
            "bmc_address": node.bmc_address,
            "bios_versions": list(model.bios_versions),
            "bmc_versions": list(model.bmc_versions),
            "disks": (model.boot_disks or 0) + (model.data_disks or 0) if known else None,
            "url": self.netboot.url,
            "path": f"{node.name}/{TOKEN}",
        } | asked

    def common(self) -> dict[str, str]:
        """The files of the boot server that are the same for all nodes; DHCP for nodes of the lock."""
        scope = _common_scope(self.fleet, self.netboot, {kind: each.shim for kind, each in self._kinds.items()})
        return {name: self._templates[name.rpartition("/")[2]].render(scope) for name in COMMON_FILES}

    def index(self, nodes: Sequence[Node]) -> dict[str, Any]:
        """What the boot server has to know of the nodes it has files for."""
        return {
            "environment": self._environment,
            "token": TOKEN,
            "files": {
                role: asdict(getattr(self.netboot, role)) for role in ("image", "kernel", "initrd")
            },
            "nodes": {
                node.name: self.expected(node)
                | {"address": node.address, "grub": grub_names(node)}
                for node in nodes
            },
        }  # fmt: skip


def _volumes(asked: DataDisks, serials: Sequence[str]) -> list[dict[str, str]]:
    """The file systems on data disks: which UUID, and where it is mounted.

    A UUID follows from the disks, whatever node they are in and however they are listed: a later installation that is
    to keep the data knows it.
    """
    if asked.array == "raid0":
        return [{"uuid": str(uuid5(_DATA, " ".join(sorted(serials)))), "path": asked.path}]
    return [
        {"uuid": str(uuid5(_DATA, serial)), "path": asked.path if len(serials) == 1 else f"{asked.path}/{at}"}
        for at, serial in enumerate(serials)
    ]


def _shim(model: HardwareModel) -> bool:
    """A signed loader boots with and without Secure Boot; another one only where it is known to be off."""
    return model.secure_boot is not False and model.firmware != "bios"


def _common_scope(fleet: Fleet, netboot: Netboot, shims: Mapping[str, bool]) -> dict[str, Any]:
    """What the boot server's own files are made of; shims: the kinds that get an answer."""
    network = fleet.networks["management"]
    return {
        "site": fleet.site, "netboot": netboot, "url": netboot.url, "gateway": fleet.gateway,
        "dns": fleet.dns, "ntp": fleet.ntp, "network_address": str(network.network_address),
        "netmask": str(network.netmask),
        "hosts": [
            {"macs": (node.boot_mac, *node.bond_macs), "address": node.address, "name": node.name,
             "shim": shims[node.kind]}
            for node in fleet.nodes.values()
            if node.kind in shims
        ],
    }  # fmt: skip


def dhcp(fleet: Fleet, netboot: Netboot, models: Mapping[str, HardwareModel], sources: Mapping[str, bytes]) -> str:
    """The configuration of dnsmasq for every node of the fleet, whatever environments they are installed from."""
    shims = {name: _shim(models[kind.model]) for name, kind in fleet.kinds.items()}
    template = _environment().from_string(sources[f"{FOLDER}templates/dnsmasq.conf.j2"].decode())
    return template.render(_common_scope(fleet, netboot, shims))


def grub_names(node: Node) -> list[str]:
    """Under which names in grub/hosts a node's GRUB looks: its serial, where that can be a name, and its MACs."""
    serial = [f"{node.serial}.cfg"] if _NAMED.fullmatch(node.serial) else []
    return [*serial, *(f"{mac}.cfg" for mac in (node.boot_mac, *node.bond_macs))]


def _arguments(netboot: Netboot, node: Node) -> list[str]:
    """What the kernel is told before `autoinstall` and the seed."""
    image = f"{netboot.url}/files/{netboot.image.name}"
    # cloud-config-url: cloud-init would take url= for a cloud-config, and fetch the image a second time into memory.
    root = {
        "casper": ["root=/dev/ram0", "ramdisk_size=1500000", f"url={image}", "cloud-config-url=/dev/null"],
        "live-boot": ["boot=live", f"fetch={image}"],
    }[netboot.live]
    return [*root, "ip=dhcp", f"BOOTIF=01-{node.boot_mac.replace(':', '-')}"]


def _same_key(lock: LockDocument, key: bytes) -> None:
    wanted = lock.document["archive"]["key_sha256"]
    if sha256(key) != wanted:
        raise Refused(
            f"the archive's key is {sha256(key)}, lock {lock.name} says {wanted} (restore the key, or lock again)"
        )


def _secret_faults(secrets: Secrets) -> Iterator[Fault]:
    if fault := hash_fault(secrets.password_hash):
        yield Fault("vault.yml", None, f"{HASH_KEY}: {fault[1]}", fault[2])
    for index, key in enumerate(secrets.authorized_keys):
        if why := key_fault(key):
            yield Fault("vault.yml", None, f"{KEYS_KEY}[{index}]: no public key: {why}", "the line of id_ed25519.pub")


def _kind_faults(lock: LockDocument, fleet: Fleet, models: Mapping[str, HardwareModel]) -> Iterator[Fault]:
    place = f"{lock.name}.lock.json"
    assert fleet.netboot is not None  # noqa: S101
    if not lock.document["archive"]["components"]:
        yield Fault(place, None, "a flat archive: curtin wants components", "publish the archive with suites")
    if reason := lock.unmanaged(Layer.KERNEL):
        found = f"the kernel layer is unmanaged ({reason}): which one would be installed?"
        yield Fault(place, None, found, "manage it, and lock again")
    if fleet.ssh.user not in ("root", fleet.netboot.user):
        found = f"Ansible logs in as {fleet.ssh.user}; an installation makes {fleet.netboot.user} and root"
        yield fleet.document.fault(("ssh", "user"), found, "let ssh.user be netboot.user, or root")
    for kind in lock.kinds:
        if kind not in fleet.kinds:
            yield fleet.document.fault(("kinds",), f"no kind {kind}, which lock {lock.name} is for", "add it")
            continue
        if fleet.kinds[kind].model not in models:
            yield fleet.document.fault(("kinds", kind, "model"), f"no model {fleet.kinds[kind].model}", "add it")
        elif asked := fleet.netboot.data_disks.get(kind):
            yield from _asking_faults(fleet, kind, asked, models[fleet.kinds[kind].model])
        if fleet.kinds[kind].architecture != "amd64":
            yield fleet.document.fault(("kinds", kind, "architecture"), "only amd64 can be installed so far", "")
        kernels = _kernels(lock.packages(kind))
        if len(kernels) != 1 and not lock.unmanaged(Layer.KERNEL):
            found = f"kind {kind} asks for {len(kernels)} kernels ({', '.join(kernels) or 'no linux-image-VERSION'})"
            yield Fault(place, None, found, "ask for exactly one linux-image-VERSION in the kernel layer")


def _asking_faults(fleet: Fleet, kind: str, asked: DataDisks, model: HardwareModel) -> Iterator[Fault]:
    """What is asked of data disks that machines of this model cannot have."""
    place = ("netboot", "data_disks", kind)
    if model.data_disks is None:
        found = f"model {model.model} does not say how many data_disks it has: nobody could tell a missing one"
        yield fleet.document.fault(place, found, f"add data_disks to models/{model.model}.yml")
    elif not model.data_disks:
        yield fleet.document.fault(place, f"model {model.model} has no data disks", "take it out, or correct the model")
    elif model.data_disks == 1 and asked.array == "raid0":
        found = f"raid0 of one disk: model {model.model} has 1"
        yield fleet.document.fault((*place, "array"), found, "array: none")


def _kernels(packages: Mapping[str, Package]) -> list[str]:
    return [
        package.name
        for package in packages.values()
        if package.asked and package.layer == "kernel" and kernel_release(package.name) is not None
    ]


def _pinned(packages: Mapping[str, Package]) -> list[Package]:
    """Packages that an installation may touch: what the environment asks for, and all of the kernel."""
    return [package for package in packages.values() if package.asked or package.layer == "kernel"]


def menus(netboot: Netboot, sources: Mapping[str, bytes]) -> dict[str, str]:
    """What every machine asks for first: boot.ipxe, local.ipxe, grub.cfg; they need no lock."""
    jinja = _environment()
    return {
        name: jinja.from_string(sources[f"{FOLDER}templates/{name}.j2"].decode()).render(
            netboot=netboot, url=netboot.url
        )
        for name in ("boot.ipxe", "local.ipxe", "grub.cfg")
    }
