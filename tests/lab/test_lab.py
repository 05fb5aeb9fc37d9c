"""The lab does what other tests take for granted: real hosts, one source of packages, a registry, no way out."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import pytest

from bedplate.model.faults import BadInput, Busy, Refused
from bedplate.process import Finished, run
from lab import faults, lifecycle, machine, network, record
from lab.places import Places, places
from lab.registry import ADDRESS, BASE_REPOSITORY, USER
from lab.run import on
from lab.standins import LABEL
from lab.steps import Steps

pytestmark = pytest.mark.lab(minutes=4)
PATIENCE_S = 300.0  # seconds are expected; a machine with other work takes a minute

SOURCE = """\
Types: deb
URIs: http://archive.lab:8080/
Suites: {suite}
Components: main
Signed-By: /etc/apt/keyrings/lab.asc
"""
COPY_KEY = "ssh $1 mkdir -p /etc/apt/keyrings && scp -q $BEDPLATE_SITE/keys/archive.asc $1:/etc/apt/keyrings/lab.asc"
DRIVER = ("nvidia-driver-{}-open", "nvidia-dkms-{}-open", "nvidia-utils-{}", "nvidia-compute-utils-{}",
          "libnvidia-compute-{}")  # fmt: skip
GENERATIONS = {
    "a": (*(f"{name.format('570')}=570.133.20-0ubuntu1" for name in DRIVER),
          "nvidia-fabricmanager-570=570.133.20-1", "numactl=2.0.16-1", "libnuma1=2.0.16-1"),
    "b": (*(f"{name.format('580')}=580.126.20-1ubuntu1" for name in DRIVER),
          "nvidia-fabricmanager=580.126.20-1", "numactl", "libnuma1"),
}  # fmt: skip


def command(*words: str, environment: Mapping[str, str] | None = None) -> Finished:
    """`bedplate lab ...` as a person runs it."""
    program = [sys.executable, "-c", "from bedplate.cli.main import main; main()", "lab", *words]
    return run(program, check=False, env={**os.environ, **(environment or {})})


def use_suite(node: str, suite: str) -> None:
    on(
        "ctl",
        [
            "sh",
            "-c",
            COPY_KEY,
            "sh",
            node,
        ],
    )
    on(node, ["tee", "/etc/apt/sources.list.d/lab.sources"], stdin=SOURCE.format(suite=suite))
    on(node, ["apt-get", "-qq", "update"])


def install(node: str, suite: str, *, check: bool = True) -> Finished:
    words = ["apt-get", "-qq", "-y", "--allow-downgrades", "install", *GENERATIONS[suite]]
    return on(node, words, environment={"DEBIAN_FRONTEND": "noninteractive"}, check=check)


# --- hosts ----------------------------------------------------------------------------------------


def test_every_host_runs_a_systemd_of_its_own_without_a_failed_unit(lab: Places) -> None:
    found = lifecycle.status(lab)
    assert found.state == "up"
    assert {state.state for state in found.hosts} == {"running"}
    names = {state.host: on(state.host, ["cat", "/proc/sys/kernel/hostname"]).out.strip() for state in found.hosts}
    assert names == {host: host for host in names}


def test_the_controller_reaches_nodes_by_ssh_with_strict_host_keys(lab: Places) -> None:
    assert on("ctl", ["ssh", "-o", "BatchMode=yes", "n1", "hostname"]).out == "n1\n"
    unknown = on("ctl", ["ssh", "-o", "BatchMode=yes", "-o", "UserKnownHostsFile=/dev/null", "n1", "true"], check=False)
    assert unknown.code == 255
    assert "Host key verification failed" in unknown.err


def test_each_host_has_its_own_host_key(lab: Places) -> None:
    keys = [on(host, ["cat", "/etc/ssh/ssh_host_ed25519_key.pub"]).out.split()[1] for host in ("ctl", "n1", "n2")]
    assert len(set(keys)) == 3


def test_hosts_have_no_way_out(lab: Places) -> None:
    for host in ("ctl", "n1"):
        assert on(host, ["ip", "-4", "route"]).out.split()[0] == "10.77.0.0/24"
        assert on(host, ["ip", "route", "get", "192.0.2.1"], check=False).code != 0


def test_nothing_of_a_lab_is_in_the_machines_own_network(lab: Places) -> None:
    assert "10.77.0." not in run(["ip", "address"]).out
    assert "10.77.0." not in run(["ip", "route"]).out


def test_a_node_reboots_and_comes_back(lab: Places) -> None:
    before = on("n3", ["cat", "/proc/sys/kernel/random/boot_id"]).out
    on("n3", ["systemctl", "reboot"], check=False)
    deadline = time.monotonic() + PATIENCE_S
    while True:
        way = machine.init_of(lab, "n3")
        now = on("n3", ["cat", "/proc/sys/kernel/random/boot_id"], check=False).out if way else before
        if now not in {before, ""} and on("n3", ["systemctl", "is-system-running"], check=False).out == "running\n":
            return
        assert time.monotonic() < deadline, f"n3 did not come back within {PATIENCE_S:.0f} s"
        time.sleep(0.5)


def test_the_controller_has_the_checkout_read_only_and_a_site_that_passes_the_check(lab: Places) -> None:
    assert on("ctl", ["touch", "/opt/bedplate/checkout/x"], check=False).code != 0
    checked = on("ctl", ["bedplate", "check", "--json"], check=False)
    assert checked.code == 0, checked.out + checked.err


def test_ansible_finds_the_fleet_without_being_told(lab: Places) -> None:
    inventory = json.loads(on("ctl", ["ansible-inventory", "--list"]).out)
    assert "n1" in inventory["_meta"]["hostvars"]


# --- archive --------------------------------------------------------------------------------------


def test_the_archive_is_the_only_source_of_packages(lab: Places) -> None:
    assert on("n1", ["sh", "-c", "cat /etc/apt/sources.list /etc/apt/sources.list.d/*"], check=False).out == ""
    use_suite("n1", "b")
    uris = set(on("n1", ["apt-get", "indextargets", "--format", "$(REPO_URI)"]).out.split())
    assert uris == {"http://archive.lab:8080/"}


def test_versions_lie_side_by_side_and_the_suffixed_fabric_manager_is_virtual(lab: Places) -> None:
    use_suite("n1", "b")
    listed = on("n1", ["apt-cache", "madison", "nvidia-fabricmanager"]).out
    assert [line.split("|")[1].strip() for line in listed.splitlines()] == [
        "590.48.01-1",
        "580.126.20-1",
        "580.105.08-1",
    ]
    virtual = on("n1", ["apt-get", "-s", "install", "nvidia-fabricmanager-580=580.126.20-1"], check=False)
    assert virtual.code != 0


def test_an_index_changed_after_signing_is_refused(lab: Places) -> None:
    use_suite("n1", "a")
    on("n1", ["sh", "-c", "rm -rf /var/lib/apt/lists/* && sed -i 's/^[A-Za-z0-9+]/x/' /etc/apt/keyrings/lab.asc"])
    assert on("n1", ["apt-get", "-qq", "update", "-o", "APT::Update::Error-Mode=any"], check=False).code != 0


@pytest.mark.parametrize("suite", ["a", "b"])
def test_a_suite_alone_resolves_where_nothing_is_installed(lab: Places, suite: str) -> None:
    use_suite("n1", suite)
    empty = ["-o", "Dir::State::status=/dev/null", "-o", "Debug::NoLocking=1"]
    planned = on("n1", ["apt-get", "-s", "-qq", *empty, "install", *GENERATIONS[suite]]).out
    assert {"libc6", "libgcc-s1", "gcc-14-base"} <= {
        line.split()[1] for line in planned.splitlines() if line[:4] == "Inst"
    }


def test_both_generations_install_upgrade_and_go_back(lab: Places) -> None:
    for suite, version in (("a", "570.133.20"), ("b", "580.126.20"), ("a", "570.133.20")):
        use_suite("n2", suite)
        install("n2", suite)
        on("n2", ["sh", "-c", "rm -rf /sys/module/nvidia*; modprobe nvidia"])  # as a reboot would
        on("n2", ["systemctl", "enable", "nvidia-fabricmanager"])
        on("n2", ["systemctl", "restart", "nvidia-fabricmanager"])
        assert on("n2", ["systemctl", "is-active", "nvidia-fabricmanager"]).out == "active\n"
        queried = on("n2", ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]).out.split()
        assert queried == [version] * 8
        manager = on("n2", ["nv-fabricmanager", "--version"]).out
        assert version in manager
        assert LABEL in manager
        installed = on("n2", ["dpkg-query", "-W", "-f", "${Package} ${Status} ${binary:Summary}\n", "nvidia-*"]).out
        present = [line for line in installed.splitlines() if " install ok installed " in line]
        assert len(present) == len(DRIVER)  # and Fabric Manager, without the library
        assert all(LABEL in line for line in present)
    assert on("n2", ["systemctl", "is-system-running"]).out == "running\n"


# --- registry, builder, importer --------------------------------------------------------------------


def test_the_registry_wants_a_password_and_has_a_certificate_that_the_controller_trusts(lab: Places) -> None:
    url = f"https://{ADDRESS}/v2/"
    ask = ["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}"]
    password = on("ctl", ["cat", "/root/.config/enroot/.credentials"]).out.split()[-1]
    assert on("ctl", [*ask, url]).out == "401"
    assert on("ctl", [*ask, "-u", f"{USER}:{password}", url]).out == "200"
    assert on("ctl", [*ask, "-u", f"{USER}:wrong", url]).out == "401"
    assert on("n1", [*ask, url], check=False).code == 60  # nodes do not know the certificate


def test_the_base_image_is_in_the_registry_under_the_digest_that_the_site_names(lab: Places) -> None:
    named = on(
        "ctl", ["sed", "-n", 's/.*digest: "\\(.*\\)".*/\\1/p', "/var/lib/bedplate/site/images/a/image.yml"]
    ).out.strip()
    raw = on("ctl", ["skopeo", "inspect", "--raw", f"docker://{ADDRESS}/{BASE_REPOSITORY}@{named}"]).out
    assert len(json.loads(raw)["layers"]) == 1


BUILD = f"""
set -eu
cd "$(mktemp -d)"
base=$(sed -n 's/^base: {{reference: "\\(.*\\)", digest: "\\(.*\\)"}}/\\1@\\2/p' "$BEDPLATE_SITE/images/a/image.yml")
buildah bud --quiet --isolation chroot --network host --timestamp 1700000000 --build-arg "BASE=$base" \
  --build-arg GREETING=hello --tag lab-test "$BEDPLATE_SITE/images/a" > /dev/null
skopeo copy --quiet --digestfile digest containers-storage:localhost/lab-test docker://{ADDRESS}/lab/test:1
for name in one two; do
  SOURCE_DATE_EPOCH=1700000000 enroot import --output $name.sqsh "docker://{ADDRESS}#lab/test@$(cat digest)" 2> log
  sleep 1.1
done
cmp one.sqsh two.sqsh
unsquashfs -cat one.sqsh opt/lab/greeting
"""


def test_an_image_is_built_pushed_and_imported_to_the_same_bytes_twice(lab: Places) -> None:
    assert on("ctl", ["sh", "-c", BUILD]).out == "hello\n"


def test_the_importer_says_that_it_is_a_stand_in_and_leaves_no_partial_file(lab: Places) -> None:
    assert on("ctl", ["enroot", "version"]).out == "4.1.2+lab-stand-in\n"
    digest = "sha256:" + "0" * 64
    failed = on(
        "ctl", ["enroot", "import", "-o", "/tmp/none.sqsh", f"docker://{ADDRESS}#lab/none@{digest}"], check=False
    )
    assert failed.code == 1
    assert LABEL in failed.err
    assert on("ctl", ["sh", "-c", "ls /tmp | grep none"], check=False).out == ""


# --- the command line -------------------------------------------------------------------------------


def test_status_says_what_there_is(lab: Places) -> None:
    said = command("status", "--json")
    assert said.code == 0, said.err
    document = json.loads(said.out)
    assert document["state"] == "up"
    assert document["hosts"][2]["address"] == "10.77.0.11"
    assert document["services"]["registry"]["runs"]
    assert Path(document["hosts"][0]["log"]).exists()


def test_shell_passes_words_output_and_exit_code_through(lab: Places) -> None:
    assert command("shell", "n1", "--", "sh", "-c", 'echo "$1"; exit 7', "sh", "a  b").code == 7
    said = command("shell", "--json", "--", "sh", "-c", 'echo "$BEDPLATE_SITE"; exit 3')
    assert said.code == 3
    assert json.loads(said.out)["out"] == "/var/lib/bedplate/site\n"
    assert command("shell", "n99", "--", "true").code == 2


def test_a_second_up_leaves_a_running_lab_alone_and_refuses_another_size(lab: Places) -> None:
    found = record.read(lab)
    assert found is not None
    assert lifecycle.up(lab, Steps(print), nodes=found.nodes, fresh=False) is False
    with pytest.raises(Refused, match="--fresh"):
        lifecycle.up(lab, Steps(print), nodes=found.nodes + 1, fresh=False)


def test_only_one_command_changes_a_lab_at_a_time(lab: Places) -> None:
    with lifecycle.turn(lab), pytest.raises(Busy, match="process"):
        lifecycle.down(lab, Steps(print), purge=False)
    with lifecycle.turn(lab):
        assert command("down").code == 6


# --- faults -----------------------------------------------------------------------------------------


@pytest.fixture
def broken(lab: Places, request: pytest.FixtureRequest) -> Iterator[str]:
    """Set a fault on n4; afterwards it is mended."""
    faults.apply(lab, "n4", request.param, mend=False)
    yield "n4"
    faults.apply(lab, "n4", request.param, mend=True)


SSH = ["ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=3"]


@pytest.mark.parametrize("broken", ["unreachable", "hung", "off"], indirect=True)
def test_a_node_that_is_gone_or_hangs_does_not_answer_until_it_is_mended(lab: Places, broken: str) -> None:
    asked = on("ctl", ["timeout", "5", *SSH, broken, "true"], check=False)
    assert asked.code in {124, 255}
    assert record.read(lab).faults["n4"]  # type: ignore[union-attr]
    assert lifecycle.status(lab).state == "up"  # broken on purpose is as it should be


@pytest.mark.parametrize("broken", ["disk-full"], indirect=True)
def test_a_full_disk_takes_no_package_and_no_image(broken: str) -> None:
    use_suite(broken, "a")
    assert "enough free space" in install(broken, "a", check=False).err
    written = on(
        broken,
        ["sh", "-c", "mkdir -p /var/lib/bedplate/images && head -c 9000 /dev/zero > /var/lib/bedplate/images/x"],
        check=False,
    )
    assert "No space left on device" in written.err


@pytest.mark.parametrize(
    ("broken", "state"), [("bad-package", "not-installed"), ("half-configured", "half-configured")], indirect=["broken"]
)
def test_a_bad_driver_package_fails_where_it_says(broken: str, state: str) -> None:
    use_suite(broken, "a")
    failed = install(broken, "a", check=False)
    assert failed.code != 0
    assert "failing on purpose" in failed.out + failed.err
    query = on(broken, ["dpkg-query", "-W", "-f", "${db:Status-Status}", "nvidia-driver-570-open"], check=False)
    assert (query.out or "not-installed") == state


@pytest.mark.parametrize("broken", ["wrong-file"], indirect=True)
def test_a_file_edited_by_hand_differs(broken: str) -> None:
    assert "by hand" in on(broken, ["cat", faults.TUNED_FILE]).out


def test_a_lost_image_comes_back_when_it_is_mended(lab: Places) -> None:
    on("n4", ["sh", "-c", f"mkdir -p {faults.IMAGES}; echo x > {faults.IMAGES}/sha256-00.sqsh"])
    faults.apply(lab, "n4", "no-artifact", mend=False)
    assert on("n4", ["ls", faults.IMAGES]).out == ""
    faults.apply(lab, "n4", "no-artifact", mend=True)
    assert on("n4", ["ls", faults.IMAGES]).out == "sha256-00.sqsh\n"
    on("n4", ["rm", f"{faults.IMAGES}/sha256-00.sqsh"])


def test_after_mending_everything_the_node_is_whole(lab: Places) -> None:
    assert on("ctl", [*SSH, "n4", "systemctl", "is-system-running"]).out == "running\n"
    assert not record.read(lab).faults  # type: ignore[union-attr]


def test_a_fault_that_is_not_there_is_not_mended_and_an_unknown_one_is_named(lab: Places) -> None:
    with pytest.raises(Refused, match="has no fault"):
        faults.apply(lab, "n1", "unreachable", mend=True)
    with pytest.raises(BadInput, match="unreachable"):
        faults.apply(lab, "n1", "gremlins", mend=False)
    with pytest.raises(BadInput, match="no node ctl"):
        faults.apply(lab, "ctl", "unreachable", mend=False)


# --- dying and coming back --------------------------------------------------------------------------


@pytest.fixture
def other(lab_places: Places, monkeypatch: pytest.MonkeyPatch) -> Iterator[Places]:
    """A third lab, to be killed."""
    monkeypatch.setenv("BEDPLATE_LAB_CACHE", str(lab_places.cache))
    monkeypatch.setenv("BEDPLATE_LAB", f"{lab_places.state}-dying")
    yield places()
    lifecycle.down(places(), Steps(print), purge=False)


def nothing_left(lab: Places) -> bool:
    return not (machine.programs(lab) or network.namespaces(lab) or machine.mounts_below(lab.live) or lab.live.exists())


MOMENTS: dict[str, Callable[[Places], bool]] = {
    "when it has just begun": lambda lab: lab.record.exists(),
    "when there are namespaces and no hosts": lambda lab: bool(network.namespaces(lab)),
    "when the first host starts": lambda lab: "n1" in machine.programs(lab),
    "while hosts boot": lambda lab: machine.init_of(lab, "n3") is not None,
}


SIGNALS = [
    *((signal.SIGKILL, moment) for moment in MOMENTS),
    (signal.SIGINT, "while hosts boot"),
    (signal.SIGTERM, "when there are namespaces and no hosts"),
]


@pytest.mark.parametrize(("number", "moment"), SIGNALS, ids=lambda value: getattr(value, "name", value))
def test_an_up_that_is_ended_leaves_nothing_or_what_down_finds(
    other: Places, moment: str, number: signal.Signals
) -> None:
    # A shell that starts jobs in the background ignores SIGINT for them, and children inherit that.
    program = ["env", "--default-signal=INT", sys.executable, "-m", "bedplate", "lab", "up", "--nodes", "3"]
    with subprocess.Popen(program, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as started:
        deadline = time.monotonic() + PATIENCE_S
        while not MOMENTS[moment](other):
            assert started.poll() is None, "it came up before the moment was there"
            assert time.monotonic() < deadline
            time.sleep(0.005)
        started.send_signal(number)
        code = started.wait(PATIENCE_S)
    if number == signal.SIGKILL:
        assert code == -signal.SIGKILL
        assert not nothing_left(other)
        assert command("status").code == 4
        lifecycle.down(other, Steps(print), purge=False)
    else:
        assert code == 128 + number
    assert nothing_left(other)


def test_up_after_hosts_were_killed_with_9_starts_a_whole_lab(other: Places) -> None:
    lifecycle.up(other, Steps(print), nodes=3, fresh=False)
    for host in ("ctl", "n2"):
        for pid in machine.pids(other, host):
            with suppress(OSError):  # gone meanwhile
                name = Path(f"/proc/{pid}/comm").read_text().strip()
                if name in {"systemd-nspawn", "runhost"}:  # the host's own systemd lives on, an orphan
                    os.kill(pid, signal.SIGKILL)
    time.sleep(0.3)
    lifecycle.down(other, Steps(print), purge=False)
    assert nothing_left(other)
    assert lifecycle.up(other, Steps(print), nodes=3, fresh=False) is True
    assert lifecycle.status(other).state == "up"


def test_a_host_that_is_off_makes_the_lab_broken_and_up_starts_anew(other: Places) -> None:
    lifecycle.up(other, Steps(print), nodes=3, fresh=False)
    machine.power_off(other, ["n2"], patience_s=10)
    assert lifecycle.status(other).state == "broken"
    assert lifecycle.up(other, Steps(print), nodes=3, fresh=False) is True
    assert lifecycle.status(other).state == "up"


def test_a_name_belongs_to_one_lab(lab: Places, tmp_path: Path) -> None:
    twin = Places(tmp_path, lab.name, lab.cache)
    with pytest.raises(Refused, match=lab.name):
        lifecycle.down(twin, Steps(print), purge=False)
    assert lifecycle.status(lab).state == "up"
