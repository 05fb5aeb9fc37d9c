"""The delivery report: what no event says is no pass, and an installation is told step by step."""

import json
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from bedplate.act.arming import disarm
from bedplate.act.delivery import KEPT
from bedplate.cli.delivery import delivery
from bedplate.decide.acceptance import QUESTIONS
from bedplate.decide.delivery import (
    NOT_LOOKED,
    NOT_THERE,
    Machine,
    machines,
    sections,
    summary,
)
from bedplate.decide.document import markdown
from bedplate.decide.fold import fold
from bedplate.decide.installation import CONFIRMED, MAY_BE_SILENT, STEPS
from bedplate.decide.lockdoc import lock_text
from bedplate.decide.netboot.protocol import KINDS, fold_installs
from bedplate.ledger.filestore import FileStore
from bedplate.ledger.store import Ledger
from bedplate.model.canonical import sha256
from bedplate.model.event import Draft
from bedplate.model.faults import NodesFailed, Refused
from unit.autoinstall_sample import KEY
from unit.netboot_sample import ROOT, lock_document, locked
from unit.story import A, B, Story
from unit.test_netboot_server import Client, Place, install, server

LOG = sha256(b"asked, and answered")
PASSED = {name: {"verdict": "passed"} for name in QUESTIONS}


def delivered() -> Story:
    story = Story().started(1, A, rules=[{"rule": "R-1", "weight": "note", "found": "x"}])
    story.of(1, "batch.admitted", A, "n1", "n2", batch=0, name="canary")
    story.of(1, "step.ended", A, "n1", "n2", step="Converge", result="changed")
    story.of(1, "node.verified", A, "n1", verdict="PASS", facts={}, why="")
    story.of(1, "node.done", A, "n1", manifest_sha256=A)
    story.of(1, "node.failed", A, "n2", step="Verify", why="no GPU")
    story.tell("node.accepted", ("node:n1",), A, {"questions": PASSED, "stand_in": False, "logs": {"job.txt": LOG}})
    return story


def seen(story: Story, node: str = "n1") -> Machine:
    """A machine whose logs are all there."""
    return replace(machines(story.events, {node: "S1"}, A)[node], present={LOG: "here"})


def test_a_machine_is_complete_when_every_answer_of_it_is_recorded() -> None:
    found = machines(delivered().events, {"n1": "S1", "n2": "S2", "n3": "S3"}, A)
    found["n1"] = replace(found["n1"], present={LOG: "here"})
    assert found["n1"].missing == []
    assert found["n1"].as_dict()["steps"] == {"Converge": "changed"}
    assert "its change has no recorded end" in found["n2"].missing
    assert found["n2"].steps["Verify"] == "failed: no GPU"
    assert "versions against the vendor's list: not recorded" in found["n3"].missing
    text = markdown("Delivery of A", sections(A, list(found.values())))
    assert "1 of 3 machines complete, 0 signed for." in text
    assert "## Rollout 1, batch 1 canary" in text
    assert "## Not recorded" in text
    assert "| n2 | Verify | failed: no GPU |" in text


@pytest.mark.parametrize("weight", ["fault", "unknown"])
def test_what_a_rule_found_against_the_vendors_list_is_missing(weight: str) -> None:
    story = Story().started(1, A, rules=[{"rule": "R-1", "weight": weight, "found": "driver 1"}])
    story.of(1, "batch.admitted", A, "n1", batch=0, name="rest")
    assert "vendor's list: R-1: driver 1" in machines(story.events, {"n1": "S1"}, A)["n1"].missing


def test_a_refused_acceptance_and_stand_ins_are_no_answers() -> None:
    story = delivered()
    story.tell("node.refused", ("node:n1",), A, {"questions": {"devices": {"verdict": "failed"}}, "stand_in": True})
    missing = machines(story.events, {"n1": "S1"}, A)["n1"].missing
    assert "devices: failed" in missing
    assert "compute: not recorded" in missing
    assert "its acceptance was answered by stand-ins" in missing


def test_a_signature_is_of_a_person_and_stands_in_the_report() -> None:
    story = delivered()
    story.tell("delivery.signed", ("node:n1",), A, {"signed_by": "Maria", "remark": "complete", "incomplete": []})
    [machine] = machines(story.events, {"n1": "S1"}, A).values()
    assert machine.signed == "Maria, 2026-11-02, event 8: complete"
    assert fold(story.events).state("n1").runs == A, "a signature changes no node"


@pytest.mark.parametrize(
    ("present", "why"), [(None, NOT_LOOKED), ({}, NOT_THERE), ({B: "here"}, NOT_THERE)], ids=["unseen", "none", "other"]
)
def test_a_log_whose_bytes_nobody_saw_is_missing(present: dict[str, str] | None, why: str) -> None:
    assert replace(seen(delivered()), present=present).missing == [f"job.txt {LOG[:19]}: {why}"]


# --- installations, as a boot server records them -----------------------------------------------------------


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    made.ledger.close()


IDENTITY = locked().identity


def reported(place: Place, *names: str) -> dict[str, Machine]:
    serials = {name: place.site.fleet.nodes[name].serial for name in names}
    return machines(place.ledger.events(), serials, IDENTITY)


def of_installation(machine: Machine) -> list[str]:
    assert machine.installation is not None
    return machine.installation.missing


def send_logs(place: Place, client: Client, name: str) -> None:
    path = f"/upload/{name}/{place.token(name)}/installer-logs.tar.gz"
    assert client.ask("PUT", path, f"logs of {name}".encode())[0] == 201


def confirm(place: Place, name: str) -> None:
    body = {"host_key": " ".join(KEY.split()[:2]), "boot_id": "b"}
    place.ledger.append(Draft("netboot.confirmed", (f"node:{name}",), body, IDENTITY))


def whole(place: Place, client: Client, name: str) -> None:
    """An installation from its arming to the confirmed host key."""
    place.arm(name)
    assert client.boots(name)
    assert client.seed(name) == 200
    assert client.inventory(name)[0] == 200
    assert client.report(name, "subiquity/Install/install") == 200
    assert client.report(name, "bedplate/installed") == 200
    send_logs(place, client, name)
    assert client.phone(name) == 200
    assert client.finished(name) == 200
    confirm(place, name)


@pytest.mark.slow
def test_every_step_of_an_installation_names_its_event_and_its_lock(place: Place) -> None:
    with server(place) as client:
        whole(place, client, "gpu001")
    machine = reported(place, "gpu001")["gpu001"]
    assert of_installation(machine) == []
    events = {event.id: event for event in place.ledger.events()}
    assert machine.installation is not None
    told = {step: events[each.event].kind for step, each in machine.installation.steps.items()}
    assert told == {
        "armed": "netboot.armed", "booted from the network": "netboot.asked", "seed fetched": "netboot.seeded",
        "inventory fits": "netboot.inventory", "installer reports": "netboot.stage", "installed": "netboot.stage",
        "first boot": "netboot.phoned", "cloud-init finished": "netboot.finished",
        "host key confirmed": "netboot.confirmed",
    }  # fmt: skip
    assert {each.environment for each in machine.installation.steps.values()} == {IDENTITY}
    assert all(each.at == events[each.event].at for each in machine.installation.steps.values())
    assert [log.name for log in machine.files] == ["inventory.json", "installer-logs.tar.gz"]
    assert machine.files[1].sha256 == sha256(b"logs of gpu001")
    other = machines(place.ledger.events(), {"gpu001": "S"}, B)["gpu001"].installation
    assert other == machine.installation, "whatever lock it was of: it is the machine's"
    text = markdown("", sections(IDENTITY, [machine]))
    row = next(line for line in text.splitlines() if line.startswith("| gpu001 | A sha256:"))
    assert row.count("| never reported |") == 1, "nobody hears who fetches a kernel by TFTP"
    assert re.search(r"\| Ann \| event 1, 20\d\d-\d\d-\d\d \d\d:\d\d:\d\dZ \|", row)


def breaks(place: Place, client: Client) -> None:
    client.report("gpu001", "subiquity/Install", result="FAIL", description="no mirror")


def stops(place: Place, client: Client) -> None:
    client.inventory("gpu001", disks=[])


def comes_back(place: Place, client: Client) -> None:
    assert not client.boots("gpu001")


def goes_silent(place: Place, client: Client) -> None:
    """Nothing more is heard of it."""


def is_disarmed(place: Place, client: Client) -> None:
    disarm(place.ledger, ["gpu001"], fold_installs(place.ledger.events(kinds=KINDS)), why="wrong rack")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ends", "why"),
    [
        (breaks, "installation: failed: no mirror"),
        (stops, "installation: stopped: boot disk EXM2A000001: 0 disks have that serial number"),
        (comes_back, "installation: held: it came back to the network before it had reported"),
        (is_disarmed, "installation: disarmed: wrong rack"),
        (goes_silent, "never reported: inventory fits, installed, first boot, cloud-init finished, host key confirmed"),
    ],
)
def test_an_installation_that_began_and_did_not_end_is_no_pass(
    place: Place, ends: Callable[[Place, Client], None], why: str
) -> None:
    place.arm("gpu001")
    with server(place) as client:
        client.boots("gpu001")
        client.seed("gpu001")
        ends(place, client)
    missing = of_installation(reported(place, "gpu001")["gpu001"])
    assert any(why in each for each in missing), missing
    assert "installation: its installer-logs.tar.gz never came" in missing
    assert any("begun and not ended" in each for each in missing)


@pytest.mark.slow
def test_each_step_that_must_be_told_and_was_not_is_named(place: Place) -> None:
    with server(place) as client:
        whole(place, client, "gpu001")
    events = list(place.ledger.events())
    full = machines(events, {"gpu001": "S"}, IDENTITY)["gpu001"].installation
    assert full is not None
    for step in set(full.steps) - MAY_BE_SILENT - {"armed"}:
        left = [event for event in events if event.id != full.steps[step].event]
        found = machines(left, {"gpu001": "S"}, IDENTITY)["gpu001"]
        said = "no installation came of it" if step == "seed fetched" else "never reported"
        of_step = [each for each in of_installation(found) if said in each]
        assert len(of_step) == 1, step
        assert step == "seed fetched" or step in of_step[0]
    assert set(full.steps) | {"kernel fetched"} == set(STEPS)


@pytest.mark.slow
def test_a_first_boot_with_errors_is_no_pass_and_a_disarm_after_it_hides_nothing(place: Place) -> None:
    place.arm("gpu001")
    with server(place) as client:
        install(place, client, "gpu001")
        assert client.finished("gpu001", status="error", errors=["no package x"]) == 200
    for _ in range(2):
        missing = of_installation(reported(place, "gpu001")["gpu001"])
        assert "installation: first boot failed: no package x" in missing
        assert any(CONFIRMED in each for each in missing)
        is_disarmed(place, None)  # type: ignore[arg-type]
        confirm(place, "gpu001")


@pytest.mark.slow
def test_a_machine_that_was_taken_over_says_so_and_lacks_nothing_by_it(place: Place) -> None:
    place.arm("gpu001")
    place.arm("gpu002")
    is_disarmed(place, None)  # type: ignore[arg-type]
    found = reported(place, "gpu001", "gpu002", "ctl1")
    assert found["gpu001"].installation is None, "its arming was taken back before anything came of it"
    assert found["ctl1"].installation is None
    assert [each for each in found["ctl1"].missing if "install" in each] == []
    assert "and no installation came of it" in of_installation(found["gpu002"])[0]
    text = markdown("", sections(IDENTITY, list(found.values())))
    assert "Never installed by Bedplate: taken over as it was: gpu001, ctl1." in text
    assert "2 taken over as they were, 1 with an installation that did not end" in text


@pytest.mark.slow
def test_an_arming_that_is_taken_back_leaves_the_installation_before_it(place: Place) -> None:
    with server(place) as client:
        whole(place, client, "gpu001")
        place.arm("gpu001")
        assert "and no installation came of it" in of_installation(reported(place, "gpu001")["gpu001"])[0]
        place.arm("gpu001")
        is_disarmed(place, client)
        assert of_installation(reported(place, "gpu001")["gpu001"]) == []


@pytest.mark.slow
def test_a_verification_from_before_the_installation_proves_nothing(place: Place) -> None:
    verified = Draft("node.verified", ("node:gpu001",), {"verdict": "PASS", "facts": {}, "why": ""}, IDENTITY)
    (event,) = place.ledger.append(verified)
    with server(place) as client:
        whole(place, client, "gpu001")
    said = f"its verification, event {event.id}, is older than its installation"
    assert any(said in each for each in reported(place, "gpu001")["gpu001"].missing)
    place.ledger.append(verified)
    assert not any("is older" in each for each in reported(place, "gpu001")["gpu001"].missing)


# --- the command ------------------------------------------------------------------------------------------


def complete(place: Place, name: str) -> None:
    """The rest of a delivery, after the installation: a rollout and an acceptance, with their logs in the site."""
    about = ("rollout:1", "environment:A", f"node:{name}")
    folder = place.site.root / "acceptances/x"
    (folder / "run").mkdir(parents=True)
    (folder / "job.txt").write_text("asked, and answered")
    (folder / "run/record.json").write_text("{}")
    body = {"id": "x", "questions": PASSED, "stand_in": False, "logs": {"job.txt": LOG}, "record_sha256": sha256(b"{}")}
    place.ledger.append(
        Draft("rollout.started", about[:2], {"environment": "A", "rules": []}, IDENTITY),
        Draft("batch.admitted", about, {"batch": 0, "name": "canary"}, IDENTITY),
        Draft("node.verified", about, {"verdict": "PASS", "facts": {}, "why": ""}, IDENTITY),
        Draft("node.done", about, {"manifest_sha256": IDENTITY}, IDENTITY),
        Draft("node.accepted", (f"node:{name}", "environment:A"), body, IDENTITY),
    )


@pytest.fixture
def ready(place: Place) -> Place:
    """A site with an environment A, and gpu001 delivered under it."""
    root = place.site.root
    text = (ROOT / "inventory/environments/2026.11-a.yml").read_text()
    (root / "environments/A.yml").write_text(text.replace("environment: 2026.11-a", "environment: A"))
    (root / "environments/A.lock.json").write_text(lock_text(lock_document()))
    with server(place) as client:
        whole(place, client, "gpu001")
    complete(place, "gpu001")
    return place


def ask(place: Place, *words: str) -> str:
    words = ("A", "--nodes", "gpu001", "--dir", str(place.folder), *words)
    return CliRunner().invoke(
        delivery, words, obj=place.site.root, standalone_mode=False, catch_exceptions=False
    ).stdout  # fmt: skip


def where(place: Place) -> dict[str, str]:
    [machine] = json.loads(ask(place, "--json"))["machines"]
    return {log["name"]: log["where"] for log in machine["logs"]}


@pytest.mark.slow
def test_logs_are_there_by_their_bytes_and_kept_with_the_ledger(ready: Place, tmp_path: Path) -> None:
    lies = {
        "inventory.json": str(ready.folder / "logs/gpu001/inventory.json"),
        "installer-logs.tar.gz": str(ready.folder / "logs/gpu001/installer-logs.tar.gz"),
        "job.txt": str(ready.site.root / "acceptances/x/job.txt"),
        "run/record.json": str(ready.site.root / "acceptances/x/run/record.json"),
    }
    by_itself = {"inventory.json": KEPT, "installer-logs.tar.gz": KEPT}
    assert where(ready) == lies | by_itself, "the boot server keeps what it takes"
    assert len(list(ready.ledger.events(kinds=["file.attached"]))) == len(by_itself)
    shutil.rmtree(ready.site.ledger_files_path)
    assert where(ready) == lies
    ask(ready, "--keep-logs", "--json")
    assert set(where(ready).values()) == {KEPT}
    head = ready.ledger.head()
    ask(ready, "--keep-logs", "--json")
    assert ready.ledger.head() == head, "what is kept is not recorded twice"
    kept = [event.body for event in ready.ledger.events(kinds=["file.attached"])][len(by_itself) :]
    assert [(one["role"], [file["name"] for file in one["files"]]) for one in kept] == [
        ("installation-log", ["inventory.json", "installer-logs.tar.gz"]),
        ("acceptance-log", ["job.txt", "run/record.json"]),
    ]
    store = FileStore(ready.site.ledger_files_path)
    assert store.get(sha256(b"logs of gpu001")).read_bytes() == b"logs of gpu001"
    for place in lies.values():
        Path(place).unlink()
    assert set(where(ready).values()) == {KEPT}


@pytest.mark.slow
def test_a_log_with_other_bytes_is_not_there_and_a_signature_needs_a_remark(ready: Place) -> None:
    shutil.rmtree(ready.site.ledger_files_path)
    (ready.folder / "logs/gpu001/installer-logs.tar.gz").write_bytes(b"others")
    with pytest.raises(NodesFailed, match="not complete: gpu001"):
        ask(ready)
    with pytest.raises(Refused, match="needs --remark"):
        ask(ready, "--sign-off", "Maria")
    assert "signed for" in ask(ready, "--sign-off", "Maria", "--remark", "the logs were rotated")


@pytest.mark.slow
def test_a_file_called_html_is_html_by_the_writer_of_the_handover(ready: Place, tmp_path: Path) -> None:
    for name, words, begins in (
        ("x.html", (), "<!DOCTYPE html>"), ("x.md", (), "# Delivery of A"),
        ("y.md", ("--as", "html"), "<!DOCTYPE html>"), ("y.html", ("--as", "markdown"), "# Delivery of A"),
    ):  # fmt: skip
        ask(ready, "--out", str(tmp_path / name), *words)
        assert (tmp_path / name).read_text().startswith(begins), (name, words)
    page = (tmp_path / "x.html").read_text()
    assert "<td>gpu001</td>" in page
    assert "1 machines: 1 complete, 0 signed for; 1 installed by Bedplate" in page


@pytest.mark.slow
def test_a_batch_is_told_in_numbers(ready: Place) -> None:
    (batch,) = json.loads(ask(ready, "--json"))["batches"].values()
    assert batch == {
        "machines": 1, "complete": 1, "signed": 0, "installed": 1, "not_ended": 0, "taken_over": 0, "logs": 4,
        "logs_there": 4,
    }  # fmt: skip
    with Ledger.read(ready.site.ledger_url) as book:
        unseen = machines(book.events(), {"gpu001": "S"}, IDENTITY)["gpu001"]
    assert summary([unseen])["logs_there"] == 0
