"""Power through BMCs: a Redfish emulator over TLS, an ipmitool that a test wrote, and what the ledger allows."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from bedplate.act import bmc as bmc_door
from bedplate.cli import power as command
from bedplate.decide.fold import RETURNED
from bedplate.decide.netboot.protocol import Install, Phase
from bedplate.decide.power import DRAINED_STEPS, RETURN_STEP, Action, drained, loud, quiet, serial_fault
from bedplate.ledger.store import Ledger
from bedplate.model.bmc import Login, Logins, parse_logins
from bedplate.model.event import Draft
from bedplate.model.faults import BadInput, NodesFailed, Refused
from bedplate.sources import checkout
from bedplate.sources.site import open_site
from bedplate.sources.vault import bmc_logins
from unit.redfish_emulator import PASSWORD, USER, Emulator, emulated
from unit.site_sample import replace_in, write_site

pytestmark = pytest.mark.slow  # every test starts programs

LOGINS = Logins(Login(USER, PASSWORD), {})
ADDRESSES = {f"n{i}": f"127.78.0.{10 + i}" for i in range(1, 4)}


class Place:
    """A site whose BMCs are the emulator's, and its ledger."""

    def __init__(self, root: Path, serials: dict[str, str | None], monkeypatch: Any) -> None:
        self.root = write_site(root / "site")
        replace_in(self.root / "fleet.yml", "bmc: {cidr: 10.78.0.0/24}", "bmc: {cidr: 127.78.0.0/24}")
        csv = (self.root / "nodes.csv").read_text().replace("10.78.0.", "127.78.0.")
        (self.root / "nodes.csv").write_text(csv)
        self.context = emulated(self.root, {ADDRESSES[n]: serial for n, serial in serials.items()}, monkeypatch)
        self.bmcs: Emulator = self.context.__enter__()
        self.section("verify: ca.pem")
        monkeypatch.setattr(command, "bmc_logins", lambda *_: LOGINS)
        monkeypatch.setattr(bmc_door, "LOOK_S", 0.1)

    def section(self, text: str) -> None:
        fleet = (self.root / "fleet.yml").read_text().partition("\nbmc:")[0].rstrip()
        (self.root / "fleet.yml").write_text(f"{fleet}\nbmc: {{{text}, port: {self.bmcs.port}}}\n")

    def run(self, *words: str) -> Result:
        return CliRunner().invoke(command.power, [*words], obj=self.root)

    def drain(self, *names: str, step: str = "Refuse to change a node that is not drained") -> None:
        with Ledger.open(open_site(self.root).ledger_url) as ledger:
            subjects = ("rollout:7", *(f"node:{name}" for name in names))
            ledger.append(Draft("step.ended", subjects, {"step": step, "result": "ok"}))

    def done(self) -> list[dict[str, Any]]:
        with Ledger.read(open_site(self.root).ledger_url) as ledger:
            return [{"node": e.subjects[0]} | dict(e.body) for e in ledger.events(kinds=["power.done"])]

    def state(self, node: str) -> str:
        return str(self.bmcs.fake(ADDRESSES[node])["power_state"])


@pytest.fixture
def place(tmp_path: Path, monkeypatch: Any) -> Iterator[Place]:
    made = Place(tmp_path, {"n1": "LAB-1", "n2": "LAB-2", "n3": "LAB-3"}, monkeypatch)
    try:
        yield made
    finally:
        made.context.__exit__(None, None, None)


def test_status_says_power_serial_and_firmware_and_records_nothing(place: Place) -> None:
    done = place.run("status", "--nodes", "n[1-2]", "--json")
    assert done.exception is None, done.output
    said = json.loads(done.output)
    assert {n: (o["after"], o["serial"], o["firmware"], o["by"]) for n, o in said.items()} == {
        "n1": ("on", "LAB-1", "2.5.1", "redfish"), "n2": ("on", "LAB-2", "2.5.1", "redfish"),
    }  # fmt: skip
    assert place.done() == []


def test_what_the_ledger_does_not_know_as_quiet_is_not_switched_off(place: Place) -> None:
    place.drain("n2")
    done = place.run("off", "--nodes", "n[1-2]", "--yes", "2")
    assert isinstance(done.exception, Refused)
    assert "n1" in str(done.exception)
    assert "n2" not in str(done.exception)
    assert place.state("n2") == "On", "none of them"
    assert place.done() == []


def test_a_drained_machine_is_switched_off_and_on_and_the_ledger_has_both(place: Place) -> None:
    place.drain("n1")
    for word, state in (("off", "Off"), ("on", "On")):
        done = place.run(word, "--nodes", "n1", "--yes", "1")
        assert done.exception is None, done.output
        assert place.state("n1") == state
    off, on = place.done()
    assert (off["action"], off["result"], off["before"], off["after"]) == ("off", "ok", "on", "off")
    assert off["known"].startswith("drained by rollout 7")
    assert off["verified"] is True
    assert (on["action"], on["before"], on["after"]) == ("on", "off", "on")


def test_with_a_persons_word_a_machine_boots_from_the_network_once(place: Place) -> None:
    done = place.run("netboot", "--nodes", "n1", "--approved-by", "Ann", "--yes", "1")
    assert done.exception is None, done.output
    assert place.bmcs.fake(ADDRESSES["n1"])["boot_device"] == "Pxe"
    assert place.done()[0]["approved_by"] == "Ann"
    asked = [(m, path.rpartition("/")[2]) for a, m, path in place.bmcs.asked if a == ADDRESSES["n1"] and m != "GET"]
    assert [method for method, _ in asked] == ["PATCH", "POST"], "the boot device first, then the restart"


def test_a_machine_that_is_off_is_switched_on_to_boot_from_the_network(place: Place) -> None:
    place.bmcs.fake(ADDRESSES["n1"])
    assert place.run("off", "--nodes", "n1", "--approved-by", "Ann", "--yes", "1").exception is None
    assert place.run("netboot", "--nodes", "n1", "--approved-by", "Ann", "--yes", "1").exception is None
    assert place.state("n1") == "On"


def test_the_question_names_what_will_happen_and_yes_has_the_number(place: Place) -> None:
    asked = CliRunner().invoke(
        command.power, ["cycle", "--nodes", "n[1-3]", "--approved-by", "Ann"], obj=place.root, input="n\n"
    )
    assert "3 nodes of sample are restarted at once, whatever runs on them: n[1-3]" in asked.output
    assert place.done() == []
    wrong = place.run("cycle", "--nodes", "n[1-3]", "--approved-by", "Ann", "--yes", "1")
    assert isinstance(wrong.exception, BadInput)
    assert "n[1-3] are 3 nodes" in str(wrong.exception)


def test_a_bmc_of_another_machine_is_not_obeyed_on_anybodys_word(tmp_path: Path, monkeypatch: Any) -> None:
    place = Place(tmp_path, {"n1": "LAB-2", "n2": None}, monkeypatch)
    try:
        done = place.run("cycle", "--nodes", "n[1-2]", "--approved-by", "Ann", "--yes", "2")
        assert isinstance(done.exception, NodesFailed)
        n1, n2 = sorted(place.done(), key=lambda each: str(each["node"]))
        assert n1["result"] == "refused"
        assert "another machine's" in n1["why"]
        assert n2["result"] == "ok", "it tells no serial number, and Ann gave the word"
        assert not [m for a, m, _ in place.bmcs.asked if a == ADDRESSES["n1"] and m != "GET"]
    finally:
        place.context.__exit__(None, None, None)


def test_a_certificate_of_an_unknown_ca_gets_no_password(place: Place, tmp_path: Path) -> None:
    place.section("verify: system")
    done = place.run("status", "--nodes", "n1")
    assert isinstance(done.exception, NodesFailed)
    assert "certificate" in done.output.lower()
    assert place.bmcs.asked == []
    place.section("verify: nowhere.pem")
    done = place.run("status", "--nodes", "n1")
    assert isinstance(done.exception, BadInput)
    assert "no file of CA certificates" in str(done.exception)


def test_a_wrong_password_and_a_bmc_that_is_not_there_are_told_without_the_password(
    place: Place, monkeypatch: Any
) -> None:
    monkeypatch.setattr(command, "bmc_logins", lambda *_: Logins(Login(USER, "wr0ng-one"), {}))
    monkeypatch.setattr(bmc_door, "CONNECT_S", 2)
    with Ledger.open(open_site(place.root).ledger_url):
        pass
    done = place.run("on", "--nodes", "n[1,3]", "--yes", "2")
    assert isinstance(done.exception, NodesFailed)
    told = done.output + json.dumps(place.done())
    assert "wr0ng-one" not in told
    assert [each["result"] for each in place.done()] == ["failed", "failed"]


def test_a_node_without_a_login_and_a_site_without_the_section_are_named(place: Place, monkeypatch: Any) -> None:
    monkeypatch.setattr(command, "bmc_logins", lambda *_: Logins(None, {"n2": Login("a", "b")}))
    done = place.run("status", "--nodes", "n[1-2]")
    assert "no login for the BMC of n1" in str(done.exception)
    fleet = (place.root / "fleet.yml").read_text().partition("\nbmc:")[0]
    (place.root / "fleet.yml").write_text(fleet)
    assert "no bmc section" in str(place.run("status", "--nodes", "n1").exception)


def test_the_machines_of_an_example_have_no_power() -> None:
    done = CliRunner().invoke(command.power, ["status", "--nodes", "gpu001"], obj=checkout.root() / "inventory")
    assert isinstance(done.exception, Refused)


# --- IPMI ---------------------------------------------------------------------------------------------------

IPMITOOL = """\
#!{python}
# A fake ipmitool, for tests: notes how it was called, keeps the machine's state in a file.
import json, os, pathlib, sys
here = pathlib.Path(__file__).parent
state = here / "state"
with open(here / "calls", "a") as calls:
    calls.write(json.dumps({{"argv": sys.argv[1:], "password": os.environ.get("IPMITOOL_PASSWORD")}}) + "\\n")
words = sys.argv[sys.argv.index("-R") + 2:]
if os.environ.get("IPMITOOL_PASSWORD") != "s3cret-of-bmc":
    sys.exit("Error: Unable to establish IPMI v2 / RMCP+ session")
if words == ["chassis", "power", "status"]:
    print("Chassis Power is " + state.read_text())
elif words[:2] == ["chassis", "power"]:
    state.write_text("off" if words[2] == "off" else "on")
elif words[0] == "fru":
    print(" Chassis Type          : Rack Mount\\n Board Serial          : B1\\n Product Serial        : LAB-3")
elif words[:3] != ["chassis", "bootdev", "pxe"]:
    sys.exit("Invalid command")
"""


@pytest.fixture
def ipmitool(tmp_path: Path, monkeypatch: Any) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "ipmitool").write_text(IPMITOOL.format(python=sys.executable))
    (folder / "ipmitool").chmod(0o755)
    (folder / "state").write_text("on")
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("IPMI_PASSWORD", "of another site")
    return folder


def test_ipmi_is_used_where_fleet_yml_says_so_and_its_password_is_no_argument(place: Place, ipmitool: Path) -> None:
    place.section('verify: ca.pem, ipmi_nodes: "n3"')
    for word in ("off", "netboot"):
        done = place.run(word, "--nodes", "n3", "--approved-by", "Ann", "--yes", "1")
        assert done.exception is None, done.output
    calls = [json.loads(line) for line in (ipmitool / "calls").read_text().splitlines()]
    assert all(PASSWORD not in " ".join(call["argv"]) and call["password"] == PASSWORD for call in calls)
    said = [" ".join(call["argv"][call["argv"].index("-R") + 2 :]) for call in calls]
    assert "chassis power off" in said
    assert said[-4:-1] == ["chassis bootdev pxe options=efiboot", "chassis power on", "chassis power status"]
    assert [(each["by"], each["result"], each["verified"]) for each in place.done()] == [("ipmi", "ok", False)] * 2
    place.section("verify: ca.pem, ipmi_models: [lab-gpu8]")
    said_now = json.loads(place.run("status", "--nodes", "n3", "--json").output)
    assert said_now["n3"]["by"] == "ipmi"


def test_a_failed_ipmitool_is_told_without_its_password(place: Place, ipmitool: Path, monkeypatch: Any) -> None:
    place.section('verify: ca.pem, ipmi_nodes: "n3"')
    monkeypatch.setattr(command, "bmc_logins", lambda *_: Logins(Login(USER, "wr0ng-one"), {}))
    done = place.run("status", "--nodes", "n3")
    assert "Unable to establish" in done.output
    assert "wr0ng-one" not in done.output


# --- what the ledger knows ------------------------------------------------------------------------------------


def _events(tmp_path: Path, *drafts: tuple[str, dict[str, Any]]) -> list[Any]:
    with Ledger.open(f"sqlite:///{tmp_path}/l.sqlite3", actor="a@b") as ledger:
        return ledger.append(*(Draft(kind, ("rollout:3", "node:n1"), body) for kind, body in drafts))


@pytest.mark.parametrize(
    ("drafts", "known"),
    [
        ([("step.ended", {"step": "Refuse to change a node that is not drained", "result": "ok"})], True),
        ([("step.ended", {"step": "Say that there is nothing to drain", "result": "ok"})], True),
        ([("step.ended", {"step": "Say that there is nothing to drain", "result": "skipped"})], False),
        ([("step.ended", {"step": "Drain the batch and wait for its jobs", "result": "ok"})], False),
        ([("node.failed", {"step": "Refuse to change a node that is not drained", "why": "jobs"})], False),
        ([
            ("step.ended", {"step": "Refuse to change a node that is not drained", "result": "ok"}),
            ("node.failed", {"step": "Install", "why": "x"}),
        ], True),
        ([
            ("step.ended", {"step": "Refuse to change a node that is not drained", "result": "ok"}),
            ("step.ended", {"step": RETURN_STEP, "result": "changed"}),
        ], False),
        ([
            ("step.ended", {"step": "Refuse to change a node that is not drained", "result": "ok"}),
            ("node.failed", {"step": RETURN_STEP, "why": "x"}),
        ], False),
    ],
)  # fmt: skip
def test_drained_is_what_a_rollout_drained_and_did_not_give_back(
    tmp_path: Path, drafts: list[tuple[str, dict[str, Any]]], known: bool
) -> None:
    events = _events(tmp_path, *drafts)
    assert ("n1" in drained(events, datetime.now(UTC))) is known
    assert drained(events, datetime.now(UTC) + timedelta(days=2)) == {}, "people resume nodes as well"


def test_a_machine_in_the_middle_of_its_installation_is_quiet_and_an_armed_one_is_not() -> None:
    now = datetime.now(UTC)
    installs = {str(phase): Install(phase) for phase in Phase}
    known = quiet([], installs, now)
    assert "installing" in known
    assert "failed" in known
    for phase in (Phase.ARMED, Phase.STOPPED, Phase.HELD, Phase.REPORTED, Phase.IDLE):
        assert str(phase) not in known
    assert loud(Action.CYCLE, ["a", "installing"], known) == ["a"]
    assert loud(Action.ON, ["a"], known) == []


def test_the_steps_that_say_drained_are_those_of_the_playbooks() -> None:
    def names(tasks: list[dict[str, Any]]) -> Iterator[str]:
        for task in tasks:
            yield str(task.get("name"))
            yield from names(task.get("block", []))

    folder = checkout.root() / "playbooks/steps"
    assert set(names(yaml.safe_load((folder / "drain.yml").read_text()))) >= DRAINED_STEPS
    returned = list(names(yaml.safe_load((folder / "return.yml").read_text())))
    assert returned[0] == RETURN_STEP
    assert returned[-1] == RETURNED, "it is given back when this is through, and not before"


@pytest.mark.parametrize(
    ("told", "approved", "why"),
    [("S1", False, ""), (" S1 ", False, ""), ("S2", True, "another machine's"), (None, False, "no serial number"),
     ("", False, "no serial number"), (None, True, "")],
)  # fmt: skip
def test_a_serial_number_decides_whether_a_bmc_is_obeyed(told: str | None, approved: bool, why: str) -> None:
    found = serial_fault(told, "S1", approved=approved)
    assert why in found
    assert bool(found) is bool(why)


# --- files ------------------------------------------------------------------------------------------------------


def test_logins_are_for_all_or_for_one_and_never_shown() -> None:
    logins = parse_logins("bmc_user: 'a'\nbmc_password: 'p'\nbmc_of: {n2: {user: 'b', password: 'q'}}\n", "vault.yml")
    assert logins.of("n1") == Login("a", "p")
    assert logins.of("n2") == Login("b", "q")
    assert "'p'" not in repr(logins)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("other: 1\n", "neither bmc_user nor bmc_of"),
        ("bmc_user: 'a'\n", "bmc_password: no text"),
        ("bmc_user: 'a'\nbmc_password: 12345\n", "bmc_password: no text"),
        ("bmc_of: [a]\n", "bmc_of: no mapping"),
        ("bmc_of: {n1: {user: 'a'}}\n", "bmc_of.n1.password: no text"),
        ("bmc_user: 'a'\n\tbmc_password: 'hidden-word'\n", "no plain YAML"),
    ],
)
def test_what_is_wrong_with_logins_is_told_without_them(text: str, found: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse_logins(text, "vault.yml")
    assert found in str(caught.value)
    assert "hidden-word" not in str(caught.value)
    assert "12345" not in str(caught.value)


@pytest.mark.slow
def test_logins_come_out_of_the_encrypted_vault(tmp_path: Path) -> None:
    (tmp_path / "word").write_text("x\n")
    (tmp_path / "vault.yml").write_text("bmc_user: 'a'\nbmc_password: 'p'\n")
    with pytest.raises(BadInput, match="not encrypted"):
        bmc_logins(tmp_path, None)
    subprocess.run(
        [Path(sys.executable).with_name("ansible-vault"), "encrypt", "--vault-password-file", tmp_path / "word",
         tmp_path / "vault.yml"], check=True, capture_output=True,
    )  # fmt: skip
    assert bmc_logins(tmp_path, tmp_path / "word").of("n1") == Login("a", "p")


@pytest.mark.parametrize(
    ("section", "found"),
    [
        ("{port: 443}", '"verify" is missing'),
        ("{verify: true}", "bmc.verify"),
        ("{verify: ca.pem, widht: 3}", "widht"),
        ('{verify: ca.pem, ipmi_nodes: "n99"}', "no row in"),
        ('{verify: ca.pem, ipmi_nodes: "n[1"}', "no host list"),
        ("{verify: ca.pem, ipmi_models: [lab-gpu9]}", "lab-gpu9"),
    ],
)
def test_a_wrong_section_is_a_fault_with_its_place(tmp_path: Path, section: str, found: str) -> None:
    root = write_site(tmp_path / "site")
    fleet = (root / "fleet.yml").read_text()
    (root / "fleet.yml").write_text(f"{fleet}bmc: {section}\n")
    with pytest.raises(BadInput) as caught:
        assert open_site(root).fleet
    assert found in str(caught.value)
    assert "fleet.yml:" in str(caught.value)
