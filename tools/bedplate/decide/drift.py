"""Drift: what a node is, held against what its lock says, item by item.

Invariants
- What could not be read is Unanswered, with why: never "no drift".
- Only what the environment manages is compared; an unmanaged layer is nobody's promise.
- Drift makes no node verified: a verification does (decide/verification.py).

Example: the lock has linux-image-6.8.0-50-generic, dpkg has it too, and 6.8.0-45-generic runs ->
Drift("n1", Layer.KERNEL, "running kernel", "6.8.0-50-generic", "6.8.0-45-generic (reboot pending: ...)").
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from bedplate.decide.fold import node_names
from bedplate.decide.lockdoc import LockDocument
from bedplate.decide.lockdoc import Package as Locked
from bedplate.decide.packages import VERSION_NUMBERS, kernel_release, kernel_releases, loaded_driver
from bedplate.decide.squashfs import IMAGES
from bedplate.model.event import Event
from bedplate.model.facts import Absent, Facts, Package, Unit, Unknown
from bedplate.model.layers import Layer
from bedplate.model.nodes import fold
from bedplate.model.versions import compare, upstream

OWNER = "root:root"  # of every rendered file (playbooks/library/bedplate_files.py)
LAYERS = list(Layer)

# A metapackage pulls the newest kernel in at any upgrade, whatever the lock says.
METAPACKAGE = re.compile(
    r"linux-((image|headers|tools)-)?(generic|virtual|server|lowlatency|nvidia|amd64|arm64|cloud-amd64|oem)\b.*"
)
DEBIAN_BUILD = re.compile(
    r"\bDebian (\S+)"
)  # uname -v of Debian: "#1 SMP PREEMPT_DYNAMIC Debian 6.12.38-1 (2025-07-16)"
NOT_ASKED = "was not asked for when these facts were collected (run: bedplate collect)"
LASTS = frozenset({"enabled", "static", "alias", "indirect", "generated"})  # is there after the next boot as well


@dataclass(frozen=True, order=True)
class Drift:
    """One thing that is not as the lock says."""

    node: str
    layer: Layer
    item: str
    wanted: str
    found: str


@dataclass(frozen=True, order=True)
class Unanswered:
    """One thing of which nothing is known; layer None: all of the node."""

    node: str
    layer: Layer | None
    item: str
    why: str


@dataclass(frozen=True)
class Wanted:
    """What a node must show.

    files: path -> {mode, sha256}; units, modules: name -> layer of the role that promises or needs it; replaces:
    regular expression over names of packages -> layer of the role that lets none of them stay which the lock lacks;
    unrendered: why none of these is known. serial None: not compared (a stand-in has none). gpus: whether a driver
    must be loaded.
    """

    node: str
    lock: LockDocument
    packages: Mapping[str, Locked]
    files: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    units: Mapping[str, Layer] = field(default_factory=dict)
    modules: Mapping[str, Layer] = field(default_factory=dict)
    replaces: Mapping[str, Layer] = field(default_factory=dict)
    unrendered: str | None = None
    serial: str | None = None
    gpus: bool = False

    def manages(self, layer: Layer) -> bool:
        return self.lock.unmanaged(layer) is None


@dataclass(frozen=True)
class Comparison:
    """One node: every difference, and everything that could not be compared. Neither: it is as its lock says."""

    node: str
    drifts: tuple[Drift, ...] = ()
    unanswered: tuple[Unanswered, ...] = ()

    @property
    def verdict(self) -> str:
        """`unknown` before `drift`: a difference does not make the rest known; the drifts are told in both."""
        return "unknown" if self.unanswered else "drift" if self.drifts else "none"


def nothing_known(node: str, why: str) -> Comparison:
    """A node that was not, or could not be, asked."""
    return Comparison(node, unanswered=(Unanswered(node, None, "everything", why),))


def compare_node(wanted: Wanted, facts: Facts) -> Comparison:
    """Hold what a node said against its lock."""
    found: list[Drift | Unanswered] = []
    for look in LOOKS:
        found += look(wanted, facts)
    order: Callable[[Drift | Unanswered], tuple[int, str]] = lambda one: (  # noqa: E731
        LAYERS.index(one.layer) if one.layer else -1,
        one.item,
    )
    found.sort(key=order)
    return Comparison(
        wanted.node,
        tuple(one for one in found if isinstance(one, Drift)),
        tuple(one for one in found if isinstance(one, Unanswered)),
    )


# --- one function a thing that is compared ----------------------------------------------------------

type _Found = Iterator[Drift | Unanswered]


def _serial(wanted: Wanted, facts: Facts) -> _Found:
    if wanted.serial is None or not wanted.manages(Layer.HARDWARE):
        return
    match facts.serial:
        case Unknown(unknown=why) | Absent(absent=why):
            yield Unanswered(wanted.node, Layer.HARDWARE, "serial", why)
        case serial if serial != wanted.serial:
            yield Drift(wanted.node, Layer.HARDWARE, "serial", wanted.serial, serial)


def _system(wanted: Wanted, facts: Facts) -> _Found:
    if not wanted.manages(Layer.OS):
        return
    layer = wanted.lock.layers[Layer.OS]
    if isinstance(facts.os, Unknown):
        yield Unanswered(wanted.node, Layer.OS, "release", facts.os.unknown)
        return
    asked = (str(layer["distribution"]), str(layer["release"]))
    if facts.os.id != asked[0] or asked[1] not in (facts.os.version_codename, facts.os.version_id):
        found = f"{facts.os.id} {facts.os.version_codename or facts.os.version_id}"
        yield Drift(wanted.node, Layer.OS, "release", " ".join(asked), found)


def _packages(wanted: Wanted, facts: Facts) -> _Found:
    """Versions, states and holds of the closure; what is installed or held beside it."""
    node, closure = wanted.node, wanted.packages
    if isinstance(facts.packages, Unknown):
        for layer in sorted({Layer(package.layer) for package in closure.values()}, key=LAYERS.index):
            yield Unanswered(node, layer, "packages", facts.packages.unknown)
        return
    there: dict[str, Package] = {}
    for row in facts.packages:
        locked = closure.get(row.name)
        if locked is None:
            yield from _beside(wanted, row)
        elif row.name not in there or row.architecture == locked.architecture:
            there[row.name] = row
    for name, locked in closure.items():
        row = there.get(name, NOTHING)
        if (*row[1:], locked.architecture) == (locked.version, row.architecture, "hold", "installed", row.architecture):
            continue  # nearly all of 660 x 2,500
        state = _state(row, locked)
        if state != locked.version:
            yield Drift(node, Layer(locked.layer), f"package {name}", locked.version, state)
        elif row.want != "hold":
            yield Drift(node, Layer(locked.layer), f"hold {name}", "held", f"not held ({row.want})")


NOTHING = Package("", "", "", "", "not-installed")


def _state(row: Package, locked: Locked) -> str:
    """The version, if the package is there as it should be; else what it is."""
    if row.status == "installed" and row.architecture == locked.architecture:
        return row.version
    if row.status == "not-installed":
        return "missing"
    if row.status == "config-files":
        return f"missing: {row.version} was removed, its configuration is left"
    if row.status == "installed":
        return f"{row.version} of {row.architecture}, not {locked.architecture}"
    return f"{row.version} {row.status}"


def _beside(wanted: Wanted, row: Package) -> _Found:
    """What is not in the lock, and matters: another member of what moves together, a hold that nobody asked for."""
    if not row.there:
        return
    if (layer := _family(wanted, row)) is not None:
        yield Drift(wanted.node, layer, f"package {row.name}", "not in the lock", f"{row.version} {row.status}")
    if row.want == "hold" and wanted.manages(Layer.OS):
        found = f"held at {row.version}: blocks an upgrade in silence"
        yield Drift(wanted.node, Layer.OS, f"hold {row.name}", "not in the lock: not held", found)


def _family(wanted: Wanted, row: Package) -> Layer | None:
    """The layer that a package outside the lock disturbs."""
    for pattern, layer in wanted.replaces.items():
        if re.fullmatch(pattern, row.name):
            return layer
    kernels = kernel_releases(wanted.packages) if row.name.startswith("linux-") else set()
    if kernels and wanted.manages(Layer.KERNEL):
        image = kernel_release(row.name)
        # The boot loader takes the newest; older ones stay as what a machine can be booted with by hand.
        newer = image is not None and all(compare(image, release) > 0 for release in kernels)
        return Layer.KERNEL if newer or METAPACKAGE.fullmatch(row.name) else None
    return None


def _kernel(wanted: Wanted, facts: Facts) -> _Found:
    """The kernel that runs, and with which command line."""
    if not wanted.manages(Layer.KERNEL):
        return
    releases, node = kernel_releases(wanted.packages), wanted.node
    words: Sequence[str] = wanted.lock.layers[Layer.KERNEL].get("command_line", ())
    if isinstance(facts.kernel, Unknown):
        if releases:
            yield Unanswered(node, Layer.KERNEL, "running kernel", facts.kernel.unknown)
        if words:
            yield Unanswered(node, Layer.KERNEL, "command line", facts.kernel.unknown)
        return
    running = facts.kernel.release
    if releases and running not in releases:
        asked = " or ".join(sorted(releases))
        yield Drift(node, Layer.KERNEL, "running kernel", asked, f"{running} runs{_pending(wanted, facts)}")
    elif releases and (build := DEBIAN_BUILD.search(facts.kernel.version)):
        # Debian keeps a release for several builds; uname -v tells which of them runs.
        versions = {p.version for name, p in wanted.packages.items() if kernel_release(name) == running}
        if build[1] not in versions:
            asked = " or ".join(sorted(versions))
            yield Drift(node, Layer.KERNEL, "running kernel", asked, f"{build[1]} runs{_pending(wanted, facts)}")
    given = facts.kernel.command_line.split()
    for word in words:
        if word not in given:
            name = word.partition("=")[0]
            same = [other for other in given if other.partition("=")[0] == name]
            yield Drift(node, Layer.KERNEL, f"command line {name}", word, ", ".join(same) or "not there")


def _pending(wanted: Wanted, facts: Facts) -> str:
    """Whether a reboot alone would bring the kernel of the lock."""
    if isinstance(facts.packages, Unknown):
        return ""
    images = {name: package for name, package in wanted.packages.items() if kernel_release(name)}
    ready = any(
        row.status == "installed" and row.name in images and row.version == images[row.name].version
        for row in facts.packages
    )
    return ", the lock's is installed: reboot pending" if ready else ", the lock's is not installed"


def _reboot(wanted: Wanted, facts: Facts) -> _Found:
    if not wanted.manages(Layer.OS):
        return
    if isinstance(facts.reboot, Unknown):
        yield Unanswered(wanted.node, Layer.OS, "reboot", facts.reboot.unknown)
    elif facts.reboot.required:
        by = f" by {', '.join(facts.reboot.by)}" if facts.reboot.by else ""
        yield Drift(wanted.node, Layer.OS, "reboot", "not required", f"required{by}")


def _driver(wanted: Wanted, facts: Facts) -> _Found:
    """The modules that the kernel runs, against the driver of the lock and the libraries on the disk.

    Modules stay loaded when packages change: then every call of the library ends with "Driver/library version
    mismatch" until the modules are loaded anew.
    """
    locked = {name: p.version for name, p in wanted.packages.items() if p.layer == Layer.DRIVER}
    driver = loaded_driver(locked)
    if driver is None or not wanted.gpus or not wanted.manages(Layer.DRIVER):
        return
    node, (name, version) = wanted.node, driver
    if isinstance(facts.nvidia, Unknown):
        yield Unanswered(node, Layer.DRIVER, "loaded driver", facts.nvidia.unknown)
        return
    match facts.nvidia.loaded:
        case Unknown(unknown=why):
            yield Unanswered(node, Layer.DRIVER, "loaded driver", why)
        case Absent(absent=why):
            yield Drift(node, Layer.DRIVER, "loaded driver", version, f"none is loaded: {why}")
        case loaded if loaded.version != version:
            installed = _installed(facts, name)
            trap = "Driver/library version mismatch until the modules are loaded anew or the node boots"
            found = f"{loaded.version} is loaded" + (f", {name} is {installed}: {trap}" if installed == version else "")
            yield Drift(node, Layer.DRIVER, "loaded driver", version, found)
    for name in facts.nvidia.empty:  # dpkg calls its package installed all the same
        yield Drift(node, Layer.DRIVER, f"library {name.partition('.so.')[0]}", version, f"{name} is empty")
    for library in facts.nvidia.libraries:
        if library != version:
            yield Drift(node, Layer.DRIVER, "library libnvidia-ml", version, f"libnvidia-ml.so.{library} is there")
    yield from _driver_modules(node, version, facts)


def _driver_modules(node: str, version: str, facts: Facts) -> _Found:
    if isinstance(facts.modules, Unknown):
        yield Unanswered(node, Layer.DRIVER, "loaded modules", facts.modules.unknown)
        return
    for module, loaded in facts.modules.items():
        if (module == "nvidia" or module.startswith("nvidia_")) and loaded is not None:  # noqa: SIM102
            # nvidia_wmi_ec_backlight and others of the kernel itself have another numbering, or none.
            if VERSION_NUMBERS.fullmatch(loaded) and loaded != version:
                yield Drift(node, Layer.DRIVER, f"module {module}", version, f"{loaded} is loaded")


def _modules(wanted: Wanted, facts: Facts) -> _Found:
    """What the roles need of the kernel: without ib_umad, NVLSM sees no fabric."""
    for name, layer in wanted.modules.items():
        if isinstance(facts.modules, Unknown):
            yield Unanswered(wanted.node, layer, f"module {name}", facts.modules.unknown)
        elif name.replace("-", "_") not in facts.modules:  # as /sys/module writes it
            yield Drift(wanted.node, layer, f"module {name}", "loaded", "not loaded")


def _installed(facts: Facts, name: str) -> str | None:
    if isinstance(facts.packages, Unknown):
        return None
    return next((upstream(p.version) for p in facts.packages if p.name == name and p.status == "installed"), None)


def _files(wanted: Wanted, facts: Facts) -> _Found:
    node = wanted.node
    if not wanted.manages(Layer.CONFIG):
        return
    if wanted.unrendered is not None:
        yield Unanswered(node, Layer.CONFIG, "files", wanted.unrendered)
        return
    if isinstance(facts.files, Unknown):
        yield Unanswered(node, Layer.CONFIG, "files", facts.files.unknown)
        return
    for path, asked in wanted.files.items():
        match facts.files.get(path):
            case None:
                yield Unanswered(node, Layer.CONFIG, f"file {path}", NOT_ASKED)
            case Unknown(unknown=why):
                yield Unanswered(node, Layer.CONFIG, f"file {path}", why)
            case Absent(absent=why):
                yield Drift(node, Layer.CONFIG, f"file {path}", asked["sha256"], why)
            case file:
                pairs = {"file": (asked["sha256"], file.sha256), "mode of": (asked["mode"], file.mode)}
                pairs["owner of"] = (OWNER, file.owner)
                yield from (
                    Drift(node, Layer.CONFIG, f"{item} {path}", *pair)
                    for item, pair in pairs.items()
                    if len({*pair}) > 1
                )


def _units(wanted: Wanted, facts: Facts) -> _Found:
    node = wanted.node
    if wanted.unrendered is not None:
        yield Unanswered(node, Layer.OS, "units", wanted.unrendered)
        return
    for name, layer in wanted.units.items():
        if isinstance(facts.units, Unknown):
            yield Unanswered(node, layer, f"unit {name}", facts.units.unknown)
            continue
        match facts.units.get(name):
            case None:
                yield Unanswered(node, layer, f"unit {name}", NOT_ASKED)
            case Unknown(unknown=why) | Absent(absent=why):
                yield Unanswered(node, layer, f"unit {name}", why)
            case unit:
                yield from (Drift(node, layer, f"unit {name}", *pair) for pair in _unit(unit))


def _unit(unit: Unit) -> Iterator[tuple[str, str]]:
    """What was wanted and found of a unit that a role promises."""
    if unit.load != "loaded":
        yield "active (loaded)", unit.load
        return
    if unit.active != "active":
        found = f"{unit.active} ({unit.sub})"
        if unit.condition == "no":
            found += ": a condition was not met, so systemd skipped it and called that a success"
        yield "active", found
    if unit.file not in LASTS:
        yield "enabled", f"{unit.file or 'not enabled'}: a reboot would lose it"
    if unit.reload_needed:
        yield "as its file says", "its file changed after systemd read it"


def _image(wanted: Wanted, facts: Facts) -> _Found:
    image, node = wanted.lock.image, wanted.node
    if image is None or not wanted.manages(Layer.IMAGE):
        return
    name = f"{image.squashfs_sha256.replace(':', '-')}.sqsh"
    match facts.images:
        case Unknown(unknown=why):
            yield Unanswered(node, Layer.IMAGE, "current image", why)
        case Absent(absent=why):
            yield Drift(node, Layer.IMAGE, "current image", name, why)
        case images:
            if images.current != name:
                yield Drift(node, Layer.IMAGE, "current image", name, images.current or f"no link in {IMAGES}")
            file = images.files.get(name)
            if file is None:
                yield Drift(node, Layer.IMAGE, "image file", name, "not there")
            elif file.size != image.squashfs_size:
                yield Drift(node, Layer.IMAGE, "image file", f"{image.squashfs_size} bytes", f"{file.size} bytes")
            elif file.sha256 not in (None, image.squashfs_sha256):
                yield Drift(node, Layer.IMAGE, "image file", image.squashfs_sha256, f"{file.sha256}: damaged")


LOOKS = (_serial, _system, _packages, _kernel, _reboot, _driver, _modules, _files, _units, _image)


# --- many nodes ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Group:
    """The same of several nodes. wanted and found of a drift; of what is unanswered, found is why."""

    layer: Layer | None
    item: str
    wanted: str
    found: str
    nodes: tuple[str, ...]
    known: bool

    @property
    def folded(self) -> str:
        return _folded(self.nodes)


@lru_cache(maxsize=1024)  # 2,500 packages that are not held are 2,500 groups of the same nodes
def _folded(nodes: tuple[str, ...]) -> str:
    return fold(nodes)


def groups(comparisons: Iterable[Comparison]) -> list[Group]:
    """Nodes with the same drift together, by layer; what is unanswered comes first."""
    gathered: dict[tuple[bool, Layer | None, str, str, str], list[str]] = {}
    for one in comparisons:
        for asked in one.unanswered:
            gathered.setdefault((False, asked.layer, asked.item, "", asked.why), []).append(one.node)
        for drift in one.drifts:
            gathered.setdefault((True, drift.layer, drift.item, drift.wanted, drift.found), []).append(one.node)
    found = [
        Group(layer, item, wanted, said, tuple(nodes), known)
        for (known, layer, item, wanted, said), nodes in gathered.items()
    ]
    return sorted(found, key=lambda g: (LAYERS.index(g.layer) if g.layer else -1, g.known, g.item, g.found))


CHANGES = frozenset({"step.ended", "node.done", "node.failed", "node.unreachable", "image.placed", "image.collected"})


CHANGING = CHANGES | {"batch.admitted", "batch.held"}  # the kinds that last_changes looks at


def last_changes(events: Iterable[Event]) -> dict[str, int]:
    """Node -> id of the last event after which it may be another; events: oldest first.

    By id and not by time: clocks go backwards. A node that a gate held back is what it was before.
    """
    last: dict[str, int] = {}
    before: dict[str, int] = {}
    for event in events:
        for name in node_names(event):
            if event.kind == "batch.admitted":
                before[name] = last.get(name, 0)
                last[name] = event.id
            elif event.kind == "batch.held" and name in before:
                last[name] = before.pop(name)
            elif event.kind in CHANGES:
                before.pop(name, None)
                last[name] = event.id
    return last
