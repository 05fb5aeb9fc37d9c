"""`bedplate netboot logs`: what a machine reported and sent, one command away."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from bedplate.cli.netboot import netboot
from bedplate.model.faults import BadInput
from unit.test_netboot_server import Place, server

pytestmark = pytest.mark.slow


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """A machine whose installation failed, and which sent its logs."""
    made = Place(tmp_path)
    made.arm("gpu001")
    with server(made) as client:
        client.boots("gpu001")
        client.seed("gpu001")
        client.inventory("gpu001")
        client.report("gpu001", "subiquity/Install/install", result="FAIL", description="no mirror")
        token = made.token("gpu001")
        assert client.ask("PUT", f"/upload/gpu001/{token}/installer-logs.tar.gz", b"\x1f\x8blogs")[0] == 201
    yield made
    made.ledger.close()


def logs(place: Place, *words: str) -> Any:
    return CliRunner().invoke(netboot, ["logs", *words, "--dir", str(place.folder)], obj=place.site.root)


def test_the_reports_are_shown_and_the_files_that_were_sent(place: Place) -> None:
    done = logs(place, "gpu001")
    assert done.exception is None, done.output
    rows = [line.split("\t") for line in done.output.splitlines()]
    assert rows[1][1:] == ["subiquity/Install/install", "finish", "FAIL", "no mirror"]
    assert {row[0].rpartition("/")[2] for row in rows[4:]} == {
        "installer-logs.tar.gz", "inventory.json", "reports.jsonl",
    }  # fmt: skip


def test_one_file_is_written_as_it_is(place: Place) -> None:
    assert logs(place, "gpu001", "--file", "installer-logs.tar.gz").stdout_bytes == b"\x1f\x8blogs"


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["gpu002"], "no logs of gpu002: it reported nothing to this boot server"),
        (
            ["gpu001", "--file", "../../armed/gpu001/index.json"],
            "gpu001 sent no ../../armed/gpu001/index.json (there are",
        ),
        (["gpu[001-002]"], "NODE gpu[001-002]: 2 nodes (the logs of one at a time)"),
        (["gpu999"], "has no gpu999"),
    ],
)
def test_what_is_not_there_is_told_with_what_is(place: Place, words: list[str], why: str) -> None:
    done = logs(place, *words)
    assert isinstance(done.exception, BadInput)
    assert why in str(done.exception)


def test_a_report_that_a_power_cut_halved_hides_no_other(place: Place) -> None:
    with (place.folder / "logs/gpu001/reports.jsonl").open("a") as file:
        file.write('{"name": "subi')
    assert "no mirror" in logs(place, "gpu001").output
