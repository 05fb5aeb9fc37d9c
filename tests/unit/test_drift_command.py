"""`bedplate drift` over real ssh: what it says, how it ends, what it records, and what it refuses to believe."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
from click.testing import CliRunner, Result

from bedplate.cli.collect import collect
from bedplate.cli.drift import drift
from bedplate.decide.fold import Status
from bedplate.ledger import story
from bedplate.model.event import Draft
from bedplate.model.faults import BadInput, DifferencesFound, NodesFailed, Refused
from bedplate.observe import factbook
from unit.fleet_of_roots import CHECKOUT, NAMES, Fleet, fleet
from unit.lock_sample import digest
from unit.simulation import lock_site
from unit.site_sample import replace_in

pytestmark = pytest.mark.slow  # every test starts programs

SCHEMA = json.loads(Path(__file__).with_name("drift.schema.json").read_text())


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Fleet]:
    with fleet(tmp_path) as made:
        made.identity = made.lock()
        yield made


def run(made: Fleet, *words: str) -> Result:
    result = CliRunner().invoke(drift, list(words), obj=made.root)
    if "--json" in words:
        jsonschema.validate(json.loads(result.stdout), SCHEMA)
    return result


def dpkg(made: Fleet, name: str, old: str, new: str) -> None:
    replace_in(made.roots[name] / "var/lib/dpkg/status", old, new)


def rows(result: Result) -> list[list[str]]:
    return [line.split("\t") for line in result.stdout.splitlines() if "\t" in line][1:]


def test_nodes_that_are_what_their_lock_says_have_no_drift(nodes: Fleet) -> None:
    result = run(nodes)
    assert result.exit_code == 0, (result.output, result.exception)
    assert result.stdout.startswith("3 nodes: 3 as their locks say (n[1-3])\nfacts: collected ")
    (event,) = nodes.events("drift.none")
    assert event.subjects == ("node:n1", "node:n2", "node:n3")
    assert event.body["nodes"] == {"none": "n[1-3]", "drift": "", "unknown": ""}
    assert story.summary(event) == "as their locks say: n[1-3]"


def test_drift_makes_no_node_verified(nodes: Fleet) -> None:
    assert run(nodes).exit_code == 0
    assert {nodes.world().state(name).status for name in NAMES} == {Status.UNVERIFIED}
    dpkg(nodes, "n1", "570.133.20-1", "570.86.15-1")
    run(nodes)
    assert {nodes.world().state(name).status for name in NAMES} == {Status.UNVERIFIED}


def test_nodes_with_the_same_drift_are_one_row_grouped_by_layer(nodes: Fleet) -> None:
    for name in ("n1", "n2"):
        dpkg(nodes, name, "Version: 570.133.20-1", "Version: 570.86.15-1")
        (nodes.roots[name] / "etc/nccl.conf").chmod(0o600)
    dpkg(
        nodes,
        "n3",
        "hold ok installed\nArchitecture: amd64\nVersion: 2.0",
        "install ok installed\nArchitecture: amd64\nVersion: 2.0",
    )
    (nodes.roots["n2"] / "etc/bedplate/node.conf").write_text("name=n1\n")
    result = run(nodes)
    assert isinstance(result.exception, DifferencesFound)
    assert str(result.exception) == "n[1-3]: not what the lock says"
    found = rows(result)
    assert [row[:3] for row in found] == [
        ["os", "n3", "hold libnuma1"],
        ["fabric", "n[1-2]", "package nvidia-fabricmanager-570"],
        ["config", "n2", "file /etc/bedplate/node.conf"],
        ["config", "n[1-2]", "mode of /etc/nccl.conf"],
    ]
    assert found[1][3:] == ["570.133.20-1", "570.86.15-1"]
    assert found[3][3:] == ["0644", "0600"]
    (event,) = nodes.events("drift.found")
    assert event.body["drifted"] == "n[1-3]"
    assert {"nodes": "n[1-2]", "layer": "fabric", "item": "package nvidia-fabricmanager-570", "wanted": "570.133.20-1",
            "found": "570.86.15-1"} in event.body["drifts"]  # fmt: skip
    assert "differ: n[1-3]; os hold libnuma1: not held (install), lock says held, and 3 more" in story.summary(event)


def test_a_unit_that_a_condition_skipped_is_a_drift(nodes: Fleet) -> None:
    (nodes.roots["n1"] / "units").mkdir()
    (nodes.roots["n1"] / "units/nvidia-fabricmanager.service").write_text(
        "LoadState=loaded\nActiveState=inactive\nSubState=dead\nUnitFileState=enabled\nNeedDaemonReload=no\n"
        "ConditionResult=no\nConditionTimestampMonotonic=9001204\n"
    )
    result = run(nodes, "n1")
    assert isinstance(result.exception, DifferencesFound)
    assert "a condition was not met, so systemd skipped it and called that a success" in result.stdout


def test_json_has_every_drift_of_every_node_and_keeps_to_its_schema(nodes: Fleet) -> None:
    dpkg(nodes, "n1", "Version: 570.133.20-1", "Version: 570.86.15-1")
    nodes.instead["n3"] = "echo no"
    document = json.loads(run(nodes, "--json").stdout)
    assert document["counts"] == {"none": 1, "drift": 1, "unknown": 1}
    one = document["nodes"]["n1"]
    assert (one["verdict"], one["environment"], one["identity"]) == ("drift", "A", nodes.identity)
    assert one["drifts"] == [{
        "layer": "fabric", "item": "package nvidia-fabricmanager-570", "wanted": "570.133.20-1", "found": "570.86.15-1",
    }]  # fmt: skip
    assert document["nodes"]["n2"]["verdict"] == "none"
    (why,) = document["nodes"]["n3"]["unknown"]
    assert (why["layer"], why["item"]) == (None, "everything")
    assert "not understood" in why["why"]
    assert document["event"] == nodes.events("drift.found")[0].id


@pytest.mark.parametrize(
    ("path", "value"),
    [("nodes/n1/verdict", "fine"), ("nodes/n1/drifts", [{}]), ("counts", {}), ("nodes/n1/verdict", "unknown")],
)
def test_the_schema_refuses_what_is_not_so(path: str, value: Any, nodes: Fleet) -> None:
    document = json.loads(run(nodes, "--json").stdout)
    *parents, last = path.split("/")
    here = document
    for parent in parents:
        here = here[parent]
    here[last] = value
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, SCHEMA)


def test_a_node_that_does_not_answer_is_not_without_drift(nodes: Fleet) -> None:
    run(nodes)
    nodes.instead["n2"] = "exit 3"
    dpkg(nodes, "n1", "Version: 570.133.20-1", "Version: 570.86.15-1")
    result = run(nodes)
    assert isinstance(result.exception, NodesFailed)
    assert str(result.exception) == "n2: not everything is known; n1: not what the lock says"
    assert "n2" in result.stdout
    assert "ended with 3" in result.stdout
    cached = run(nodes, "n2", "--cached")
    assert isinstance(cached.exception, NodesFailed), "older facts are no news of a node that did not answer since"
    nodes.instead.clear()
    assert run(nodes, "n2").exit_code == 0


def test_one_thing_that_could_not_be_read_is_not_without_drift(nodes: Fleet) -> None:
    (nodes.roots["n1"] / "var/lib/dpkg/status").unlink()
    result = run(nodes, "n1")
    assert isinstance(result.exception, NodesFailed)
    assert ["os", "n1", "packages", ""] in [row[:4] for row in rows(result)]
    (event,) = nodes.events("drift.unknown")
    assert event.body["nodes"] == {"none": "", "drift": "", "unknown": "n1"}


def test_cached_asks_nobody_records_nothing_and_says_how_old_facts_are(nodes: Fleet) -> None:
    CliRunner().invoke(collect, ["n[1-2]"], obj=nodes.root)
    before, asked = nodes.events(), len(nodes.commands)
    result = run(nodes, "n[1-2]", "--cached")
    assert result.exit_code == 0, (result.output, result.exception)
    assert "facts: collected 0 s ago" in result.stdout or " s ago; the oldest" in result.stdout
    assert (nodes.events(), len(nodes.commands)) == (before, asked)
    document = json.loads(run(nodes, "n[1-2]", "--cached", "--json").stdout)
    assert document["event"] is None
    assert document["nodes"]["n1"]["age_s"] >= 0


def test_cached_knows_nothing_of_a_node_that_was_never_collected(nodes: Fleet) -> None:
    CliRunner().invoke(collect, ["n1"], obj=nodes.root)
    result = run(nodes, "n[1-2]", "--cached")
    assert isinstance(result.exception, NodesFailed)
    assert rows(result) == [["-", "n2", "everything", "", "not known: never collected (run: bedplate collect)"]]


def test_cached_facts_from_before_a_change_are_stale(nodes: Fleet) -> None:
    run(nodes)
    nodes.done("n1", identity=nodes.identity)
    result = run(nodes, "--cached")
    assert isinstance(result.exception, NodesFailed)
    (row,) = rows(result)
    assert row[1] == "n1"
    assert "stale: collected at" in row[4]
    assert "changed since by event" in row[4]
    assert run(nodes).exit_code == 0


def test_a_node_in_doubt_is_not_compared(nodes: Fleet) -> None:
    nodes.record(Draft("batch.admitted", ("rollout:9", "node:n1"), {}, nodes.identity))
    result = run(nodes, "n[1-2]")
    assert isinstance(result.exception, NodesFailed)
    assert "in doubt: rollout 9 began to change it" in result.stdout


def test_a_node_of_which_the_ledger_knows_no_environment_is_not_without_drift(tmp_path: Path) -> None:
    with fleet(tmp_path) as made:
        result = run(made)
        assert isinstance(result.exception, NodesFailed)
        assert "the ledger has no environment for it" in result.stdout


def test_the_lock_that_a_node_runs_counts_and_not_the_file_of_that_name(nodes: Fleet) -> None:
    replace_in(nodes.root / "environments/A.lock.json", "570.133.20-1", "570.200.00-1")
    assert run(nodes).exit_code == 0, "the file was changed, the nodes were not"
    (nodes.root / "environments/A.lock.json").unlink()
    assert run(nodes).exit_code == 0


def test_templates_of_another_checkout_leave_files_unknown_and_packages_compared(nodes: Fleet, tmp_path: Path) -> None:
    template = tmp_path / "checkout/roles/base/templates/nccl.conf.j2"
    template.write_text(CHECKOUT["roles/base/templates/nccl.conf.j2"] + "# more\n")
    dpkg(nodes, "n1", "Version: 570.133.20-1", "Version: 570.86.15-1")
    document = json.loads(run(nodes, "n1", "--json").stdout)["nodes"]["n1"]
    assert [d["item"] for d in document["drifts"]] == ["package nvidia-fabricmanager-570"]
    assert {u["item"] for u in document["unknown"]} == {"files", "units"}
    assert "not those of lock A" in document["unknown"][0]["why"]


def test_a_kind_that_the_lock_is_not_for_is_not_compared(nodes: Fleet) -> None:
    replace_in(nodes.root / "fleet.yml", '"n3", kind: gpu', '"n3", kind: controller')
    result = run(nodes, "n3")
    assert isinstance(result.exception, NodesFailed)
    assert "lock A is for gpu; by the fleet file this node is of kind controller" in result.stdout


def test_many_packages_that_are_not_held_do_not_fill_the_table(nodes: Fleet) -> None:
    lock = lock_site(nodes.site, "A", packages=50)
    nodes.done(identity=lock.identity)
    nodes.record(Draft("batch.admitted", ("rollout:2", "node:n1"), {}, lock.identity))
    nodes.done("n1", identity=lock.identity)
    result = run(nodes, "n1")
    assert isinstance(result.exception, DifferencesFound)
    found = rows(result)
    assert len(found) == 9
    assert found[-1] == ["os", "n1", "package …", "", "and 42 more (--json has them)"]
    (event,) = nodes.events("drift.found")
    assert (len(event.body["drifts"]), event.body["left_out"]) == (50, 0)


def test_an_image_is_held_to_its_hash_on_request(nodes: Fleet) -> None:
    result = run(nodes, "n1", "--hash-images")
    assert isinstance(result.exception, DifferencesFound), "the file is of the right size, and has other bytes"
    assert rows(result)[0][:4] == ["image", "n1", "image file", digest("8")[:19]]


def test_what_makes_no_sense_is_refused(nodes: Fleet) -> None:
    assert isinstance(run(nodes, "--cached", "--hash-images").exception, BadInput)
    assert isinstance(run(nodes, "n9").exception, BadInput)
    replace_in(nodes.root / "fleet.yml", "site: sample", "site: sample\nexample: true")
    assert isinstance(run(nodes).exception, Refused)
    assert not nodes.commands
    assert not nodes.events(factbook.COLLECTED)
