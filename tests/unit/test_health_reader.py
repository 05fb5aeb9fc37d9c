"""What Slurm's programs read: a verdict that is fresh, whole and of this boot, or nothing is known."""

import subprocess
from pathlib import Path

import pytest

from bedplate.decide.render import JINJA
from bedplate.sources import checkout
from bedplate_agent.command import write
from bedplate_agent.sinks import Result, verdict_file
from bedplate_agent.verdict import ERROR, FAIL, PASS, WARN, Finding

TEMPLATES = checkout.root() / "roles" / "health_agent" / "templates"
VALUES = {"values": {"health_interval_s": "300"}}
LIMIT_S = 720  # two looks, and what one may take
BOOT = Path("/proc/sys/kernel/random/boot_id").read_text().strip()


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("reader") / "health-verdict"
    path.write_text(JINJA.from_string((TEMPLATES / "health-verdict.sh.j2").read_text()).render(VALUES))
    return path


def uptime() -> int:
    return int(float(Path("/proc/uptime").read_text().split()[0]))


def asked(reader: Path, file: Path, mode: str = "healthcheck") -> tuple[int, str]:
    # An empty PATH: it starts no program, least of all one of Slurm's.
    done = subprocess.run(
        ["/bin/sh", reader, mode, file], capture_output=True, text=True, check=False, env={"PATH": "/nowhere"}
    )
    return done.returncode, done.stderr


def said(verdict: str, *, age_s: int = 5, boot_id: str = BOOT) -> str:
    finding = Finding(verdict, "a row waits = for 'a' reset", "gpu3", check="gpu.remap_pending")
    return verdict_file(Result("n1", verdict, (finding,), "0123456789abcdef", boot_id=boot_id), uptime() - age_s)


@pytest.mark.parametrize(
    ("verdict", "healthcheck", "prolog"),
    [(PASS, 0, 0), (WARN, 0, 0), (FAIL, 1, 1), (ERROR, 2, 0), ("FINE", 2, 2), ("", 2, 2)],
)
def test_a_fresh_verdict_is_what_it_says(
    reader: Path, tmp_path: Path, verdict: str, healthcheck: int, prolog: int
) -> None:
    file = tmp_path / "verdict"
    file.write_text(said(PASS).replace("verdict=PASS", f"verdict={verdict}"))
    assert asked(reader, file)[0] == healthcheck
    assert asked(reader, file, "prolog")[0] == prolog


def test_a_node_that_failed_says_why_with_slurms_reason(reader: Path, tmp_path: Path) -> None:
    (tmp_path / "verdict").write_text(said(FAIL))
    code, why = asked(reader, tmp_path / "verdict")
    assert code == 1
    assert why == "HC:gpu.remap_pending:gpu3 0123456789ab: gpu.remap_pending gpu3 a row waits = for 'a' reset\n"


@pytest.mark.parametrize("mode", ["healthcheck", "prolog"])
def test_a_verdict_that_is_missing_old_of_another_boot_or_of_the_future_is_none(
    reader: Path, tmp_path: Path, mode: str
) -> None:
    file = tmp_path / "verdict"
    assert asked(reader, file, mode)[0] == 2
    for text in (
        said(PASS, age_s=LIMIT_S + 60), said(PASS, age_s=-600), said(PASS, boot_id="another"), said(PASS, boot_id=""),
        said(PASS).replace("uptime_s=", "uptime_s=x"), "",
    ):  # fmt: skip
        file.write_text(text)
        assert asked(reader, file, mode)[0] == 2, text
    file.unlink()
    file.mkdir()
    assert asked(reader, file, mode)[0] == 2


def test_no_truncation_of_a_verdict_is_healthy(reader: Path, tmp_path: Path) -> None:
    text, file = said(PASS), tmp_path / "verdict"
    for length in range(0, len(text) - 1, 7):
        file.write_text(text[:length])
        assert asked(reader, file)[0] == 2, text[:length]


def test_what_the_agent_writes_is_what_the_reader_reads(reader: Path, tmp_path: Path) -> None:
    write(str(tmp_path / "run"), Result("n1", PASS, (Finding(PASS, "", check="a.b"),), "r"))
    assert asked(reader, tmp_path / "run" / "verdict") == (0, "")
    assert (tmp_path / "run" / "bedplate_health.prom").read_text().startswith("# HELP bedplate_health_status")
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == [
        "bedplate_health.prom", "results.jsonl", "verdict",
    ]  # fmt: skip


def test_neither_reader_nor_prolog_calls_slurm() -> None:
    for path in TEMPLATES.iterdir():
        words = [line for line in path.read_text().splitlines() if not line.lstrip().startswith("#")]
        assert not [line for line in words if "scontrol" in line or "sinfo" in line], path
