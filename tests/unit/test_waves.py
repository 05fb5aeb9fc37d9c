"""Several environments are one upgrade: in Slurm's order, each when the one before is everywhere."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from bedplate.cli import rollout as command
from bedplate.decide.waves import in_waves
from bedplate.model.faults import BadInput, NodesFailed, Refused
from unit.site_sample import write_site

DATABASE, NODES, CLIENTS = ["base", "slurm_database", "slurm_controller"], ["base", "slurm_node"], ["slurm_login"]


@pytest.mark.parametrize(
    ("roles", "expected"),
    [
        ({"N": NODES, "C": CLIENTS, "S": DATABASE}, ["S", "N", "C"]),
        ({"C": CLIENTS, "N2": NODES, "N1": NODES}, ["N2", "N1", "C"]),
        ({"ALL": [*DATABASE, *NODES], "N": NODES}, ["ALL", "N"]),
        ({"X": ["base"]}, ["X"]),
    ],
)
def test_controllers_go_before_nodes_and_nodes_before_clients(roles: dict[str, list[str]], expected: list[str]) -> None:
    assert in_waves(roles) == expected


class Told:
    """In the place of rollouts: which were begun; those in `fails` do not come to their target."""

    def __init__(self, *fails: str) -> None:
        self.begun: list[str] = []
        self.fails = fails

    def __call__(self, _: object, order: Any, *, tell: Any, **__: object) -> None:
        self.begun.append(order.environment)
        tell({"environment": order.environment})
        if order.environment in self.fails:
            raise NodesFailed("n3 failed")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    root = write_site(tmp_path / "site")
    monkeypatch.setattr(command, "_in_waves", lambda _, names: sorted(names, reverse=True))

    def go(told: Told, *words: str) -> Any:
        monkeypatch.setattr(command, "_roll_out", told)
        return CliRunner().invoke(command.rollout, [*words, "--yes"], obj=root)

    return go


def test_the_next_environment_begins_when_the_one_before_is_everywhere(run: Any) -> None:
    told = Told()
    done = run(told, "N", "S", "--json")
    assert done.exit_code == 0, done.output
    assert told.begun == ["S", "N"]
    assert json.loads(done.stdout) == {"not_begun": [], "rollouts": [{"environment": "S"}, {"environment": "N"}]}


def test_after_one_that_failed_nothing_more_begins_and_it_is_said(run: Any) -> None:
    told = Told("S")
    done = run(told, "N", "S", "C")
    assert told.begun == ["S"]
    assert isinstance(done.exception, NodesFailed)
    assert "not begun, since S is not everywhere: N, C" in done.stderr
    document = json.loads(run(Told("N"), "N", "S", "C", "--json").stdout)
    assert document == {"not_begun": ["C"], "rollouts": [{"environment": "S"}, {"environment": "N"}]}


def test_one_environment_is_one_document_as_ever_and_a_plan_is_of_one(run: Any) -> None:
    assert json.loads(run(Told(), "A", "--json").stdout) == {"environment": "A"}
    refused = run(Told(), "A", "B", "--plan", "sha256:0")
    assert isinstance(refused.exception, BadInput)
    assert "--plan is of one environment" in str(refused.exception)


def test_an_environment_that_is_not_locked_begins_nothing(tmp_path: Path) -> None:
    root = write_site(tmp_path / "site")
    done = CliRunner().invoke(command.rollout, ["A", "B", "--yes"], obj=root)
    assert isinstance(done.exception, Refused)
    assert "is not locked (run: bedplate lock A)" in str(done.exception)
