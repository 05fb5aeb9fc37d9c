"""The program that keeps an emulated machine on, with a stand-in for QEMU that ends as it is told."""

import sys
from pathlib import Path

import pytest

from lab import powered
from lab.powered import main

# Ends in turn as ends.txt says: a reason that it tells first, or an exit code.
QEMU = """\
import json, pathlib, socket, sys
here = pathlib.Path(__file__).parent
ends = (here / "ends.txt").read_text().split()
(here / "ends.txt").write_text(" ".join(ends[1:]))
with (here / "started.txt").open("a") as file:
    print(*sys.argv[1:], file=file)
if ends[0].isdigit():
    sys.exit(int(ends[0]))
path = sys.argv[sys.argv.index("-qmp") + 1].removeprefix("unix:").partition(",")[0]
with socket.create_server(path, family=socket.AF_UNIX) as server, server.accept()[0] as client:
    client.sendall(b'{"QMP": {}}\\n')
    assert json.loads(client.makefile().readline()) == {"execute": "qmp_capabilities"}
    client.sendall(b'{"return": {}}\\n{"event": "RTC_CHANGE", "data": {"offset": 0}}\\n')
    client.sendall(json.dumps({"event": "SHUTDOWN", "data": {"guest": True, "reason": ends[0]}}).encode() + b"\\n")
"""


@pytest.mark.parametrize(
    ("ends", "starts", "code"),
    [
        ("guest-reset guest-reset guest-shutdown", 3, 0),
        ("guest-shutdown", 1, 0),
        ("guest-reset 1", 2, 1),
        ("host-signal", 1, 0),
        ("0", 1, 0),
    ],
)
def test_a_reset_starts_qemu_anew_and_nothing_else_does(tmp_path: Path, ends: str, starts: int, code: int) -> None:
    (tmp_path / "qemu.py").write_text(QEMU)
    (tmp_path / "ends.txt").write_text(ends)
    own = powered.argv(tmp_path)[-1]
    assert main([own, sys.executable, str(tmp_path / "qemu.py"), "-smp", "2"]) == code
    started = (tmp_path / "started.txt").read_text().splitlines()
    assert started == [f"-smp 2 -no-reboot -qmp unix:{own},server=on,wait=off"] * starts
