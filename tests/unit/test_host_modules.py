"""The modules that converge host layers: what they decide, and what they leave behind when a command fails."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from bedplate.sources import checkout
from unit.programs import ansible_module

LIBRARY = checkout.root() / "playbooks/library"


PACKAGES, JSON, BOOT, UNITS, MODULES = (
    ansible_module(name) for name in ("packages", "json", "boot", "units", "modules")
)


def call(name: str, programs: str = "", **given: Any) -> dict[str, Any]:
    """A module as Ansible runs it; programs: where its commands are looked for first."""
    done = subprocess.run(
        [sys.executable, LIBRARY / f"bedplate_{name}.py"], check=False, capture_output=True, text=True,
        input=json.dumps({"ANSIBLE_MODULE_ARGS": given}),
        env={**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"},
    )  # fmt: skip
    said: dict[str, Any] = json.loads(done.stdout)
    return said


# --- a JSON file that is not ours alone -------------------------------------------------------------

OURS = {"features": {"cdi": True}, "runtimes": {"nvidia": {"path": "nvidia-container-runtime"}}}


@pytest.mark.parametrize(
    ("there", "before", "wanted", "now"),
    [
        ({}, {}, OURS, OURS),
        ({"data-root": "/big"}, {}, OURS, {"data-root": "/big", **OURS}),
        (
            {"features": {"buildkit": True}},
            {},
            {"features": {"cdi": True}},
            {"features": {"buildkit": True, "cdi": True}},
        ),
        ({"features": {"cdi": False}}, {}, {"features": {"cdi": True}}, {"features": {"cdi": True}}),
        ({"a": 1, "ours": 2}, {"ours": 2}, {}, {"a": 1}),
        ({"ours": 3}, {"ours": 2}, {}, {"ours": 3}),  # somebody changed it since: theirs
        ({"f": {"ours": 1, "site": 2}}, {"f": {"ours": 1}}, {"g": 1}, {"f": {"site": 2}, "g": 1}),
        ({"f": {"ours": 1}}, {"f": {"ours": 1}}, {}, {}),
    ],
    ids=["none", "other key", "other subkey", "ours wins", "ours goes", "theirs stays", "subkey goes", "empty goes"],
)
def test_keys_of_the_site_survive_and_ours_that_are_not_wanted_go(
    there: Any, before: Any, wanted: Any, now: Any
) -> None:
    assert JSON.merged(JSON.without(there, before, wanted), wanted) == now


def test_a_second_merge_changes_nothing_and_another_layout_is_left_as_it_is(tmp_path: Path) -> None:
    path, kept = tmp_path / "docker/daemon.json", tmp_path / "kept.json"
    given = {"path": str(path), "kept": str(kept), "keys": json.dumps(OURS)}
    assert call("json", **given)["changed"]
    assert not call("json", **given)["changed"]
    path.write_text(json.dumps({"registry-mirrors": ["https://m"], **OURS}))
    assert not call("json", **given)["changed"]
    assert "\n" not in path.read_text()


def test_a_file_that_is_no_json_is_a_failure_and_stays(tmp_path: Path) -> None:
    path = tmp_path / "daemon.json"
    path.write_text("{,}")
    said = call("json", path=str(path), kept=str(tmp_path / "kept"), keys="{}")
    assert said["failed"]
    assert "is no JSON" in said["msg"]
    assert path.read_text() == "{,}"


def test_check_mode_writes_nothing(tmp_path: Path) -> None:
    given = {"path": str(tmp_path / "d.json"), "kept": str(tmp_path / "k.json"), "keys": json.dumps(OURS)}
    assert call("json", _ansible_check_mode=True, **given)["changed"]
    assert list(tmp_path.iterdir()) == []


# --- packages ---------------------------------------------------------------------------------------


def simulated(*lines: str, code: int = 0, err: str = "") -> "subprocess.CompletedProcess[str]":
    return subprocess.CompletedProcess(["apt-get"], code, "\n".join(lines), err)


ALLOWED = {"nvidia-driver-580-open": "580.126.20-1", "nvidia-fabricmanager": "580.126.20-1"}


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["Inst nvidia-fabricmanager (590.48.01-1 lab:b [amd64])"],
         "nvidia-fabricmanager absent -> 590.48.01-1 (the lock says 580.126.20-1)"),
        (["Inst linux-image-6.8.0-60 [6.8.0-50] (6.8.0-60 u [amd64])"],
         "linux-image-6.8.0-60 absent -> 6.8.0-60 (not in the lock)"),
        (["Remv slurmd [24.11.5-4]"], "slurmd 24.11.5-4 -> removed (not in the lock)"),
        (["Purg cuda-toolkit:amd64 [13]"], "cuda-toolkit ? -> removed (not in the lock)"),
    ],
    ids=["newer Fabric Manager", "a kernel", "a removal", "a purge"],
)  # fmt: skip
def test_a_transaction_that_touches_what_is_not_of_the_lock_names_it(lines: list[str], said: str) -> None:
    with pytest.raises(PACKAGES.Refused) as refused:
        PACKAGES.refuse_other_changes(simulated(*lines), ALLOWED, ["nvidia-driver-570-open"], {"slurmd": "24.11.5-4"})
    assert said in str(refused.value)


def test_a_transaction_of_the_lock_and_its_purges_passes() -> None:
    lines = [
        "Purg nvidia-driver-570-open [570.133.20-0ubuntu1]",
        "Inst nvidia-driver-580-open (580.126.20-1 lab:b [amd64])",
        "Inst nvidia-fabricmanager [590.48.01-1] (580.126.20-1 lab:b [amd64])",
        "Conf nvidia-driver-580-open (580.126.20-1 lab:b [amd64])",
    ]
    PACKAGES.refuse_other_changes(simulated(*lines), ALLOWED, ["nvidia-driver-570-open"], {})


FAKE = """#!/usr/bin/env python3
# dpkg-query, apt-get and apt-mark over one JSON file: name -> [version, held], or [version, held, state]
import json, os, pathlib, sys
state = pathlib.Path(os.environ["FAKE_STATE"]); program = pathlib.Path(sys.argv[0]).name; words = sys.argv[1:]
there = json.loads(state.read_text())
def save(): state.write_text(json.dumps(there))
if program == "dpkg-query":
    for name, (version, held, *state) in there.items():
        print(name, version, "hold" if held else "install", *(state or ["installed"]))
elif program == "apt-mark":
    for name in words[1:]: there[name][1] = words[0] == "hold"
    save()
else:
    asked = [w for w in words[words.index("install") + 1:]]
    for word in asked:
        if word.endswith("-"):
            name = word[:-1]
            if "-s" in words: print(f"Purg {name} [1]")
            else: there.pop(name, None)
        else:
            name, _, version = word.partition("=")
            if there.get(name, [])[:1] == [version] and len(there[name]) == 2: continue
            if "-s" in words: print(f"Inst {name} ({version} lab:a [amd64])")
            else:
                there[name] = [version, False]; save()
                if version == "broken":
                    sys.exit("E: Sub-process /usr/bin/dpkg returned an error code (1)")
    save()
"""


@pytest.fixture
def fakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("dpkg-query", "apt-get", "apt-mark"):
        (folder / name).write_text(FAKE)
        (folder / name).chmod(0o755)
    monkeypatch.setenv("FAKE_STATE", str(tmp_path / "state.json"))
    return folder


def state(fakes: Path, there: dict[str, list[Any]] | None = None) -> Any:
    path = fakes.parent / "state.json"
    if there is not None:
        path.write_text(json.dumps(there))
    return json.loads(path.read_text())


def packages(fakes: Path, wanted: dict[str, str], **more: Any) -> dict[str, Any]:
    items = [{"name": name, "version": version} for name, version in wanted.items()]
    return call("packages", str(fakes), wanted=items, pins=str(fakes.parent / "pins"), **more)


@pytest.mark.slow
def test_a_held_package_is_changed_and_held_again_and_the_other_branch_goes(fakes: Path) -> None:
    state(fakes, {"dpkg": ["1", False], "nvidia-driver-570": ["570", True], "nvlsm": ["1", True]})
    said = packages(fakes, {"nvidia-driver-580": "580", "nvlsm": "2"}, families=["nvidia-driver-.*"])
    assert said["changed"]
    assert said["purged"] == ["nvidia-driver-570"]
    assert state(fakes) == {"dpkg": ["1", False], "nvlsm": ["2", True], "nvidia-driver-580": ["580", True]}
    assert not packages(fakes, {"nvidia-driver-580": "580", "nvlsm": "2"}, families=["nvidia-driver-.*"])["changed"]


@pytest.mark.slow
@pytest.mark.parametrize("state_now", ["unpacked", "half-configured", "half-installed", "triggers-awaited"])
def test_what_a_failed_transaction_left_in_between_goes_and_what_was_only_removed_is_left(
    fakes: Path, state_now: str
) -> None:
    old = {"nvidia-utils-580": ["580", True, state_now], "nvidia-utils-550": ["550", False, "config-files"]}
    state(fakes, {"dpkg": ["1", False], "nvlsm": ["1", True, state_now], **old})
    said = packages(fakes, {"nvidia-utils-570": "570", "nvlsm": "1"}, families=["nvidia-utils-.*"])
    assert (said["missing"], said["purged"]) == (["nvidia-utils-570=570", "nvlsm=1"], ["nvidia-utils-580"])
    assert state(fakes) == {
        "dpkg": ["1", False], "nvlsm": ["1", True], "nvidia-utils-550": old["nvidia-utils-550"],
        "nvidia-utils-570": ["570", True],
    }  # fmt: skip


def test_after_a_failed_transaction_the_holds_are_back(fakes: Path) -> None:
    state(fakes, {"dpkg": ["1", False], "a": ["1", True], "b": ["1", True], "c": ["1", False]})
    said = packages(fakes, {"a": "2", "b": "broken", "c": "1"})
    assert said["failed"]
    assert "apt-get ended with 1" in said["msg"]
    assert {name: held for name, (_, held) in state(fakes).items()} == {"dpkg": False, "a": True, "b": True, "c": False}


def test_a_metapackage_that_is_not_of_the_lock_is_held_too(fakes: Path) -> None:
    state(fakes, {"dpkg": ["1", False], "linux-image-6.8": ["1", True], "linux-image-generic": ["1", False]})
    said = packages(fakes, {"linux-image-6.8": "1"}, also_held=["linux-image-.*"])
    assert said["unheld"] == ["linux-image-generic"]
    assert state(fakes)["linux-image-generic"] == ["1", True]


def test_apt_is_not_told_the_architecture_that_dkms_takes_for_the_kernels(
    fakes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DKMS builds below arch/$ARCH, where the kernel has x86: modules of the driver would not be built."""
    fake = (fakes / "apt-get").read_text()
    told = f"open({str(fakes.parent / 'environment')!r}, 'w').write(chr(10).join(os.environ))\n"
    (fakes / "apt-get").write_text(fake + told)
    monkeypatch.setenv("ARCH", "amd64")
    state(fakes, {"dpkg": ["1", False]})
    assert packages(fakes, {"nvidia-dkms-580-open": "580"})["changed"]
    names = (fakes.parent / "environment").read_text().splitlines()
    assert "ARCH" not in names
    assert {"DEBIAN_FRONTEND", "NEEDRESTART_SUSPEND", "PATH"} <= {*names}


def test_check_mode_says_what_would_change_and_changes_nothing(fakes: Path) -> None:
    before = state(fakes, {"dpkg": ["1", False], "a": ["1", True]})
    said = packages(fakes, {"a": "2"}, _ansible_check_mode=True)
    assert said["changed"]
    assert (said["diff"]["before"], said["diff"]["after"]) == ("a=1 held\n", "a=2 held\n")
    assert state(fakes) == before


# --- the next boot ----------------------------------------------------------------------------------


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine of files: read() and modinfo() of the module see it instead of this one."""
    monkeypatch.setattr(BOOT, "read", lambda path: _text(tmp_path / path.lstrip("/")))
    monkeypatch.setattr(BOOT, "modinfo", lambda kernel, name, field: _text(tmp_path / kernel / name / field) or None)
    monkeypatch.setattr(BOOT, "is_loaded", lambda name: (tmp_path / "sys/module" / name).is_dir())
    monkeypatch.setattr(BOOT, "drivers", set)
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cmdline").write_text("BOOT_IMAGE=/vmlinuz root=/dev/sda iommu=pt\n")
    return tmp_path


def _text(path: Path) -> str:
    return path.read_text().strip() if path.exists() else ""


def put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n")


GIVEN: dict[str, Any] = {
    "command_line": [], "modules": ["nvidia", "mlx5_core"], "versions": {"nvidia": "580"}, "unwanted": [],
    "requests": "/nonexistent",
}  # fmt: skip


@pytest.mark.parametrize(
    ("files", "more", "said"),
    [
        ({}, {}, []),
        ({"sys/module/nvidia/version": "580"}, {}, []),
        ({"sys/module/nvidia/version": "570"}, {}, ["module nvidia 570 is loaded, the lock says 580"]),
        ({"sys/module/mlx5_core/srcversion": "AA", "k1/mlx5_core/srcversion": "BB"}, {},
         ["module mlx5_core AA is loaded, BB is installed"]),
        ({}, {"command_line": ["iommu=pt", "init_on_alloc=0"]}, ["the kernel runs without init_on_alloc=0"]),
        ({"sys/module/nouveau/refcnt": "0"}, {"unwanted": ["nouveau"]}, ["module nouveau is loaded"]),
        ({}, {"unwanted": ["nouveau"]}, []),
    ],
    ids=["nothing loaded", "the lock's driver", "another driver", "another module", "a word", "nouveau", "no nouveau"],
)  # fmt: skip
def test_a_reboot_has_a_reason_where_what_runs_is_not_what_is_installed(
    machine: Path, files: dict[str, str], more: dict[str, Any], said: list[str]
) -> None:
    for name, text in files.items():
        put(machine / name, text)
    assert BOOT.reasons(GIVEN | more, "k1", "k1") == said


def test_another_kernel_is_a_reason_and_its_modules_are_not_compared_with_loaded_ones(machine: Path) -> None:
    put(machine / "sys/module/mlx5_core/srcversion", "AA")
    put(machine / "k2/mlx5_core/srcversion", "BB")
    assert BOOT.reasons(GIVEN, "k1", "k2") == ["kernel k1 runs, the lock says k2"]


def test_a_kernel_without_a_needed_module_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "modinfo").write_text('#!/bin/sh\n[ "$5" = mlx5_ib ] && echo x && exit 0\nexit 1\n')
    (tmp_path / "modinfo").chmod(0o755)
    said = call("boot", str(tmp_path), kernel="6.8.0-60-generic", modules=["mlx5_ib", "nvidia"])
    assert said["failed"]
    assert "kernel 6.8.0-60-generic has no module nvidia:" in said["msg"]
    assert "refused" in said["msg"]


def test_a_driver_that_was_not_built_for_the_next_kernel_is_refused(tmp_path: Path) -> None:
    """dkms built the one of before: the kernel has a module of that name."""
    (tmp_path / "modinfo").write_text('#!/bin/sh\n[ "$4 $5" = "version nvidia" ] && echo 570 || echo x\n')
    (tmp_path / "modinfo").chmod(0o755)
    said = call("boot", str(tmp_path), kernel="6.8.0-60-generic", modules=["nvidia"], versions={"nvidia": "580"})
    assert said["failed"]
    assert said["msg"] == (
        "kernel 6.8.0-60-generic has module nvidia 570, the lock says 580: it was not built for this kernel"
        " (see dkms status)"
    )


MOUNTS = """\
/dev/nvme0n1p2 / ext4 rw,relatime 0 0
tmpfs /run tmpfs rw 0 0
10.0.0.1@o2ib:/scratch /scratch lustre rw,flock 0 0
store:/home /home nfs4 rw,vers=4.2 0 0
"""


def test_a_kernel_without_the_module_of_a_mounted_file_system_is_refused(machine: Path) -> None:
    put(machine / "proc/mounts", MOUNTS)
    for name in ("lustre", "nfs"):  # ext4 is built in here
        put(machine / f"sys/module/{name}/initstate", "live")
    for name in ("nvidia", "mlx5_core", "nfs"):
        put(machine / f"k2/{name}/filename", f"/lib/modules/k2/{name}.ko")
    assert BOOT.file_systems() == {"lustre", "nfs"}
    assert BOOT.refusal(GIVEN, "k1", "k2").startswith(
        "kernel k2 has no module lustre: a boot of it would leave this node without: refused (kernels with modules"
    )
    put(machine / "k2/lustre/filename", "/lib/modules/k2/lustre.ko")
    assert BOOT.refusal(GIVEN, "k1", "k2") == ""


# --- units ------------------------------------------------------------------------------------------


def unit(**given: str) -> dict[str, str]:
    return {"LoadState": "loaded", "ActiveState": "active", "UnitFileState": "enabled", **given}


def test_steps_of_units_are_those_that_are_needed(tmp_path: Path) -> None:
    units = {
        "a": unit(),
        "b": unit(ActiveState="inactive", UnitFileState="disabled"),
        "c": unit(LoadState="not-found", ActiveState="inactive", UnitFileState=""),
        "d": unit(ActiveEnterTimestamp="Mon 2000-01-03 01:44:33.123456 UTC"),
        "e": unit(LoadState="masked", UnitFileState="masked", ActiveState="inactive"),
    }
    newer = tmp_path / "conf"
    newer.touch()
    given = {
        "running": ["a", "b", "d", "e"], "enabled": [], "masked": ["c"], "written": [], "reads": {"d": [str(newer)]},
    }  # fmt: skip
    assert UNITS.plan(given, units) == [
        ("mask", "c"), ("enable", "b"), ("unmask", "e"), ("enable", "e"),
        ("start", "b"), ("restart", "d"), ("start", "e"),
    ]  # fmt: skip


def test_a_unit_that_became_active_after_its_files_is_left_alone(tmp_path: Path) -> None:
    old = tmp_path / "conf"
    old.touch()
    since = "Mon 2100-01-04 01:44:33.123456 UTC"
    assert not UNITS.is_older(unit(ActiveEnterTimestamp=since), [str(old)], [])
    assert UNITS.is_older(unit(ActiveEnterTimestamp=since), [str(old)], [str(old)])
    assert not UNITS.is_older(unit(ActiveEnterTimestamp=""), [str(old)], [str(old)])


# daemon-reload under a job takes its GPUs away (NVIDIA/nvidia-container-toolkit#48)
CHANGED_UNIT = """#!/bin/sh
echo "$*" >> "$FAKE_STATE"
printf 'Id=docker.service\nLoadState=loaded\nActiveState=active\nUnitFileState=enabled\nNeedDaemonReload=yes\n'
"""


class Ended(Exception):
    """How a module ended, and with which words."""


def ended(monkeypatch: pytest.MonkeyPatch, module: ModuleType, **given: Any) -> str:
    """What a module says when it fails, run in this process: what it looks at can be replaced."""

    def fail(**said: Any) -> None:
        raise Ended(said["msg"])

    def succeed(**said: Any) -> None:
        raise AssertionError(said)

    params = {"running": [], "enabled": [], "masked": [], "written": [], "reads": {}, "if_loaded": {}, "patience_s": 1}
    made = SimpleNamespace(params=params | given, check_mode=False, fail_json=fail, exit_json=succeed)
    monkeypatch.setattr(module, "AnsibleModule", lambda *_, **__: made)
    with pytest.raises(Ended) as caught:
        module.main()
    return str(caught.value)


def test_systemd_reads_no_unit_file_again_while_a_step_of_a_job_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "systemctl").write_text(CHANGED_UNIT)
    (tmp_path / "systemctl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_STATE", str(tmp_path / "asked"))
    monkeypatch.setattr(UNITS, "gpu_users", lambda: ["4711 slurmstepd: [17.0]"])
    assert ended(monkeypatch, UNITS, running=["docker.service"]) == (
        "a unit file changed and systemd has to read it, which can take GPUs from what runs here:"
        " 4711 slurmstepd: [17.0]: drain the node and end them first"
    )
    (asked,) = (tmp_path / "asked").read_text().splitlines()
    assert " show " in asked
    assert "daemon-reload" not in asked


def test_who_would_lose_gpus_are_steps_of_jobs_and_whoever_has_a_device_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    processes = {
        "17": ("slurmstepd", "slurmstepd: [17.0]", "/dev/null"),
        "18": ("slurmstepd", "slurmstepd infinity", "/dev/null"),
        "19": ("python3", "python3 train.py", "/dev/nvidia3"),
        "20": ("nv-hostengine", "nv-hostengine -n", "/dev/nvidia3"),
        "21": ("nvidia-smi", "nvidia-smi dmon", "/dev/nvidiactl"),
    }
    for pid, (name, words, opened) in processes.items():
        put(tmp_path / pid / "comm", name)
        (tmp_path / pid / "cmdline").write_bytes(words.replace(" ", "\0", 1).encode())
        (tmp_path / pid / "fd").mkdir()
        (tmp_path / pid / "fd/3").symlink_to(opened)
    put(tmp_path / "22/comm", "gone")  # it ended meanwhile
    put(tmp_path / "self/comm", "no process")
    monkeypatch.setattr(UNITS, "PROC", str(tmp_path))
    assert sorted(UNITS.gpu_users()) == ["17 slurmstepd: [17.0]", "19 python3 train.py"]


@pytest.mark.parametrize(
    ("loaded", "foretelling", "may"),
    [("580", False, True), ("570", False, False), ("570", True, False), ("", True, True), ("", False, False)],
)
def test_a_module_of_the_driver_waits_for_the_driver_of_its_version(
    loaded: str, foretelling: bool, may: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """nvidia_peermem 580 is refused by a kernel that runs nvidia 570: the reboot brings both."""
    monkeypatch.setattr(MODULES, "SYSFS", str(tmp_path))
    if loaded:
        put(tmp_path / "nvidia/version", f"{loaded}\n")
    assert MODULES.is_loaded("nvidia", "580", foretelling=foretelling) is may


def test_modules_are_programs_with_documentation() -> None:
    for path in LIBRARY.glob("bedplate_*.py"):
        text = path.read_text()
        assert text.startswith("#!/usr/bin/python\n")
        assert 'DOCUMENTATION = r"""' in text
        assert not path.stat().st_mode & stat.S_IWOTH
