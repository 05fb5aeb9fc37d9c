"""Keeps an emulated machine on: a reset from inside is a power cycle, with a new QEMU.

QEMU 7.2 gets slower with each reset of one process under TCG, up to a firmware that does not come through: what was
translated of earlier boots is walked at every store to their pages. A new process has none of it.

Called as `powered.py SOCKET QEMU WORDS...`, SOCKET for QEMU's own use; ends with QEMU, unless that ended by a reset.
"""

import contextlib
import json
import socket
import subprocess
import sys
import time
from pathlib import Path

RESET = "guest-reset"  # the reason that QEMU's event SHUTDOWN gives


def argv(place: Path) -> list[str]:
    """The words before QEMU's own; place: a directory of the machine's."""
    return [sys.executable, "-E", __file__, str(place / "monitor")]


def main(arguments: list[str]) -> int:
    path, *words = arguments
    while True:
        Path(path).unlink(missing_ok=True)
        qemu = subprocess.Popen([*words, "-no-reboot", "-qmp", f"unix:{path},server=on,wait=off"])
        reason = _why_it_ends(path, qemu)
        code = qemu.wait()
        if code or reason != RESET:
            return code


def _why_it_ends(path: str, qemu: subprocess.Popen[bytes]) -> str | None:
    """What QEMU says of its end, when it comes; None where it says nothing."""
    reason = None
    with socket.socket(socket.AF_UNIX) as monitor, contextlib.suppress(OSError):
        while monitor.connect_ex(path):
            if qemu.poll() is not None:
                return None
            time.sleep(0.05)  # it has not come so far yet
        with monitor.makefile("rwb") as lines:
            lines.write(b'{"execute": "qmp_capabilities"}\n')  # without it no event is told
            lines.flush()
            for line in lines:
                said = json.loads(line)
                if said.get("event") == "SHUTDOWN":
                    reason = said["data"]["reason"]
    return reason


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
