"""The roles of the host layers on hosts: check mode foretells, a second time changes nothing, failures are named.

One node, n1, carries most of it; the services host has the receiver of logs and the registry. Environments of their
own, without scheduler and image: those are looked at elsewhere.
"""

import re
from pathlib import Path

import pytest

from bedplate.process import Finished, run
from lab.places import Places
from lab.run import on

pytestmark = pytest.mark.lab(minutes=10)
CTL, NODE, SERVICES = "ctl", "n1", "svc"
SITE = "/var/lib/bedplate/site"
OLD, NEW = "570.133.20", "580.126.20"
ELSEWHERE = '{unmanaged: "looked at elsewhere"}'

# What apt's timers do to a converge: dpkg's lock is held, here until an apt-get has waited for it.
APT_IS_BUSY = """
import fcntl, subprocess, time
lock = open("/var/lib/dpkg/lock-frontend", "w")
fcntl.lockf(lock, fcntl.LOCK_EX)
waited = 0
for _ in range(600):
    waited = waited + 1 if subprocess.run(["pgrep", "-x", "apt-get"]).returncode == 0 else 0
    if waited == 5:
        print("5 s", file=open("/run/lab-apt-waited", "w"))
        break
    time.sleep(1)
"""

# name -> (of which environment, the lines that are other ones)
ENVIRONMENTS: dict[str, tuple[str, dict[str, str]]] = {
    "H1": ("A", {"values: {": 'values: {storage_material: "/srv/material", storage_runs: "/srv/runs", '
                              'storage_type: "none", storage_options: "bind", '}),
    "H2": ("B", {"nvlsm: ": 'doca-ofed: "3.2.3", mlnx-ofed-kernel-dkms: "25.10.OFED.25.10.1.7.1.1", nvlsm: '}),
    "HS": ("S", {'{unmanaged: "no container runs here"}': '{packages: {docker-registry: "VERSION"}}',
                 "chrony: ": 'aptly: "VERSION", gpg: "VERSION", nginx: "VERSION", chrony: '}),
    "FM": ("B", {'nvidia-fabricmanager: "580.126.20"': 'nvidia-fabricmanager: "590.48.01"'}),
    "META": ("B", {'nvidia-fabricmanager: "580.126.20", libnvidia-nscq: "580.126.20", libnvsdm: "580.126.20"':
                   'nvlink5-580: "580.126.20"'}),
    "ABSENT": ("B", {'nvidia-driver-580-open: "580.126.20"': 'nvidia-driver-580-open: "580.999.1"'}),
}  # fmt: skip


def bedplate(*words: str) -> Finished:
    return on(CTL, ["bedplate", *words], check=False, timeout_s=900)


def playbook(name: str, target: str, *words: str, node: str = NODE, check: bool = True) -> str:
    command = ["ansible-playbook", f"playbooks/{name}.yml", "-e", f"target={target}", "--limit", node, *words]
    done = on(CTL, command, check=False, timeout_s=1800)
    assert not check or done.code == 0, done.out[-4000:] + done.err[-2000:]
    return done.out + done.err


def changed(output: str) -> list[str]:
    """The tasks that changed something, or would have."""
    tasks = re.split(r"^TASK \[", output, flags=re.MULTILINE)[1:]
    return [task.partition("]")[0] for task in tasks if re.search(r"^changed: \[", task, re.MULTILINE)]


def cat(path: str, node: str = NODE) -> str:
    return on(node, ["cat", path]).out


def shell(script: str, node: str = NODE) -> Finished:
    return on(node, ["sh", "-euc", script], check=False, timeout_s=120)


@pytest.fixture(scope="module")
def site(lab: Places, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The environments, and what an operator puts beside them."""
    versions = _versions()
    for name, (of, changes) in ENVIRONMENTS.items():
        text = cat(f"{SITE}/environments/{of}.yml", CTL)
        for before, after in changes.items():
            assert before in text, (name, before)
            text = text.replace(before, after, 1)
        text = text.replace(f"environment: {of}\n", f"environment: {name}\n")
        text = re.sub(r"^  (scheduler|image): .*$", rf"  \1: {ELSEWHERE}", text, flags=re.MULTILINE)
        text = re.sub(r'([a-z-]+): "VERSION"', lambda found: f'{found[1]}: "{versions[found[1]]}"', text)
        on(CTL, ["tee", f"{SITE}/environments/{name}.yml"], stdin=text)
    for path, text in _secrets(tmp_path_factory.mktemp("secrets")).items():
        on(CTL, ["mkdir", "-p", f"{SITE}/secrets/registry"])
        on(CTL, ["tee", f"{SITE}/secrets/registry/{path}"], stdin=text)
    for name in ("H1", "H2", "HS"):
        locked = bedplate("lock", name)
        assert locked.code == 0, locked.out + locked.err
    # What a plain installation brings, and what the site put into Docker's configuration before.
    source = "Types: deb\nURIs: http://archive.lab:8080/\nSuites: a\nComponents: main\nTrusted: yes\n"
    on(NODE, ["tee", "/etc/apt/sources.list.d/first.sources"], stdin=source)
    assert shell("apt-get -qq update; apt-get -qq -y install unattended-upgrades needrestart").code == 0
    on(NODE, ["mkdir", "-p", "/etc/docker", "/etc/cdi", "/srv/material", "/srv/runs"])
    on(
        NODE,
        ["tee", "/etc/docker/daemon.json"],
        stdin='{"log-opts": {"max-size": "10m"}, "features": {"buildkit": true}}',
    )
    on(NODE, ["tee", "/etc/cdi/nvidia.yaml"], stdin="stale\n")


def _versions() -> dict[str, str]:
    """The version of each package of the archive; of several, any."""
    listed = on(
        CTL, ["sh", "-c", "curl -s http://archive.lab:8080/dists/a/main/binary-$(dpkg --print-architecture)/Packages"]
    ).out
    return dict(re.findall(r"^Package: (\S+)$.*?^Version: (\S+)$", listed, re.MULTILINE | re.DOTALL))


def _secrets(work: Path) -> dict[str, str]:
    run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
         "-keyout", work / "registry.key", "-out", work / "registry.crt", "-subj", "/CN=svc"])  # fmt: skip
    return {
        "registry.key": (work / "registry.key").read_text(), "registry.crt": (work / "registry.crt").read_text(),
        "htpasswd": run(["htpasswd", "-niB", "bedplate"], stdin="secret").out,
    }  # fmt: skip


# --- what is refused before any node is touched -------------------------------------------------------


@pytest.mark.parametrize(
    ("environment", "rule"),
    [("FM", "NVIDIA-FM-EXACT"), ("META", "NVIDIA-FM-EXACT")],
    ids=["another FM", "a metapackage"],
)
def test_a_fabric_manager_of_another_version_is_refused_when_it_is_locked(
    site: None, environment: str, rule: str
) -> None:
    """A metapackage's `>=` brings the newest Fabric Manager (NVIDIA/gpu-driver-container#735)."""
    refused = bedplate("lock", environment)
    assert refused.code != 0
    said = refused.out + refused.err
    assert rule in said
    assert "590.48.01" in said


def test_an_absent_version_is_refused_with_those_that_are_there(site: None) -> None:
    refused = bedplate("lock", "ABSENT")
    assert refused.code != 0
    assert "no version 580.999.1" in refused.err + refused.out
    assert "580.126.20-1ubuntu1" in refused.err + refused.out


# --- a bare node ------------------------------------------------------------------------------------


def test_check_mode_on_a_bare_node_foretells_what_converge_does(site: None) -> None:
    foretold = playbook("rollout", "H1", "--check", "--diff")
    assert "+nvidia-driver-570-open=570.133.20-0ubuntu1 held" in foretold
    assert "-needrestart=" in foretold
    assert shell("command -v nvidia-smi").code != 0, "check mode installed something"
    assert shell("test -e /etc/bedplate/node.conf").code != 0, "check mode wrote something"
    assert changed(playbook("rollout", "H1")) == changed(foretold)


def test_a_second_converge_and_check_mode_change_nothing(site: None) -> None:
    assert changed(playbook("site", "H1")) == []
    assert changed(playbook("site", "H1", "--check", "--diff")) == []


def test_keys_of_docker_that_the_site_put_there_survive(site: None) -> None:
    daemon = cat("/etc/docker/daemon.json")
    assert '"max-size": "10m"' in daemon
    assert '"buildkit": true' in daemon
    assert '"containerd-snapshotter": true' in daemon
    assert on(NODE, ["docker", "info"]).code == 0


def test_device_files_are_there_before_the_cdi_specification_that_lists_them(site: None) -> None:
    assert shell("test ! -e /etc/cdi/nvidia.yaml").code == 0, "a static specification goes stale"
    shell("systemctl start nvidia-cdi-refresh.service")
    assert "/dev/nvidia-uvm" in cat("/run/cdi/nvidia.yaml")
    before = on(NODE, ["systemctl", "show", "-p", "Before", "bedplate-gpu-nodes.service"]).out
    assert {"nvidia-cdi-refresh.service", "docker.service", "slurmd.service"} <= set(before.partition("=")[2].split())
    after = on(NODE, ["systemctl", "show", "-p", "After", "docker.service"]).out
    assert "nvidia-cdi-refresh.service" in after.partition("=")[2].split(), "a container may start before it"


def test_nothing_changes_a_node_by_itself(site: None) -> None:
    assert shell("dpkg -s unattended-upgrades needrestart").code != 0
    timers = on(NODE, ["systemctl", "is-enabled", "apt-daily.timer", "apt-daily-upgrade.timer"], check=False).out
    assert timers.split() == ["masked", "masked"]


def test_nvlsm_is_started_by_the_vendors_own_script(site: None) -> None:
    assert shell("systemctl cat nvlsm.service").code != 0
    assert "nvlsm" in on(NODE, ["systemctl", "status", "--no-pager", "nvidia-fabricmanager"]).out
    assert (
        "Completed, Success"
        in on(NODE, ["nvidia-smi", "--query-gpu=fabric.state,fabric.status", "--format=csv,noheader"]).out
    )


# --- drift and repair -------------------------------------------------------------------------------


def test_what_was_upgraded_behind_our_back_is_found_and_repaired(site: None) -> None:
    """NVIDIA's "Driver/library version mismatch" after an unattended upgrade, which Fabric Manager takes part in."""
    upgraded = shell(
        "rm -f /etc/apt/preferences.d/bedplate.pref; apt-mark -qq unhold 'nvidia-*' 'libnvidia-*' > /dev/null;"
        "apt-get -qq -y install libnvidia-compute-570=570.172.08-0ubuntu1 nvidia-utils-570=570.172.08-0ubuntu1 "
        "nvidia-driver-570-open=570.172.08-0ubuntu1 nvidia-dkms-570-open=570.172.08-0ubuntu1 "
        "nvidia-compute-utils-570=570.172.08-0ubuntu1 nvidia-fabricmanager-570=570.172.08-1"
    )
    assert upgraded.code == 0, upgraded.err
    assert "Driver/library version mismatch" in on(NODE, ["nvidia-smi"], check=False).out
    assert on(NODE, ["systemctl", "restart", "nvidia-fabricmanager"], check=False).code != 0
    assert f"version 570.172.08 don't match with driver version {OLD}" in cat("/var/log/fabricmanager.log")
    found = bedplate("verify", "H1", "--nodes", NODE)
    assert found.code == 5
    assert "libnvidia-ml is 570.172.08 (Driver/library version mismatch)" in found.out
    assert f"Fabric Manager is 570.172.08, the loaded driver is {OLD}" in found.out
    assert "not held: " in found.out
    assert "apt-get dist-upgrade would: Inst " in found.out
    playbook("site", "H1")
    assert bedplate("verify", "H1", "--nodes", NODE).code == 0


def test_a_package_pinned_and_held_at_another_version_is_repaired_and_held_again(site: None) -> None:
    """apt passes over a held package in silence, exit code 0; the pin is as nvidia-driver-pinning-580 leaves one."""
    assert shell("dpkg-query -W -f '${db:Status-Want}' nvlsm").out == "hold"
    pin = "/etc/apt/preferences.d/nvidia-driver-pin"
    on(NODE, ["tee", pin], stdin="Package: nvlsm\nPin: version 2025.10.14-*\nPin-Priority: 1002\n")
    shell(
        "apt-mark -qq unhold nvlsm;"
        "sed -i 's/^Suites: .*/Suites: b/' /etc/apt/sources.list.d/bedplate.sources; apt-get -qq update;"
        "apt-get -qq -y install nvlsm; apt-mark -qq hold nvlsm"
    )
    assert "2025.10.14-1" in shell("dpkg-query -W nvlsm").out
    assert f"pins beside the lock: {pin}" in bedplate("verify", "H1", "--nodes", NODE).out
    on(
        NODE,
        ["systemd-run", "--quiet", "--collect", "python3", "-c", APT_IS_BUSY],
    )
    playbook("site", "H1")
    assert shell("cat /run/lab-apt-waited").out == "5 s\n"
    assert shell("dpkg-query -W -f '${Version} ${db:Status-Want}' nvlsm").out == "2025.06.11-1 hold"
    assert on(NODE, ["ls", "/etc/apt/preferences.d"]).out == "bedplate.pref\n"


def test_without_mlx5_ib_the_node_is_taken_for_another_one_and_verification_and_role_say_so(site: None) -> None:
    """Fabric Manager runs all the same, without NVLSM: the fabric stays "In Progress" on every GPU."""
    place = "/usr/local/lib/lab-kernel/modules/mlx5_ib"
    shell(f"mv {place} {place}.away; rm -r /sys/module/mlx5_ib /sys/class/infiniband/mlx5_*")
    try:
        on(NODE, ["systemctl", "restart", "nvidia-fabricmanager"])
        journal = on(NODE, ["journalctl", "-u", "nvidia-fabricmanager", "-n", "20", "--no-pager"]).out
        assert "Detected Pre-NVL5 system" in journal
        found = bedplate("verify", "H1", "--nodes", NODE).out
        assert "not loaded: mlx5_ib" in found
        assert "fabric of 8 GPUs: In Progress, N/A" in found
        refused = playbook("site", "H1", check=False)
        assert "kernel module mlx5_ib, which Fabric Manager (it starts NVLSM) needs, cannot be loaded" in refused
    finally:
        shell(f"mv {place}.away {place}; modprobe mlx5_ib; systemctl restart nvidia-fabricmanager")
    assert bedplate("verify", "H1", "--nodes", NODE).code == 0


def test_a_kernel_module_that_is_missing_is_named_by_verification_and_by_the_role(site: None) -> None:
    """NVIDIA/gpu-operator#2781: without ib_umad the fabric stays "In Progress" while nvidia-smi looks healthy."""
    place = "/usr/local/lib/lab-kernel/modules/ib_umad"
    shell(f"mv {place} {place}.away; rm -r /sys/module/ib_umad")
    try:
        failed = on(NODE, ["systemctl", "restart", "nvidia-fabricmanager"], check=False)
        assert failed.code != 0
        journal = on(NODE, ["journalctl", "-u", "nvidia-fabricmanager", "-n", "20", "--no-pager"]).out
        assert 'Kernel module "ib_umad" has not been loaded, fabric manager cannot be started' in journal
        assert "not loaded: ib_umad" in bedplate("verify", "H1", "--nodes", NODE).out
        refused = playbook("site", "H1", check=False)
        assert "kernel module ib_umad, which Fabric Manager (it starts NVLSM) needs, cannot be loaded" in refused
    finally:
        shell(f"mv {place}.away {place}")
    playbook("site", "H1")
    assert bedplate("verify", "H1", "--nodes", NODE).code == 0


# --- upgrade ----------------------------------------------------------------------------------------


def test_a_package_that_the_upgrade_would_remove_is_refused_before_the_node_changes(site: None) -> None:
    control = "Package: site-tool\nVersion: 1\nArchitecture: all\nMaintainer: x <x@x.invalid>\n"
    control += "Depends: nvidia-driver-570-open\nDescription: something that the site installed\n"
    on(NODE, ["mkdir", "-p", "/tmp/site-tool/DEBIAN"])
    on(NODE, ["tee", "/tmp/site-tool/DEBIAN/control"], stdin=control)
    assert shell("dpkg-deb -b /tmp/site-tool /tmp/site-tool.deb && dpkg -i /tmp/site-tool.deb").code == 0
    refused = playbook("rollout", "H2", check=False)
    assert "apt would change what is not of the lock" in refused
    assert "site-tool 1 -> removed (not in the lock)" in refused
    assert OLD in cat("/sys/module/nvidia/version")
    assert shell("dpkg-query -W nvidia-driver-570-open").out.split()[1].startswith(OLD)
    assert shell("dpkg -P site-tool").code == 0


def test_an_upgrade_to_another_branch_boots_once_and_ends_with_one_version(site: None) -> None:
    before = cat("/proc/sys/kernel/random/boot_id")
    foretold = playbook("rollout", "H2", "--check", "--diff")
    assert cat("/proc/sys/kernel/random/boot_id") == before
    done = playbook("rollout", "H2")
    assert "Reboot" in changed(foretold)
    assert "Reboot" in changed(done)
    assert cat("/proc/sys/kernel/random/boot_id") != before
    assert cat("/sys/module/nvidia/version").strip() == NEW
    assert cat("/sys/module/nvidia_peermem/version").strip() == NEW, "there is an OFED"
    assert NEW in on(NODE, ["nv-fabricmanager", "--version"]).out
    packages = on(NODE, ["dpkg-query", "-W", "-f", "${Package} ${db:Status-Abbrev}\n"]).out
    assert not re.search(r"-570\S* i", packages), "the other branch is gone"
    assert changed(playbook("site", "H2")) == []


# --- the services host ------------------------------------------------------------------------------


def test_the_services_host_keeps_logs_images_and_packages_on_its_management_address(site: None) -> None:
    playbook("rollout", "HS", node=SERVICES)
    assert changed(playbook("site", "HS", node=SERVICES)) == []
    listening = {line.split()[3] for line in on(SERVICES, ["ss", "-ltnH"]).out.splitlines()}
    assert {"10.77.0.9:5000", "10.77.0.9:10514", "10.77.0.9:8080"} <= listening
    assert not [name for name in listening if re.search(r"^(\*|0\.0\.0\.0|\[::\]):(5000|10514|8080|80)$", name)]
    ask = ["curl", "-sk", "-o", "/dev/null", "-w", "%{http_code}", "https://svc:5000/v2/"]
    assert on(CTL, ask).out == "401"
    assert on(CTL, [*ask, "-u", "bedplate:secret"]).out == "200"


@pytest.mark.parametrize(
    ("path", "more", "answer"),
    [
        ("pool/x.deb", [], "200"),
        ("pool/.x.deb.part", [], "404"),
        ("../gnupg/private", ["--path-as-is"], "400"),
        ("pool/link", [], "403"),
        ("pool/new.deb", ["-T", "/etc/hostname"], "403"),
    ],
    ids=["a package", "what is not whole yet", "the signing key", "a link out of it", "an upload"],
)
def test_the_archive_serves_packages_for_reading_and_nothing_else(
    site: None, path: str, more: list[str], answer: str
) -> None:
    script = (
        "cd /srv/archive; mkdir -p public/pool; echo x | tee public/pool/x.deb public/pool/.x.deb.part gnupg/private"
    )
    on(SERVICES, ["sh", "-c", f"{script}; ln -sf ../../gnupg/private public/pool/link"])
    ask = ["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", *more, f"http://svc:8080/{path}"]
    assert on(CTL, ask).out == answer
    key = on(SERVICES, ["stat", "-c", "%a", "/srv/archive/gnupg"]).out
    assert key.strip() == "700"


def test_a_nodes_logs_arrive_with_its_name_and_utc_time(site: None) -> None:
    shell("logger -t shown 'from the journal'; echo 'from Fabric Manager' >> /var/log/fabricmanager.log")
    script = "grep -h -e 'from the journal' -e 'from Fabric Manager' /var/log/bedplate/n1/*.log"
    wait = f"for i in $(seq 60); do test $({script} | wc -l) -ge 2 && break; sleep 1; done; {script}"
    lines = on(SERVICES, ["sh", "-c", wait], timeout_s=120).out.splitlines()
    assert len(lines) >= 2
    assert all(re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+\+00:00 n1 (shown|fabricmanager)", line) for line in lines)
