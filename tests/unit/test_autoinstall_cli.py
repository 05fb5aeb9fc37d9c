"""`bedplate autoinstall lint` on files: all faults at once, and exit codes as everywhere."""

import json
from pathlib import Path

from click.testing import CliRunner, Result

from bedplate.cli.autoinstall import autoinstall
from bedplate.model.faults import BadInput
from unit.autoinstall_sample import GOOD


def run(*words: str | Path) -> Result:
    return CliRunner().invoke(autoinstall, ["lint", *map(str, words)], standalone_mode=False)


def test_a_good_file_is_good(tmp_path: Path) -> None:
    (tmp_path / "user-data").write_text(GOOD)
    done = run(tmp_path / "user-data")
    assert (done.return_value, done.output) == (0, "0 faults in 1 file\n")


def test_a_command_that_no_shell_can_read_is_told_with_its_line(tmp_path: Path) -> None:
    text = GOOD.replace("curtin in-target -- systemctl enable ssh", "if true; do echo; fi")
    text = text.replace('"test -e /sys/class/net"', '"echo \'x"').replace("echo hello\n", "echo ${hello\n")
    (tmp_path / "user-data").write_text(text)
    done = run("--json", tmp_path / "user-data")
    told = json.loads(done.output)["findings"]
    assert done.return_value == BadInput.exit_code
    assert {each["rule"] for each in told} == {"command-syntax"}
    assert [each["line"] for each in told] == [5, 70, 72]


def test_no_command_is_run(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    (tmp_path / "user-data").write_text(GOOD.replace("test -e /sys/class/net", f"touch {mark}"))
    assert run(tmp_path / "user-data").return_value == 0
    assert not mark.exists()


def test_a_directory_is_a_seed(tmp_path: Path) -> None:
    (tmp_path / "user-data").write_text(GOOD)
    (tmp_path / "meta-data").write_text("instance-id: n1\n")
    done = run(tmp_path)
    assert done.return_value == BadInput.exit_code
    assert "vendor-data: not there" in done.output
    (tmp_path / "vendor-data").write_text("")
    assert run(tmp_path).return_value == 0


def test_what_a_person_accepts_is_counted_and_what_is_no_policy_cannot_be(tmp_path: Path) -> None:
    path = tmp_path / "user-data"
    path.write_text(GOOD.replace("package: linux-image-6.8.0-138-generic", "flavor: ga"))
    assert run(path).return_value == BadInput.exit_code
    done = run("--accept", "kernel-pin", path)
    assert (done.return_value, done.output) == (0, "0 faults in 1 file, 1 accepted\n")
    for rule, part in (("unknown-key", "no matter of policy"), ("kernel-pni", "no such rule")):
        refused = run("--accept", rule, path)
        assert isinstance(refused.exception, BadInput)
        assert part in str(refused.exception)


def test_a_file_that_is_not_there_is_bad_input(tmp_path: Path) -> None:
    done = run(tmp_path / "a", tmp_path / "b")
    assert isinstance(done.exception, BadInput)
    assert len(done.exception.faults) == 2
