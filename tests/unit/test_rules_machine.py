"""`bedplate check node`: a machine with software on it, judged before any lock."""

# ruff: noqa: E501  messages stand as they are printed

import contextlib
import json
import subprocess
from pathlib import Path

import paramiko
import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from bedplate.cli.main import bedplate
from bedplate.decide.machine import COMMAND, PARTS, machine_subject, parse_machine
from bedplate.decide.rule import Weight
from bedplate.ledger.store import Ledger
from bedplate.model.faults import BadInput, DifferencesFound, NodesFailed
from bedplate.model.fleet import Node
from bedplate.model.layers import Layer
from bedplate.sources.site import open_site
from unit.rule_cases import found, model, refused
from unit.site_sample import FLEET, replace_in, write_site
from unit.sshd import Handler, run_with_sh, sshd

# As a B200 machine with branch 580 would answer; put together from the formats of its parts, not captured.
ANSWER = """
== packages
ii  base-files 13ubuntu10.3
rc  linux-image-6.8.0-100-generic 6.8.0-100.100
hi  linux-image-6.8.0-138-generic 6.8.0-138.138
ii  linux-modules-6.8.0-138-generic 6.8.0-138.138
ii  linux-modules-extra-6.8.0-138-generic 6.8.0-138.138
ii  linux-headers-6.8.0-138-generic 6.8.0-138.138
ii  linux-image-generic 6.8.0-138.138
ii  linux-headers-generic 6.8.0-138.138
ii  linux-image-6.8.0-137-generic 6.8.0-137.137
ii  nvidia-dkms-580-open 580.178.04-1ubuntu1
ii  nvidia-utils-580 580.178.04-1ubuntu1
ii  nvidia-fabricmanager 580.178.04-1
ii  nvlsm 2025.10.14-1
ii  infiniband-diags 50.0-2build2

== kernel
6.8.0-138-generic

== os
NAME="Ubuntu"
VERSION_ID="24.04"
VERSION_CODENAME=noble
ID=ubuntu

== driver
NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.178.04  Release Build  (dvs-builder@U22)
GCC version:  gcc version 13.3.0

== modules
ib_umad
mlx5_ib
nvidia

== serial
LAB-1

== product
HGX B200

== plugstack
required /usr/lib/x86_64-linux-gnu/slurm/spank_pyxis.so

== end
"""
NODE = Node(
    name="n1", serial="LAB-1", boot_mac="02:00:00:00:01:00", nic_macs=(), address="127.0.0.11", bmc_address="10.78.0.11",
    rack="r01", position=1, kind="gpu", partition=None, groups=("training",), line=3,
)  # fmt: skip


def judged(text: str) -> list[str]:
    return refused(found(machine_subject(NODE, parse_machine(text, "n1"), model())))


def test_a_machine_as_the_model_supports_it_has_nothing_to_say() -> None:
    findings = found(machine_subject(NODE, parse_machine(ANSWER, "n1"), model()))
    assert [str(finding) for finding in findings] == []


def test_what_a_machine_says_is_read() -> None:
    machine = parse_machine(ANSWER, "n1")
    assert machine.packages["linux-image-6.8.0-138-generic"] == "6.8.0-138.138"
    assert "linux-image-6.8.0-100-generic" not in machine.packages, "only its configuration is left"
    assert (machine.kernel, machine.distribution, machine.release) == ("6.8.0-138-generic", "ubuntu", "noble")
    assert (machine.driver, machine.serial, machine.product) == ("580.178.04", "LAB-1", "HGX B200")
    assert machine.modules == {"ib_umad", "mlx5_ib", "nvidia"}
    subject = machine_subject(NODE, machine, model())
    assert subject.packages["nvlsm"].layer is Layer.FABRIC
    assert subject.packages["nvidia-utils-580"].layer is Layer.DRIVER


CASES = [
    # an upgrade of libnvidia under a loaded module (shine-cluster#30)
    ("Module for x86_64  580.178.04", "Module for x86_64  580.126.09", [
        "n1: NVIDIA-LOADED: driver nvidia-dkms-580-open 580.178.04-1ubuntu1 is installed, kernel 6.8.0-138-generic runs the module 580.126.09: Driver/library version mismatch (reboot, once the kernel has the modules of the installed version)",
    ]),
    # nouveau was loaded first, and keeps the GPUs
    ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.178.04  Release Build  (dvs-builder@U22)\nGCC version:  gcc version 13.3.0\n\n== modules\nib_umad\nmlx5_ib\nnvidia\n", "== modules\nib_umad\nmlx5_ib\nnouveau\n", [
        "n1: NVIDIA-LOADED: driver nvidia-dkms-580-open 580.178.04-1ubuntu1 is installed, kernel 6.8.0-138-generic has given the GPUs to nouveau (blacklist nouveau (options nouveau modeset=0), update-initramfs -u, reboot)",
    ]),
    # no nvidia-smi: everything that asks the driver finds no GPUs
    ("ii  nvidia-utils-580 580.178.04-1ubuntu1\n", "", [
        "n1: NVIDIA-COMPLETE: hardware hgx-b200 has 8 GPUs, driver has no nvidia-utils-580: nvidia-smi is in it (ask for nvidia-utils-580 at 580.178.04-1ubuntu1)",
    ]),
    # ib_umad is not loaded (gpu-operator#2781, CanvOS#700, siderolabs#717)
    ("ib_umad\n", "", [
        "n1: NVIDIA-NVLSM: hardware hgx-b200 has NVSwitches of generation 4, kernel 6.8.0-138-generic has not loaded ib_umad: Fabric Manager cannot start (modprobe ib_umad, and write it to /etc/modules-load.d; where modprobe does not find it, the kernel lacks linux-modules-extra)",
    ]),
    # mlx5_ib is not loaded: nothing fails, and nothing works (gpu-operator#2781)
    ("mlx5_ib\n", "", [
        'n1: NVIDIA-NVLSM: hardware hgx-b200 has NVSwitches of generation 4, kernel 6.8.0-138-generic has not loaded mlx5_ib: Fabric Manager starts as on a "Pre-NVL5 system", and the fabric stays "In Progress" (modprobe mlx5_ib, and write it to /etc/modules-load.d; where modprobe does not find it, the kernel lacks linux-modules-extra)',
    ]),
    ("ii  linux-modules-extra-6.8.0-138-generic 6.8.0-138.138\n", "", [
        "n1: KERNEL-SET: kernel linux-image-6.8.0-138-generic 6.8.0-138.138 without linux-modules-extra-6.8.0-138-generic (ask for linux-modules-extra-6.8.0-138-generic in the layer kernel, at the same version)",
    ]),
    ("nvidia-fabricmanager 580.178.04-1", "nvidia-fabricmanager 580.126.09-1", [
        "n1: NVIDIA-FM-EXACT: fabric nvidia-fabricmanager 580.126.09-1 is not of the version of driver nvidia-dkms-580-open 580.178.04-1ubuntu1; Fabric Manager refuses any other driver (ask for nvidia-fabricmanager at 580.178.04, by name: as a dependency the newest one comes)",
    ]),
    # Ubuntu's archive has Fabric Manager of the -server driver under this name
    ("nvidia-fabricmanager 580.178.04-1", "nvidia-fabricmanager-580 580.178.04-0ubuntu0.24.04.1", [
        "n1: NVIDIA-FLAVOUR: fabric nvidia-fabricmanager-580 580.178.04-0ubuntu0.24.04.1 is of Ubuntu's -server packages, driver nvidia-dkms-580-open 580.178.04-1ubuntu1 of NVIDIA's repository (take all of them from one: NVIDIA's has nvlsm and libnvsdm, Ubuntu's archive has not)",
    ]),
    ("LAB-1\n", "LAB-9\n", [
        "n1: HARDWARE-SERIAL: hardware says serial number LAB-9, nodes.csv says LAB-1 (another machine has this address, or nodes.csv is wrong: correct it before anything is changed)",
    ]),
    ("=noble", "=jammy", [
        "n1: HARDWARE-SUPPORT: os ubuntu jammy is outside of what hardware hgx-b200 supports: ubuntu noble (DGX OS 7 is Ubuntu 24.04 (NVIDIA/deepops#1392); unverified) (ask for a version of the list, or write an exception with a name and a reason)",
    ]),
    # what Pyxis' own package does; without the file jobs run on the host
    ("required /usr/lib/x86_64-linux-gnu/slurm/spank_pyxis.so", "include /etc/slurm/plugstack.conf.d/*.conf", [
        'n1: PLUGSTACK-INCLUDE: scheduler plugstack "include /etc/slurm/plugstack.conf.d/*.conf": configless nodes are not given the file, and a container job runs on the host, with exit code 0 (write the lines of that file into plugstack.conf itself)',
    ]),
    ("required /usr", "optional /usr", [
        'n1: PYXIS-REQUIRED: scheduler plugstack "optional /usr/lib/x86_64-linux-gnu/slurm/spank_pyxis.so": a container job runs on the host, with exit code 0, when the plug-in does not fit (write required instead of optional)',
    ]),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "expected"), CASES, ids=[case[2][0].split(":")[1].strip() for case in CASES])
def test_what_is_wrong_on_a_machine_is_told(old: str, new: str, expected: list[str]) -> None:
    assert old in ANSWER
    assert judged(ANSWER.replace(old, new)) == expected


@pytest.mark.parametrize(
    ("old", "new", "rule"),
    [("LAB-1\n", "", "HARDWARE-SERIAL"), ("LAB-1\n", "To Be Filled By O.E.M.\n", "HARDWARE-SERIAL"), ("NVRM version", "x", "NVIDIA-LOADED")],
)  # fmt: skip
def test_what_a_machine_does_not_say_is_unknown(old: str, new: str, rule: str) -> None:
    text = ANSWER.replace(old, new).replace("Open Kernel Module for" if new == "x" else "\0", "")
    findings = found(machine_subject(NODE, parse_machine(text, "n1"), model()))
    assert [(finding.rule, finding.weight) for finding in findings] == [(rule, Weight.UNKNOWN)]


def test_an_answer_that_is_cut_anywhere_is_no_answer() -> None:
    for length in range(len(ANSWER.rstrip())):
        with pytest.raises(BadInput):
            parse_machine(ANSWER[:length], "n1")


@given(st.text(max_size=300))
def test_no_answer_gets_anything_out_of_the_reader_but_bad_input(text: str) -> None:
    for answer in (text, ANSWER.replace("ii  nvlsm", text)):
        with contextlib.suppress(BadInput):
            parse_machine(answer, "n1")


def test_the_command_runs_on_a_machine_of_any_kind() -> None:
    done = subprocess.run(["sh", "-c", COMMAND], stdout=subprocess.PIPE, text=True, check=True)
    assert [line[3:] for line in done.stdout.splitlines() if line.startswith("== ")] == list(PARTS)
    assert parse_machine(done.stdout, "here").packages


# --- the command, over ssh ------------------------------------------------------------------------


def site(root: Path, port: int, known_hosts: Path, identity: Path) -> Path:
    write_site(root)
    text = FLEET.replace("10.77.0.0/24", "127.0.0.0/24").replace("10.77.0.1", "127.0.0.1")
    text = text.replace("port: 22", f"port: {port}").replace("/root/.ssh/id_ed25519", str(identity))
    (root / "fleet.yml").write_text(text)
    (root / "known_hosts").write_text(known_hosts.read_text())
    for old, new in (("stand_in: true", "nvswitch_generation: 4"), ("gpus: 8", "secure_boot: false\ngpus: 8")):
        replace_in(root / "models/lab-gpu8.yml", old, new)
    return root


def check_node(root: Path, *words: str) -> Result:
    return CliRunner().invoke(bedplate, ["--site", str(root), "check", "node", *words], standalone_mode=False)


def answering(folder: Path, text: str) -> Handler:
    """A machine that has only one answer, for only one command."""
    (folder / "answer").write_text(text)

    def handle(channel: paramiko.Channel, command: str) -> None:
        run_with_sh(channel, f"cat {folder}/answer" if command == COMMAND else "exit 99")

    return handle


@pytest.mark.parametrize(
    ("text", "raised", "verdict"),
    [
        (ANSWER, None, "PASS"),
        (ANSWER.replace("ib_umad\n", ""), DifferencesFound, "FAIL"),
        (ANSWER.replace("LAB-1", "none"), NodesFailed, "UNKNOWN"),
        (ANSWER.replace("== end", ""), NodesFailed, "NO ANSWER"),
    ],
)  # fmt: skip
def test_a_machine_is_examined_over_ssh_and_the_ledger_has_it(
    tmp_path: Path, text: str, raised: type[Exception] | None, verdict: str
) -> None:
    with sshd(tmp_path / "sshd", answering(tmp_path, text), address="127.0.0.11") as server:
        root = site(tmp_path / "site", server.port, server.known_hosts, server.identity_file)
        result = check_node(root, "n1", "--json")
    assert (type(result.exception) if result.exception else None) is raised
    assert json.loads(result.stdout)["nodes"]["n1"]["verdict"] == verdict
    with Ledger.read(open_site(root).ledger_url) as ledger:
        (event,) = list(ledger.events(kinds=["node.examined"]))
    assert event.subjects == ("node:n1",)
    assert event.body["verdict"] == verdict


def test_a_machine_that_cannot_be_reached_has_an_exit_code_of_its_own_and_a_record(tmp_path: Path) -> None:
    with sshd(tmp_path / "sshd", address="127.0.0.11") as server:
        root = site(tmp_path / "site", server.port, server.known_hosts, server.identity_file)
    result = check_node(root, "n1")
    assert isinstance(result.exception, NodesFailed)
    assert result.exception.exit_code == 4
    assert str(result.exception) == "n1: no answer; nothing is known of what is installed there"
    assert "NO ANSWER" in result.stdout
    with Ledger.read(open_site(root).ledger_url) as ledger:
        assert [event.body["verdict"] for event in ledger.events(kinds=["node.examined"])] == ["NO ANSWER"]


def test_options_of_check_are_not_taken_silently_by_check_node(tmp_path: Path) -> None:
    root = write_site(tmp_path / "site")
    result = CliRunner().invoke(
        bedplate, ["--site", str(root), "check", "--online", "node", "n1"], standalone_mode=False
    )
    assert isinstance(result.exception, BadInput)
