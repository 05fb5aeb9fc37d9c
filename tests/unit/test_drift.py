"""What a node is against what its lock says: every difference named, nothing unknown passed over."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bedplate.decide.drift import (
    Wanted,
    compare_node,
    groups,
    last_changes,
    nothing_known,
)
from bedplate.decide.packages import kernel_releases, loaded_driver
from bedplate.model.event import Event
from bedplate.model.facts import PARTS
from bedplate.model.layers import Layer
from unit.facts_sample import parsed, sample
from unit.lock_sample import digest, document
from unit.lock_sample import parsed as lock_of

KERNEL = "linux-image-6.8.0-50-generic"
COMMAND_LINE = ["iommu=pt", "init_on_alloc=0"]


def locked(**layers: Any) -> dict[str, Any]:
    """The lock of unit/lock_sample with a kernel; layers: changed entries."""
    made = document()
    package = made["packages"]["gpu"]["libnuma1"]
    made["packages"]["gpu"][KERNEL] = package | {"version": "6.8.0-50.51", "layer": "kernel", "asked": True}
    made["layers"]["kernel"] = {"command_line": COMMAND_LINE}
    made["layers"] |= layers
    return made


def wanted(made: dict[str, Any] | None = None) -> Wanted:
    lock = lock_of(made or locked())
    return Wanted(
        "n1", lock, lock.packages("gpu"),
        files={"/etc/nccl.conf": {"sha256": digest("e"), "mode": "0644"}},
        units={"nvidia-fabricmanager.service": Layer.FABRIC}, modules={"nvidia-uvm": Layer.DRIVER},
        replaces={"libnvidia-(?!container).*": Layer.DRIVER, "nvidia-(utils|fabricmanager).*": Layer.FABRIC},
        serial="LAB-1", gpus=True,
    )  # fmt: skip


def node(**parts: Any) -> dict[str, Any]:
    """What a node without drift says, with parts changed."""
    said = sample()
    said["packages"].append([KERNEL, "6.8.0-50.51", "amd64", "hold", "installed"])
    return said | parts


def package(name: str, *fields: str) -> list[list[str]]:
    """The packages of a node with another row for one of them; no fields: without it."""
    rows = [row for row in node()["packages"] if row[0] != name]
    return [*rows, [name, *fields]] if fields else rows


def drifts(said: dict[str, Any], asked: Wanted | None = None) -> list[tuple[str, str, str, str]]:
    found = compare_node(asked or wanted(), parsed(said))
    assert not found.unanswered, found.unanswered
    return [(str(d.layer), d.item, d.wanted, d.found) for d in found.drifts]


def test_a_node_that_is_what_its_lock_says_has_no_drift() -> None:
    found = compare_node(wanted(), parsed(node()))
    assert (found.drifts, found.unanswered, found.verdict) == ((), (), "none")


DRIVER, RIGHT = "nvidia-driver-570-open", "570.133.20-0ubuntu1"
OLD = "package nvidia-driver-570-open"
TRAP = (
    "nvidia-driver-570-open is 570.133.20: Driver/library version mismatch until the modules are loaded anew or the"
    " node boots"
)
IMAGE = f"sha256-{'8' * 64}.sqsh"
CASES: dict[str, tuple[dict[str, Any], list[tuple[str, str, str, str]]]] = {
    "another version": (
        {"packages": package(DRIVER, "570.86.15-0ubuntu1", "amd64", "hold", "installed")},
        [("driver", OLD, RIGHT, "570.86.15-0ubuntu1")],
    ),
    "another revision of the version": (
        {"packages": package(DRIVER, "570.133.20-1ubuntu1", "amd64", "hold", "installed")},
        [("driver", OLD, RIGHT, "570.133.20-1ubuntu1")],
    ),
    "a package that is missing": (
        {"packages": package("libnuma1")}, [("os", "package libnuma1", "2.0.18-1+b1", "missing")],
    ),
    "a package that was removed": (
        {"packages": package(DRIVER, RIGHT, "amd64", "deinstall", "config-files")},
        [("driver", OLD, RIGHT, f"missing: {RIGHT} was removed, its configuration is left")],
    ),
    "a package that dpkg left half-configured": (
        {"packages": package(DRIVER, RIGHT, "amd64", "hold", "half-configured")},
        [("driver", OLD, RIGHT, f"{RIGHT} half-configured")],
    ),
    "a package that wants to be installed again": (
        {"packages": package(DRIVER, RIGHT, "amd64", "hold", "installed reinstreq")},
        [("driver", OLD, RIGHT, f"{RIGHT} installed reinstreq")],
    ),
    "a package of another architecture": (
        {"packages": package("libnuma1", "2.0.18-1+b1", "i386", "hold", "installed")},
        [("os", "package libnuma1", "2.0.18-1+b1", "2.0.18-1+b1 of i386, not amd64")],
    ),
    "the same package of two architectures": (
        {"packages": [["libnuma1", "2.0.18-1+b1", "i386", "install", "installed"], *node()["packages"]]}, [],
    ),
    "a package that is not held": (
        {"packages": package(DRIVER, RIGHT, "amd64", "install", "installed")},
        [("driver", "hold nvidia-driver-570-open", "held", "not held (install)")],
    ),
    "a hold that nobody asked for": (
        {"packages": package("curl", "8.5.0", "amd64", "hold", "installed")},
        [("os", "hold curl", "not in the lock: not held", "held at 8.5.0: blocks an upgrade in silence")],
    ),
    "a hold on what is not there": ({"packages": package("curl", "", "", "hold", "not-installed")}, []),
    "a package that is nobody's business": (
        {"packages": package("curl", "8.5.0", "amd64", "install", "installed")}, [],
    ),
    "a library of another driver branch": (
        {"packages": package("libnvidia-compute-550", "550.54.15-1", "amd64", "install", "installed")},
        [("driver", "package libnvidia-compute-550", "not in the lock", "550.54.15-1 installed")],
    ),
    "what is left of another driver branch's configuration": (
        {"packages": package("nvidia-utils-550", "550.54.15-1", "amd64", "deinstall", "config-files")}, [],
    ),
    "a metapackage that pulls a newer Fabric Manager": (
        {"packages": package("nvidia-fabricmanager", "615.71.09-1", "amd64", "install", "installed")},
        [("fabric", "package nvidia-fabricmanager", "not in the lock", "615.71.09-1 installed")],
    ),
    "a container toolkit, which no role of this node replaces": (
        {"packages": package("libnvidia-container1", "1.20.0-1", "amd64", "install", "installed")}, [],
    ),
    "a kernel metapackage": (
        {"packages": package("linux-image-generic", "6.8.0.60.60", "amd64", "install", "installed")},
        [("kernel", "package linux-image-generic", "not in the lock", "6.8.0.60.60 installed")],
    ),
    "a newer kernel, which would be booted": (
        {"packages": package("linux-image-6.8.0-60-generic", "6.8.0-60.61", "amd64", "install", "installed")},
        [("kernel", "package linux-image-6.8.0-60-generic", "not in the lock", "6.8.0-60.61 installed")],
    ),
    "an older kernel, kept to boot by hand": (
        {"packages": package("linux-image-6.8.0-45-generic", "6.8.0-45.45", "amd64", "install", "installed")}, [],
    ),
    "a kernel that is installed and not booted": (
        {"kernel": node()["kernel"] | {"release": "6.8.0-45-generic"}},
        [(
            "kernel", "running kernel", "6.8.0-50-generic",
            "6.8.0-45-generic runs, the lock's is installed: reboot pending",
        )],
    ),
    "a kernel that is neither installed nor booted": (
        {"kernel": node()["kernel"] | {"release": "6.8.0-45-generic"}, "packages": package(KERNEL)},
        [
            ("kernel", f"package {KERNEL}", "6.8.0-50.51", "missing"),
            ("kernel", "running kernel", "6.8.0-50-generic", "6.8.0-45-generic runs, the lock's is not installed"),
        ],
    ),
    "a word of the command line that is missing": (
        {"kernel": node()["kernel"] | {"command_line": "ro iommu=off iommu=on"}},
        [
            ("kernel", "command line init_on_alloc", "init_on_alloc=0", "not there"),
            ("kernel", "command line iommu", "iommu=pt", "iommu=off, iommu=on"),
        ],
    ),
    "a word that merely begins like the one asked for": (
        {"kernel": node()["kernel"] | {"command_line": "iommu=ptx init_on_alloc=01"}},
        [
            ("kernel", "command line init_on_alloc", "init_on_alloc=0", "init_on_alloc=01"),
            ("kernel", "command line iommu", "iommu=pt", "iommu=ptx"),
        ],
    ),
    "modules of the driver before": (
        {"nvidia": {"loaded": {"version": "570.86.15", "open": True}, "libraries": ["570.133.20"]},
         "modules": {"nvidia": "570.86.15", "nvidia_uvm": "570.86.15"}},
        [
            ("driver", "loaded driver", "570.133.20", f"570.86.15 is loaded, {TRAP}"),
            ("driver", "module nvidia", "570.133.20", "570.86.15 is loaded"),
            ("driver", "module nvidia_uvm", "570.133.20", "570.86.15 is loaded"),
        ],
    ),
    "no driver loaded": (
        {"nvidia": {"loaded": {"absent": "/proc/driver/nvidia/version is not there"}, "libraries": []}, "modules": {}},
        [
            ("driver", "loaded driver", "570.133.20", "none is loaded: /proc/driver/nvidia/version is not there"),
            ("driver", "module nvidia-uvm", "loaded", "not loaded"),
        ],
    ),
    "a second management library, which no package brought": (
        {"nvidia": node()["nvidia"] | {"libraries": ["570.133.20", "580.65.06"]}},
        [("driver", "library libnvidia-ml", "570.133.20", "libnvidia-ml.so.580.65.06 is there")],
    ),
    "a library that a failed installation left empty": (
        {"nvidia": node()["nvidia"] | {"empty": ["libnvidia-ml.so.570.133.20"]}},
        [("driver", "library libnvidia-ml", "570.133.20", "libnvidia-ml.so.570.133.20 is empty")],
    ),
    "a module of the kernel itself with a like name": (
        {"modules": {"nvidia_wmi_ec_backlight": None, "nvidia_uvm": None}}, [],
    ),
    "another release of the system": (
        {"os": node()["os"] | {"version_codename": "bookworm", "version_id": "12"}},
        [("os", "release", "debian trixie", "debian bookworm")],
    ),
    "another machine under this name": ({"serial": "LAB-9"}, [("hardware", "serial", "LAB-1", "LAB-9")]),
    "a reboot that a package wants": (
        {"reboot": {"required": True, "by": ["libc6", "dbus"]}},
        [("os", "reboot", "not required", "required by libc6, dbus")],
    ),
    "an image that is not the current one": (
        {"images": node()["images"] | {"current": "sha256-1.sqsh"}},
        [("image", "current image", IMAGE, "sha256-1.sqsh")],
    ),
    "no image at all": (
        {"images": {"absent": "/var/lib/bedplate/images is not there"}},
        [("image", "current image", IMAGE, "/var/lib/bedplate/images is not there")],
    ),
    "an image that is cut": (
        {"images": {"current": IMAGE, "files": {IMAGE: {"size": 9, "sha256": None}}}},
        [("image", "image file", "12345 bytes", "9 bytes")],
    ),
    "an image that is damaged": (
        {"images": {"current": IMAGE, "files": {IMAGE: {"size": 12345, "sha256": digest("f")}}}},
        [("image", "image file", digest("8"), f"{digest('f')}: damaged")],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_difference_is_told_with_its_layer(case: str) -> None:
    parts, told = CASES[case]
    assert drifts(node(**parts)) == told


FILE = {"sha256": digest("e"), "mode": "0644", "size": 16, "owner": "root:root"}


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (FILE | {"sha256": digest("f")}, [("file /etc/nccl.conf", digest("e"), digest("f"))]),
        (FILE | {"mode": "0666"}, [("mode of /etc/nccl.conf", "0644", "0666")]),
        (FILE | {"owner": "nobody:root"}, [("owner of /etc/nccl.conf", "root:root", "nobody:root")]),
        (
            {"absent": "/etc/nccl.conf is not there"},
            [("file /etc/nccl.conf", digest("e"), "/etc/nccl.conf is not there")],
        ),
    ],
)
def test_a_rendered_file_is_held_to_its_bytes_its_mode_and_its_owner(found: Any, told: Any) -> None:
    assert [row[1:] for row in drifts(node(files={"/etc/nccl.conf": found}))] == told


UNIT = sample()["units"]["nvidia-fabricmanager.service"]


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"load": "not-found", "active": "inactive"}, [("active (loaded)", "not-found")]),
        ({"load": "masked", "active": "inactive", "file": "masked"}, [("active (loaded)", "masked")]),
        ({"active": "failed", "sub": "failed"}, [("active", "failed (failed)")]),
        (
            {"active": "inactive", "sub": "dead", "condition": "no"},
            [("active", "inactive (dead): a condition was not met, so systemd skipped it and called that a success")],
        ),
        ({"active": "activating", "sub": "auto-restart"}, [("active", "activating (auto-restart)")]),
        ({"file": "disabled"}, [("enabled", "disabled: a reboot would lose it")]),
        ({"file": "enabled-runtime"}, [("enabled", "enabled-runtime: a reboot would lose it")]),
        ({"file": "static"}, []),
        ({"reload_needed": True}, [("as its file says", "its file changed after systemd read it")]),
    ],
)
def test_a_unit_that_a_role_promises_runs_and_lasts(changed: dict[str, Any], told: Any) -> None:
    found = drifts(node(units={"nvidia-fabricmanager.service": UNIT | changed}))
    assert found == [("fabric", "unit nvidia-fabricmanager.service", *pair) for pair in told]


def test_debian_keeps_the_release_of_a_kernel_and_the_build_tells() -> None:
    made = locked()
    packages = made["packages"]["gpu"]
    packages["linux-image-6.12.38+deb13-amd64"] = packages.pop(KERNEL) | {"version": "6.12.38-1"}
    rows = [row for row in node()["packages"] if row[0] != KERNEL]
    rows.append(["linux-image-6.12.38+deb13-amd64", "6.12.38-1", "amd64", "hold", "installed"])
    kernel = node()["kernel"] | {"release": "6.12.38+deb13-amd64"}
    same = kernel | {"version": "#1 SMP PREEMPT_DYNAMIC Debian 6.12.38-1 (2025-07-16)"}
    other = kernel | {"version": "#1 SMP PREEMPT_DYNAMIC Debian 6.12.38-0.1 (2025-07-01)"}
    assert drifts(node(packages=rows, kernel=same), wanted(made)) == []
    assert drifts(node(packages=rows, kernel=other), wanted(made)) == [
        ("kernel", "running kernel", "6.12.38-1", "6.12.38-0.1 runs, the lock's is installed: reboot pending")
    ]


@pytest.mark.parametrize("part", sorted({*PARTS} - {"boot_id", "hostname", "time"}))
def test_a_part_that_could_not_be_read_is_never_no_drift(part: str) -> None:
    found = compare_node(wanted(), parsed(node(**{part: {"unknown": "no end after 20 s"}})))
    assert found.verdict == "unknown"
    assert {one.why for one in found.unanswered} == {"no end after 20 s"}


@pytest.mark.parametrize("part", ["files", "units"])
def test_what_was_not_asked_for_is_not_known(part: str) -> None:
    found = compare_node(wanted(), parsed(node(**{part: {}})))
    assert [one.why for one in found.unanswered] == [
        "was not asked for when these facts were collected (run: bedplate collect)"
    ]


@pytest.mark.parametrize(
    ("parts", "item"),
    [
        ({"files": {"/etc/nccl.conf": {"unknown": "Permission denied"}}}, "file /etc/nccl.conf"),
        ({"units": {"nvidia-fabricmanager.service": {"unknown": "cut"}}}, "unit nvidia-fabricmanager.service"),
        ({"nvidia": {"loaded": {"unknown": "Permission denied"}, "libraries": []}}, "loaded driver"),
        ({"serial": {"absent": "no DMI"}}, "serial"),
    ],
)
def test_one_thing_that_could_not_be_read_is_told(parts: dict[str, Any], item: str) -> None:
    found = compare_node(wanted(), parsed(node(**parts)))
    assert [one.item for one in found.unanswered] == [item]


def test_files_and_units_of_other_templates_are_not_known_and_the_rest_is_compared() -> None:
    asked = replace(
        wanted(),
        files={},
        units={},
        modules={},
        replaces={},
        unrendered="the templates of this checkout are not those of lock A",
    )
    found = compare_node(asked, parsed(node(serial="LAB-9")))
    assert {one.item for one in found.unanswered} == {"files", "units"}
    assert [d.item for d in found.drifts] == ["serial"]
    assert found.verdict == "unknown", "a difference does not make the rest known"


def test_an_unmanaged_layer_is_nobodys_promise() -> None:
    made = document()
    for layer in ("hardware", "os", "driver", "fabric", "image", "config"):
        made["layers"][layer] = {"unmanaged": "not here"}
    made |= {"image": None, "packages": {"gpu": {}}, "config": {"templates": {}, "files_sha256": {}, "values": {}}}
    asked = replace(wanted(made), files={}, units={}, modules={}, replaces={}, unrendered=None)
    wild = node(
        serial="X", os={"unknown": "?"}, kernel={"unknown": "?"}, nvidia={"unknown": "?"}, files={"unknown": "?"},
        images={"unknown": "?"}, reboot={"unknown": "?"}, units={"unknown": "?"}, modules={"unknown": "?"},
    )  # fmt: skip
    found = compare_node(asked, parsed(wild))
    assert (found.drifts, found.unanswered) == ((), ())


def test_a_node_without_gpus_needs_no_loaded_driver() -> None:
    asked = replace(wanted(), gpus=False)
    assert drifts(node(nvidia={"loaded": {"absent": "none"}, "libraries": []}), asked) == []


def test_the_version_of_the_driver_is_that_of_its_modules() -> None:
    both = {"libnvidia-compute-580": "580.95.05-0ubuntu1", "nvidia-dkms-580-open": "580.82.07-0ubuntu1"}
    assert loaded_driver(both) == ("nvidia-dkms-580-open", "580.82.07")
    unsuffixed = {"nvidia-driver-local-repo": "1:abc-1", "nvidia-open": "595.71.05-1"}
    assert loaded_driver(unsuffixed) == ("nvidia-open", "595.71.05")
    assert loaded_driver({"numactl": "2.0.18-1"}) is None


def test_kernel_releases_are_read_from_the_names_of_images() -> None:
    names = [
        "linux-image-6.8.0-50-generic",
        "linux-image-unsigned-6.8.0-51-generic",
        "linux-image-generic",
        "linux-headers-6.8.0-50",
    ]
    assert kernel_releases(names) == {"6.8.0-50-generic", "6.8.0-51-generic"}


def test_nodes_with_the_same_drift_are_one_group_and_layers_keep_their_order() -> None:
    def one(name: str, **parts: Any) -> Any:
        return compare_node(replace(wanted(), node=name), parsed(node(**parts)))

    found = groups([
        one("n1", serial="X"), one("n2", serial="X"), one("n3", serial="Y"), one("n4"),
        one("n5", reboot={"required": True, "by": []}, images={"unknown": "?"}), nothing_known("n6", "no answer"),
    ])  # fmt: skip
    assert [(str(g.layer), g.folded, g.found, g.known) for g in found] == [
        ("None", "n6", "no answer", False),
        ("hardware", "n[1-2]", "X", True),
        ("hardware", "n3", "Y", True),
        ("os", "n5", "required", True),
        ("image", "n5", "?", False),
    ]


def event(number: int, kind: str, *nodes: str) -> Event:
    subjects = tuple(f"node:{name}" for name in nodes)
    return Event(number, "2026-11-02T09:14:03.000017Z", "x", kind, subjects, None, {}, "", "", "")


def test_a_node_may_be_another_after_a_step_and_is_what_it_was_when_a_gate_held_it() -> None:
    events = [
        event(1, "batch.admitted", "n1", "n2", "n3"), event(2, "step.ended", "n1", "n2"), event(3, "node.done", "n1"),
        event(4, "node.verified", "n1"), event(5, "batch.admitted", "n1", "n3"), event(6, "batch.held", "n1", "n3"),
        event(7, "drift.none", "n1"), event(8, "node.collected", "n1"), event(9, "image.placed", "n4"),
        event(10, "image.collected", "n5"),
    ]  # fmt: skip
    assert last_changes(events) == {"n1": 3, "n2": 2, "n3": 1, "n4": 9, "n5": 10}


NAMES = ["libnuma1", DRIVER, "nvidia-fabricmanager-570", KERNEL, "libnvidia-x", "linux-image-amd64"]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(NAMES),
            st.sampled_from(["1.0", RIGHT, "2.0.18-1+b1", "6.8.0-50.51"]), st.sampled_from(["amd64", "all", "i386"]),
            st.sampled_from(["install", "hold", "deinstall", "purge", "unknown"]),
            st.sampled_from(["installed", "half-installed", "unpacked", "config-files", "not-installed"]),
        ).map(list)
    )
)  # fmt: skip
def test_whatever_packages_a_node_has_only_those_of_the_lock_are_no_drift(rows: list[list[str]]) -> None:
    said = node(packages=[["dpkg", "1.22.21", "amd64", "install", "installed"], *rows])
    found = compare_node(wanted(), parsed(said))
    for name, package in wanted().packages.items():
        right = [name, package.version, "amd64", "hold", "installed"]
        if right not in rows:
            assert any(one.item in (f"package {name}", f"hold {name}") for one in found.drifts)
    assert len({(one.item, one.wanted, one.found) for one in found.drifts}) <= 2 * len(rows) + len(wanted().packages)
