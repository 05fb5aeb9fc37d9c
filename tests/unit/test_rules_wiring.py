"""Where rules refuse: check, lock before anything is written, rollout before any node is touched."""

# ruff: noqa: E501  messages stand as they are printed

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from bedplate.act import lock as locks
from bedplate.act.rollout import Order, ready
from bedplate.cli.main import bedplate
from bedplate.decide.lockdoc import LockDocument, lock_text, parse_lock
from bedplate.decide.rules import all_rules
from bedplate.ledger.store import Ledger
from bedplate.model.canonical import sha256
from bedplate.model.event import Draft
from bedplate.model.faults import BadInput, Refused
from bedplate.sources.site import Site, open_site
from unit.apt_archive import Key, StubArchive
from unit.lock_sample import digest, document, set_at
from unit.simulation import record_lock
from unit.site_sample import ENVIRONMENT, replace_in, write_site
from unit.test_lock import serving

pytestmark = pytest.mark.slow  # every test starts programs


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return write_site(tmp_path / "site")


def run(root: Path, *words: str) -> Result:
    return CliRunner().invoke(bedplate, ["--site", str(root), *words], standalone_mode=False)


# --- check ----------------------------------------------------------------------------------------


def test_check_refuses_with_the_id_of_the_rule_at_the_line_that_asks(root: Path) -> None:
    replace_in(
        root / "environments/A.yml", 'nvidia-fabricmanager-570: "570.133.20"', 'nvidia-fabricmanager-570: "570.172.08"'
    )
    result = run(root, "check")
    assert isinstance(result.exception, BadInput)
    assert str(result.exception) == (
        "site/environments/A.yml:20: NVIDIA-FM-EXACT: fabric nvidia-fabricmanager-570 570.172.08 is not of the version of"
        " driver nvidia-driver-570-open 570.133.20; Fabric Manager refuses any other driver"
        " (ask for nvidia-fabricmanager-570 at 570.133.20, by name: as a dependency the newest one comes)"
    )


def test_check_prints_findings_of_rules_as_json(root: Path) -> None:
    replace_in(root / "environments/A.yml", "nvidia-fabricmanager-570:", "nvidia-fabricmanager:")
    result = run(root, "check", "--json")
    said = json.loads(result.stdout)
    assert result.return_value == 2
    assert {finding["rule"] for finding in said["rules"] if finding["weight"] == "fault"} == {"NVIDIA-NAMES"}
    assert [fault["found"].split(":")[0] for fault in said["faults"]] == ["NVIDIA-NAMES"]


def test_check_lists_every_rule_with_its_layers_and_source(root: Path) -> None:
    lines = run(root, "check", "--rules").output.splitlines()
    assert [line.split("\t")[0] for line in lines[1:]] == [rule.id for rule in all_rules()]
    rules = json.loads(run(root, "check", "--rules", "--json").output)["rules"]
    assert all(rule["layers"] and rule["source"] and rule["what"] for rule in rules)


def test_an_exception_that_holds_is_shown_by_check(root: Path) -> None:
    replace_in(
        root / "environments/A.yml", 'nvidia-fabricmanager-570: "570.133.20"', 'nvidia-fabricmanager-570: "570.172.08"'
    )
    path = root / "environments/A.yml"
    path.write_text(
        path.read_text() + "exceptions: [{rule: NVIDIA-FM-EXACT, reason: tried in the lab, approved_by: Ann}]\n"
    )
    result = run(root, "check")
    assert result.exception is None
    assert "lifted by Ann: tried in the lab" in result.output


def test_the_environment_of_the_controllers_must_be_one_of_the_site(root: Path) -> None:
    replace_in(
        root / "environments/A.yml",
        "scheduler: {unmanaged: none here}",
        'scheduler: {controller: ctl, packages: {slurmd: "24.11.5-4"}}',
    )
    result = run(root, "check")
    assert 'layers.scheduler.controller: no environments/ctl.yml for "ctl"' in str(result.exception)


# --- lock -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory, key: Key) -> StubArchive:
    made = StubArchive(tmp_path_factory.mktemp("archive"))
    # What dstack#2348 tells: a metapackage at one version depends on another package with >=, and the newest comes.
    made.add("nvidia-driver-570-open", "570.133.20-0ubuntu1", depends="nvidia-utils-570 (>= 570.133.20)")
    made.add("nvidia-utils-570", "570.133.20-0ubuntu1")
    made.add("nvidia-utils-570", "570.172.08-0ubuntu1")
    made.add("nvidia-fabricmanager-570", "570.133.20-1")
    made.add("numactl", "2.0.18-1+b1")
    made.publish(key)
    return made


@pytest.fixture
def locking(root: Path, archive: StubArchive, key: Key) -> Iterator[Site]:
    """The site with an archive that answers."""
    with serving(archive.root) as url:
        yield _locking(root, url, key)


def _locking(root: Path, url: str, key: Key) -> Site:
    text = ENVIRONMENT.replace("http://archive.lab:8080/", url)
    text = text.replace("image: {definition: images/a}", "image: {unmanaged: none here}")
    (root / "environments/A.yml").write_text(text)
    (root / "keys/archive.asc").write_bytes(key.public)
    return open_site(root)


def test_a_closure_that_breaks_a_rule_is_not_locked_and_nothing_is_written(root: Path, locking: Site) -> None:
    site = locking
    with pytest.raises(BadInput) as caught:
        locks.resolve(site, "A")
    assert str(caught.value) == (
        "site/environments/A.yml:17: NVIDIA-DRIVER-SET: driver nvidia-utils-570 570.172.08-0ubuntu1, brought along as a dependency,"
        " is not of the version of driver nvidia-driver-570-open 570.133.20-0ubuntu1 (ask for nvidia-utils-570 at 570.133.20-0ubuntu1,"
        " or for the whole set at 570.172.08-0ubuntu1; name each package, a metapackage depends with >=)"
    )
    assert run(root, "lock", "A").exception is not None
    assert not site.lock_path("A").exists()
    with Ledger.read(site.ledger_url) as ledger:
        assert not list(ledger.events())


@pytest.mark.usefixtures("locking")
def test_a_closure_with_every_package_named_is_locked(root: Path) -> None:
    replace_in(
        root / "environments/A.yml",
        'nvidia-driver-570-open: "570.133.20"',
        'nvidia-driver-570-open: "570.133.20", nvidia-utils-570: "570.133.20"',
    )
    result = run(root, "lock", "A")
    assert result.exception is None, result.exception
    assert "  unknown: site/environments/A.yml:19: NVIDIA-NVLSM" in result.output


# --- rollout --------------------------------------------------------------------------------------

SCHEDULER = '  scheduler: {controller: ctl, packages: {slurmd: "%s"}}'
CONTROLLER = (
    ENVIRONMENT.replace("environment: A", "environment: ctl").replace("kinds: [gpu]", "kinds: [controller]")
    .replace("models: [lab-gpu8]", "models: [lab-controller]")
    .replace('    packages: {nvidia-driver-570-open: "570.133.20"}', "    unmanaged: none here")
    .replace('    packages: {nvidia-fabricmanager-570: "570.133.20"}', "    unmanaged: none here")
    .replace("  scheduler: {unmanaged: none here}", '  scheduler: {packages: {slurmctld: "%s"}}')
)  # fmt: skip


class Fleet:
    """A site whose environments are locked by hand, and what the ledger says that nodes run."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        checkout = root.parent / "checkout"
        (checkout / "roles").mkdir(parents=True)
        monkeypatch.setenv("BEDPLATE_CHECKOUT", str(checkout))

    def lock(self, name: str, kind: str, text: str, scheduler: dict[str, str], **changes: Any) -> LockDocument:
        (self.root / f"environments/{name}.yml").write_text(text)
        site = open_site(self.root)
        environment = site.environment(name)
        made = set_at(document(), "environment", name)
        made = set_at(made, "spec_sha256", environment.spec_sha256)
        made = set_at(made, "archive/key_sha256", sha256(b"a key\n"))
        made = set_at(made, "config", {"templates": {}, "files_sha256": {}, "values": {"nccl_debug": "WARN"}})
        made = set_at(made, "kinds", {kind: {"model": site.fleet.kinds[kind].model, "architecture": "amd64"}})
        packages = made["packages"]["gpu"] if kind == "gpu" else {}
        for package, version in scheduler.items():
            packages[package] = document()["packages"]["gpu"]["libnuma1"] | {
                "version": version, "layer": "scheduler", "asked": True, "sha256": digest("f"),
            }  # fmt: skip
        made["packages"] = {kind: packages}
        said: dict[str, Any] = {"controller": "ctl"} if "controller: ctl" in text else {}
        made = set_at(made, "layers/scheduler", said)
        if kind != "gpu":
            for layer in ("driver", "fabric"):
                made = set_at(made, f"layers/{layer}", {"unmanaged": "none here"})
        for path, value in changes.items():
            made = set_at(made, path, value)
        lock = parse_lock(lock_text(made), f"{name}.lock.json")
        site.lock_path(name).write_text(lock_text(made))
        record_lock(site, lock)
        return lock

    def nodes(self, name: str, slurmd: str) -> LockDocument:
        text = ENVIRONMENT.replace("environment: A", f"environment: {name}")
        return self.lock(
            name, "gpu", text.replace("  scheduler: {unmanaged: none here}", SCHEDULER % slurmd), {"slurmd": slurmd}
        )

    def controllers(self, slurmctld: str) -> LockDocument:
        return self.lock("ctl", "controller", CONTROLLER % slurmctld, {"slurmctld": slurmctld})

    def runs(self, lock: LockDocument, *nodes: str) -> None:
        with Ledger.open(open_site(self.root).ledger_url) as ledger:
            for kind, body in (
                ("batch.admitted", {"batch": 0, "name": "rest"}),
                ("node.verified", {"verdict": "PASS", "facts": {}, "why": ""}),
                ("node.done", {"manifest_sha256": digest("a")}),
            ):
                for node in nodes:
                    ledger.append(Draft(kind, ("rollout:1", f"node:{node}"), body, lock.identity))

    def ready(self, name: str, *nodes: str, **words: Any) -> Any:
        site = open_site(self.root)
        with Ledger.read(site.ledger_url) as ledger:
            return ready(site, Order(name, limit=nodes or None, **words), ledger, online=False)


@pytest.fixture
def fleet(root: Path, monkeypatch: pytest.MonkeyPatch) -> Fleet:
    return Fleet(root, monkeypatch)


def test_nodes_are_upgraded_after_their_controllers(fleet: Fleet) -> None:
    old = fleet.controllers("24.11.5-4")
    fleet.runs(old, "ctl")
    fleet.nodes("A", "25.05.1-1")
    with pytest.raises(Refused) as caught:
        fleet.ready("A", "n1")
    assert str(caught.value) == (
        "roll out A: refused by a rule, zero nodes touched\n"
        "  site/environments/A.yml:22: SLURM-SKEW: scheduler slurmd 25.05.1-1 is newer than scheduler slurmctld 24.11.5-4 of ctl,"
        " which ctl runs (upgrade the controllers first: slurmdbd, then slurmctld, then slurmd)"
    )


def test_nodes_wait_while_nobody_knows_what_their_controllers_run(fleet: Fleet) -> None:
    fleet.controllers("25.05.1-1")
    fleet.nodes("A", "25.05.1-1")
    with pytest.raises(
        Refused,
        match=r"the ledger knows of no slurmctld on the controllers \(ctl\) of environment ctl \(upgrade the controllers first: bedplate rollout ctl",
    ):
        fleet.ready("A")


def test_nodes_follow_their_controllers(fleet: Fleet) -> None:
    fleet.runs(fleet.controllers("25.05.1-1"), "ctl")
    fleet.nodes("A", "25.05.1-1")
    assert {finding.rule for finding in fleet.ready("A").findings} == {"NVIDIA-NVLSM", "CUDA-DRIVER"}


def test_controllers_do_not_leave_their_nodes_behind(fleet: Fleet) -> None:
    nodes = fleet.nodes("A", "23.11.4-1")
    fleet.runs(nodes, "n1", "n2")
    fleet.controllers("25.11.1-1")
    with pytest.raises(Refused, match=r"slurmctld 25.11.1-1 does not talk to slurmd 23.11.4-1, which n\[1-2\] run"):
        fleet.ready("ctl")


def test_a_rollout_that_takes_slurm_back_a_release_is_refused(fleet: Fleet) -> None:
    fleet.runs(fleet.controllers("25.05.1-1"), "ctl")
    fleet.runs(fleet.nodes("B", "25.05.1-1"), "n1")
    fleet.nodes("A", "24.11.5-4")
    with pytest.raises(
        Refused,
        match=r"SLURM-DOWNGRADE: scheduler slurmd 24.11.5-4 is of release 24.11, nodes run scheduler slurmd 25.05.1-1 of B",
    ):
        fleet.ready("A")
    assert fleet.ready("A", "n2"), "a node that never had the newer one may have the older one"


def test_controllers_of_which_the_ledger_knows_a_release_too_old_to_be_read_are_refused(fleet: Fleet) -> None:
    fleet.runs(fleet.controllers("23.11.4-1"), "ctl")
    fleet.controllers("25.11.1-1")
    with pytest.raises(Refused) as caught:
        fleet.ready("ctl")
    assert str(caught.value) == (
        "roll out ctl: refused by a rule, zero nodes touched\n"
        "  site/environments/ctl.yml:22: SLURM-JUMP: scheduler slurmctld 25.11.1-1 does not read what 23.11.4-1 of ctl wrote:"
        " 25.11 reads 24.05 and later (upgrade by way of 24.05, 24.11 or 25.05)"
    )


def test_a_lock_with_a_plug_in_of_another_slurm_is_refused_before_any_node(fleet: Fleet) -> None:
    fleet.runs(fleet.controllers("25.05.1-1"), "ctl")
    text = ENVIRONMENT.replace(
        "  scheduler: {unmanaged: none here}",
        '  scheduler: {controller: ctl, packages: {slurmd: "25.05.1-1", nvslurm-plugin-pyxis: "0.24.0-1"}}',
    )
    fleet.lock(
        "A",
        "gpu",
        text,
        {"slurmd": "25.05.1-1", "nvslurm-plugin-pyxis": "0.24.0-1"},
        facts={"gpu": {"spank_abi": "24.11"}},
    )
    with pytest.raises(
        Refused,
        match=r"zero nodes touched\n  site/environments/A.yml:22: PYXIS-ABI: scheduler nvslurm-plugin-pyxis 0.24.0-1 was built for Slurm 24.11",
    ):
        fleet.ready("A")


def test_a_person_may_accept_a_broken_rule_for_one_rollout_and_it_stays_visible(fleet: Fleet) -> None:
    fleet.runs(fleet.controllers("25.05.1-1"), "ctl")
    fleet.runs(fleet.nodes("B", "25.05.1-1"), "n1")
    fleet.nodes("A", "24.11.5-4")
    with pytest.raises(Refused, match="to accept SLURM-DOWNGRADE needs --approved-by NAME --reason TEXT"):
        fleet.ready("A", accept=("SLURM-DOWNGRADE",))
    found = fleet.ready("A", accept=("SLURM-DOWNGRADE",), approved_by="Ann", reason="drained, spool emptied").findings
    (lifted,) = [finding for finding in found if finding.lifted]
    assert str(lifted).endswith("lifted by Ann: drained, spool emptied")


def test_to_accept_what_nothing_breaks_is_refused(fleet: Fleet) -> None:
    fleet.runs(fleet.controllers("25.05.1-1"), "ctl")
    fleet.nodes("A", "25.05.1-1")
    with pytest.raises(Refused, match="--accept NVIDIA-NAMES: EXCEPTION-UNUSED"):
        fleet.ready("A", accept=("NVIDIA-NAMES",), approved_by="Ann", reason="to be sure")
