"""What Slurm says of nodes, and what it is asked to do with them: texts in, texts out.

- A reason that is there is somebody's: a node is drained only where there is none, and resumed only where the reason
  is exactly the one that was seen. Both are looked at once more in the moment before, on slurmctld's own machine.
- Each node is asked for by itself: one that Slurm does not know keeps no other from its drain.
"""

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass

SHOW = "scontrol show nodes --json"
DONE, THEIRS = "done", "theirs"
OUT = frozenset({"DRAIN", "DOWN", "FAIL"})  # flags of a node that gets no job
BUSY = frozenset({"ALLOCATED", "MIXED", "COMPLETING"})
# Slurm's own judgement of a node: resuming it would only hide this.
NOT_WHOLE = frozenset({
    "DOWN", "NOT_RESPONDING", "INVALID_REG", "UNKNOWN", "FAIL", "POWERED_DOWN", "REBOOT_ISSUED", "FUTURE",
})  # fmt: skip
_NAME = re.compile(r"[a-z0-9-]+")


class NoAnswer(Exception):
    """Slurm's answer is none, with why."""


@dataclass(frozen=True)
class SlurmNode:
    name: str
    flags: frozenset[str]
    reason: str
    partitions: tuple[str, ...] = ()

    @property
    def out(self) -> bool:
        return bool(self.flags & OUT)

    @property
    def busy(self) -> bool:
        return bool(self.flags & BUSY)

    @property
    def whole(self) -> bool:
        return not self.flags & NOT_WHOLE

    @property
    def state(self) -> str:
        return "+".join(sorted(self.flags))


def shown(text: str) -> dict[str, SlurmNode]:
    """What SHOW printed.

    Raises:
        NoAnswer: it is no list of nodes.
    """
    try:
        rows = json.loads(text)["nodes"]
        found = [
            SlurmNode(
                str(row["name"]), frozenset(str(flag).upper() for flag in row["state"]), str(row.get("reason") or ""),
                tuple(map(str, row.get("partitions") or ())),
            )
            for row in rows
        ]  # fmt: skip
    except (ValueError, KeyError, TypeError) as fault:
        raise NoAnswer(f"scontrol's answer is no list of nodes: {type(fault).__name__}: {fault}") from None
    if not found:
        raise NoAnswer("scontrol knows no node")
    return {node.name: node for node in found}


def drains(reasons: Mapping[str, str]) -> str:
    """A shell script that drains nodes; node -> reason. It prints `NODE done`, `NODE theirs` or `NODE failed WHY`."""
    return "".join(
        _step(name, f"*' Reason='*) echo {name} {THEIRS};; *) ", f"state=drain reason={shlex.quote(reason)}")
        for name, reason in reasons.items()
    )


def resumes(reasons: Mapping[str, str]) -> str:
    """A shell script that gives nodes back whose reason is still the one that was seen; node -> reason."""
    return "".join(
        _step(name, f"*' Reason='{shlex.quote(reason)}' ['*) found=1;; *) found=;; esac\n"
                    f"case $found in '') echo {name} {THEIRS};; *) ", "state=resume")
        for name, reason in reasons.items()
    )  # fmt: skip


def _step(name: str, unless: str, setting: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is no name of a node")
    return (
        f"if said=$(scontrol --oneliner show node {name} 2>&1); then case $said in {unless}"
        f"if said=$(scontrol update nodename={name} {setting} 2>&1); then echo {name} {DONE}; "
        f"else echo {name} failed $said; fi;; esac; else echo {name} failed $said; fi\n"
    )


def outcomes(text: str, asked: Mapping[str, str]) -> dict[str, str]:
    """Node -> "" where it was done, else why not; a node of which the script said nothing was not done."""
    said = {}
    for line in text.splitlines():
        name, _, what = line.partition(" ")
        said[name] = what
    found = {}
    for name in asked:
        what = said.get(name, "Slurm said nothing")
        if what == DONE:
            found[name] = ""
        elif what == THEIRS:
            found[name] = "somebody else's reason stands there by now"
        else:
            found[name] = what.removeprefix("failed ") or "Slurm refused it"
    return found
