"""A node's own digest of its state: a shell program that says one hash, and how its answer is read.

Invariants
- The hash is over what the node shows now: packages with their versions and holds, the lock's files with mode and
  content, package sources and pins, the kernel and its command line, loaded modules, units, and which image is current.
- Only equality means something: two equal digests are one state. It is compared with the digest of the same node when
  its last change ended, verified under the same lock; a lock alone has none, as a machine has packages of its own.
- Of the image, 25 GB, size and times are taken, and not its content: `bedplate verify` hashes that.
"""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from bedplate.decide.squashfs import IMAGES

MARK = "bedplate-state"
ANSWER = re.compile(rf"{MARK} (?P<parts>\d+) (?P<digest>[0-9a-f]{{64}})")
PARTS = 9  # lines that say a part is whole: fewer, and the node did not say all of its state

PROGRAM = r"""
state() {{
LC_ALL=C; export LC_ALL
dpkg-query -W -f='${{binary:Package}} ${{Version}} ${{db:Status-Want}} ${{db:Status-Status}}\n' && echo whole
for f in {files}; do if test -f "$f"; then stat -c '%a %u:%g %n' "$f" && sha256sum "$f"; else echo "absent $f"; fi; done
echo whole
ls -d /etc/apt/sources.list /etc/apt/sources.list.d/* /etc/apt/preferences /etc/apt/preferences.d/* 2>/dev/null
echo whole
uname -r && echo whole
cat /proc/cmdline && echo whole
for m in {modules}; do
  if test -d "/sys/module/$m"; then echo "$m $(cat "/sys/module/$m/version" 2>/dev/null)"; fi; done
echo whole
for u in {units}; do systemctl is-active "$u" 2>&1; systemctl is-enabled "$u" 2>&1; done
echo whole
test ! -e {image} || {{ readlink -f {image} && stat -L -c '%s %Y %Z %i' {image}; }}
echo whole
test ! -e /run/reboot-required || echo reboot
echo whole
}}
s=$(state) || exit 1
echo "{mark} $(printf '%s\n' "$s" | grep -cx whole) $(printf '%s\n' "$s" | sha256sum | cut -d' ' -f1)"
"""


@dataclass(frozen=True)
class Digested:
    """A digest, and what was recorded with it when it was proven."""

    sha256: str
    facts: Mapping[str, str] = field(default_factory=dict)
    manifest_sha256: str = ""


def digested(files: Sequence[str], *, units: Sequence[str], modules: Sequence[str]) -> str:
    """The shell program for a node with these files, units and modules."""
    return PROGRAM.format(
        files=shlex.join(sorted(files)) or "", units=shlex.join(units) or "",
        modules=shlex.join(name.replace("-", "_") for name in modules) or "",
        image=shlex.quote(f"{IMAGES}/current.sqsh"), mark=MARK,
    )  # fmt: skip


def parse_digest(text: str) -> Digested | str:
    """The answer of the program; a text: why it is none."""
    *_, last = text.strip().splitlines() or [""]
    match = ANSWER.fullmatch(last.strip())
    if match is None:
        return "its state cannot be digested: the answer is cut"
    if int(match["parts"]) != PARTS:
        return f"its state cannot be digested: {match['parts']} of {PARTS} parts were answered"
    return Digested(f"sha256:{match['digest']}")
