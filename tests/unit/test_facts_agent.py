"""The program that a node runs, run for real: against roots made for it, and against this machine."""

import ast
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from bedplate.model.canonical import sha256
from bedplate.model.facts import PARTS, Unknown, facts
from bedplate.observe import agent
from unit.facts_sample import FILES, QUESTIONS, UNITS, run_program, write_root, write_systemctl

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="nodes run Linux")]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_root(tmp_path / "root")


@pytest.fixture
def path(tmp_path: Path) -> str:
    return write_systemctl(tmp_path / "bin")


def asked(root: Path, **changed: Any) -> dict[str, Any]:
    return QUESTIONS | {"root": str(root), "units": UNITS} | changed


def test_it_is_one_script_for_python_3_9_with_nothing_but_the_standard_library() -> None:
    tree = ast.parse(Path(agent.__file__).read_text(), feature_version=(3, 9))
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in names} <= sys.stdlib_module_names
    used = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert not used & {"removeprefix_", "batched", "pairwise", "UTC", "file_digest"}, "newer than Python 3.9"


def test_everything_that_a_root_has_is_said(root: Path, path: str) -> None:
    document = run_program(asked(root, paths=["/etc/nccl.conf", "/etc/none"]), path=path)
    facts(document, "n1")  # and nothing of it is refused at the border
    image = f"sha256-{'8' * 64}.sqsh"
    owner = f"{(root / 'etc/nccl.conf').owner()}:{(root / 'etc/nccl.conf').group()}"
    assert document | {"time": None} == {
        "schema": 1, "boot_id": "6d2b7a0e-2f7e-4cf3-9d3d-2f3f0f7d1c11", "hostname": "n1", "serial": "LAB-1",
        "os": {"id": "debian", "version_id": "13", "version_codename": "trixie", "pretty_name": "Debian GNU/Linux 13"},
        "kernel": {
            "release": "6.8.0-50-generic", "version": "#51-Ubuntu SMP PREEMPT_DYNAMIC Sat Nov  9 17:58:29 UTC 2024",
            "command_line": "BOOT_IMAGE=/vmlinuz root=UUID=1 ro iommu=pt",
        },
        "packages": [
            ["broken", "1:2.0~rc1-1", "all", "install", "half-installed reinstreq"],
            ["dpkg", "1.22.21", "amd64", "install", "installed"],
            ["libnuma1", "2.0.18-1+b1", "amd64", "hold", "installed"],
            ["nvidia-driver-570-open", "570.133.20-0ubuntu1", "amd64", "hold", "half-configured"],
            ["nvidia-utils-550", "550.54.15-0ubuntu1", "amd64", "deinstall", "config-files"],
        ],
        "modules": {"nvidia": "570.133.20", "nvidia_uvm": "570.133.20", "xfs": None},
        "nvidia": {"loaded": {"version": "570.133.20", "open": True}, "libraries": ["570.133.20"], "empty": []},
        "files": {
            "/etc/nccl.conf": {"sha256": sha256(b"NCCL_DEBUG=WARN\n"), "mode": "0644", "size": 16, "owner": owner},
            "/etc/none": {"absent": "/etc/none is not there"},
        },
        "units": {
            "nvidia-fabricmanager.service": {
                "load": "loaded", "active": "active", "sub": "running", "file": "enabled", "condition": "yes",
                "reload_needed": False,
            },
            "slurmd.service": {
                "load": "loaded", "active": "inactive", "sub": "dead", "file": "enabled", "condition": "no",
                "reload_needed": False,
            },
            "no-such.service": {
                "load": "not-found", "active": "inactive", "sub": "dead", "file": "", "condition": "never checked",
                "reload_needed": False,
            },
        },
        "images": {"current": image, "files": {image: {"size": 4, "sha256": None}}},
        "reboot": {"required": False, "by": []},
        "time": None,
    }  # fmt: skip


def test_nothing_of_what_a_file_says_leaves_the_node(root: Path, path: str) -> None:
    secret = "hunter2 is the password"
    (root / "etc/munge.key").write_text(secret)
    (root / "etc/munge.key").chmod(0o400)
    document = run_program(asked(root, paths=["/etc/munge.key"]), path=path)
    assert document["files"]["/etc/munge.key"]["sha256"] == sha256(secret.encode())
    assert document["files"]["/etc/munge.key"]["mode"] == "0400"
    assert "hunter2" not in json.dumps(document)


def test_images_are_hashed_only_when_asked(root: Path, path: str) -> None:
    (found,) = run_program(asked(root, hash_images=True), path=path)["images"]["files"].values()
    assert found["sha256"] == sha256(b"hsqs")


def test_a_reboot_that_a_package_wants_is_said_with_the_package(root: Path, path: str) -> None:
    (root / "run").mkdir()
    (root / "run/reboot-required").write_text("*** System restart required ***\n")
    assert run_program(asked(root), path=path)["reboot"] == {"required": True, "by": []}
    (root / "run/reboot-required.pkgs").write_text("linux-image-6.8.0-50-generic\nlinux-base\nlinux-base\n")
    assert run_program(asked(root), path=path)["reboot"] == {
        "required": True, "by": ["linux-base", "linux-image-6.8.0-50-generic"],
    }  # fmt: skip


GONE = {
    "proc/sys/kernel/random/boot_id": ("boot_id", {"unknown": "/proc/sys/kernel/random/boot_id is not there"}),
    "proc/sys/kernel/hostname": ("hostname", {"unknown": "/proc/sys/kernel/hostname is not there"}),
    "proc/sys/kernel/osrelease": ("kernel", {"unknown": "/proc/sys/kernel/osrelease is not there"}),
    "proc/cmdline": ("kernel", {"unknown": "/proc/cmdline is not there"}),
    "sys/class/dmi/id/product_serial": ("serial", {"absent": "/sys/class/dmi/id/product_serial is not there"}),
    "etc/os-release": ("os", {"unknown": "/etc/os-release is not there"}),
}


@pytest.mark.parametrize("name", GONE)
def test_what_is_gone_is_told_and_the_rest_is_said(name: str, root: Path, path: str) -> None:
    (root / name).unlink()
    document = run_program(asked(root), path=path)
    part, told = GONE[name]
    assert document[part] == told
    assert document.keys() == {*PARTS, "schema"}
    assert [n for n in PARTS if isinstance(document[n], dict) and document[n].keys() <= {"unknown", "absent"}] == [part]


@pytest.mark.parametrize("name", sorted(name for name in FILES if name.startswith(("proc/", "sys/", "etc/os"))))
def test_an_empty_file_is_no_answer(name: str, root: Path, path: str) -> None:
    (root / name).write_text("")
    document = run_program(asked(root), path=path)
    found = facts(document, "n1")
    if name in ("proc/cmdline", "proc/modules", "sys/module/xfs/refcnt"):
        assert not found.unknown(), "these may be empty"
    else:
        assert found.unknown() or isinstance(found.serial, Unknown)


def test_a_kernel_without_loadable_modules_has_those_that_are_built_in(root: Path, path: str) -> None:
    (root / "proc/modules").unlink()
    assert run_program(asked(root), path=path)["modules"] == {
        "nvidia": "570.133.20",
        "nvidia_uvm": "570.133.20",
        "xfs": None,
    }
    shutil.rmtree(root / "sys/module")
    assert run_program(asked(root), path=path)["modules"] == {"unknown": "/sys/module: No such file or directory"}


def test_no_driver_is_absent_and_one_that_says_something_else_is_unknown(root: Path, path: str) -> None:
    version = root / "proc/driver/nvidia/version"
    version.write_text("NVRM version: who knows\n")
    assert "who knows" in run_program(asked(root), path=path)["nvidia"]["unknown"]
    version.unlink()
    assert run_program(asked(root), path=path)["nvidia"]["loaded"] == {
        "absent": "/proc/driver/nvidia/version is not there"
    }


def test_a_proprietary_driver_is_told_from_an_open_one(root: Path, path: str) -> None:
    (root / "proc/driver/nvidia/version").write_text(
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 19:39:15 UTC 2024\n"
    )
    assert run_program(asked(root), path=path)["nvidia"]["loaded"] == {"version": "535.183.01", "open": False}


def test_a_library_of_the_driver_without_a_byte_is_told_by_its_name(root: Path, path: str) -> None:
    folder = root / "usr/lib/x86_64-linux-gnu"
    for name in ("libnvidia-ml.so.570.133.20", "libcuda.so.570.133.20", "libnvidia-container.so.1.20.0"):
        (folder / name).write_text("")
    (folder / "libcuda.so.1").symlink_to("libcuda.so.570.133.20")
    found = run_program(asked(root), path=path)
    facts(found, "n1")
    assert found["nvidia"]["libraries"] == ["570.133.20"]
    assert found["nvidia"]["empty"] == ["libcuda.so.570.133.20", "libnvidia-ml.so.570.133.20"]


def test_what_is_no_file_is_absent_as_one(root: Path, path: str) -> None:
    (root / "etc/folder").mkdir()
    os.mkfifo(root / "etc/pipe")
    (root / "etc/nowhere").symlink_to("none")
    paths = ["/etc/folder", "/etc/pipe", "/etc/nowhere", "/etc/nccl.conf/x", "/etc/nccl.conf"]
    found = run_program(asked(root, paths=paths), path=path)["files"]
    assert found["/etc/folder"] == {"absent": "/etc/folder is no file but a directory"}
    assert found["/etc/pipe"] == {"absent": "/etc/pipe is no file but a pipe"}
    assert found["/etc/nowhere"] == {"absent": "/etc/nowhere is a link that leads nowhere"}
    assert found["/etc/nccl.conf/x"] == {"absent": "/etc/nccl.conf/x is not there"}
    assert found["/etc/nccl.conf"]["size"] == 16


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("#!/bin/sh\necho 'System has not been booted with systemd' >&2\nexit 1\n", "not been booted with systemd"),
        ("#!/bin/sh\necho LoadState=loaded\n", "systemctl was asked for 1 units and told of 1"),
        ("#!/bin/sh\nexit 0\n", "systemctl was asked for 1 units and told of 0"),
        ("#!/bin/sh\nprintf 'LoadState=loaded\\n\\nLoadState=loaded\\n'\n", "asked for 1 units and told of 2"),
    ],
)
def test_units_that_systemctl_does_not_tell_of_are_unknown(script: str, told: str, root: Path, tmp_path: Path) -> None:
    found = run_program(asked(root, units=UNITS[:1]), path=write_systemctl(tmp_path / "other", script))["units"]
    if "told of 1" in told:  # one block, but not with what was asked
        assert "did not tell ActiveState" in found["nvidia-fabricmanager.service"]["unknown"]
    else:
        assert told in found["unknown"]


def test_without_systemctl_and_dpkg_units_and_packages_are_unknown(root: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    document = run_program(asked(root), path=str(tmp_path / "empty"))
    assert document["units"] == {"unknown": "no program systemctl"}
    assert document["packages"] == {"unknown": "no program dpkg-query"}
    assert document["hostname"] == "n1"


def test_a_package_database_without_dpkg_is_no_answer(root: Path, path: str) -> None:
    (root / "var/lib/dpkg/status").write_text("")
    assert "unknown" in run_program(asked(root), path=path)["packages"]


def test_a_part_that_hangs_is_unknown_after_its_deadline_and_the_rest_is_said(root: Path, tmp_path: Path) -> None:
    slow = write_systemctl(tmp_path / "slow", "#!/bin/sh\nexec sleep 600\n")
    document = run_program(asked(root, deadline_s=1), path=slow)
    assert document["units"] == {"unknown": "no end after 1 s"}
    assert document["images"]["current"], "which is asked after the units"


def test_a_part_that_is_too_large_is_unknown(root: Path, path: str) -> None:
    rows = "".join(
        f"Package: p{n:05d}\nStatus: install ok installed\nArchitecture: all\nVersion: {'1' * 200}\n\n"
        for n in range(10_000)
    )
    (root / "var/lib/dpkg/status").write_text(FILES["var/lib/dpkg/status"] + rows)
    assert "more than 2097152" in run_program(asked(root), path=path)["packages"]["unknown"]


def test_a_text_that_would_steer_a_terminal_does_not(root: Path, path: str) -> None:
    (root / "proc/cmdline").write_bytes(b"quiet \x1b[31m\xff " + b"x" * 5000)
    found = run_program(asked(root), path=path)["kernel"]["command_line"]
    assert found.startswith("quiet ?[31m\ufffd x")
    assert len(found) == 4096


def test_this_machine_answers_and_is_understood() -> None:
    document = run_program(QUESTIONS | {"paths": ["/etc/hostname"]})
    found = facts(document, "this machine")
    assert isinstance(found.hostname, str)
    assert found.document == document
