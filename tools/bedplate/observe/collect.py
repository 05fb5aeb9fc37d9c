"""Asks nodes what they are: one remote command each, all at once; every node asked ends as one Collected."""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bedplate.decide.render import file_entries
from bedplate.decide.roles import declared
from bedplate.decide.squashfs import IMAGES
from bedplate.model.facts import Facts, parse_facts
from bedplate.model.faults import BadInput
from bedplate.observe import agent
from bedplate.sources import checkout
from bedplate.sources.site import Site
from bedplate.ssh import Answer, Target, run_everywhere

COMMAND = "python3 -I -"  # isolated: neither the environment nor a home directory of the node has a say in it
WIDTH = 128  # connections at once: a handshake costs the controller 10 to 20 ms, an answer some 200 KB of memory
TIMEOUT_S = 90.0  # of a node, with its login; the program takes a second where disks are idle
PART_DEADLINE_S = 20
HASHED_PART_DEADLINE_S = 900  # 25 GB at 30 MB/s


@dataclass(frozen=True)
class Collected:
    """What came of one node: its facts, or why there are none.

    clock_off_ms: how far its clock is surely wrong: outside the time in which it was asked; negative: it is behind.
    """

    node: str
    facts: Facts | None
    why: str | None = None
    clock_off_ms: int = 0


def questions(sources: dict[str, bytes], *, hash_images: bool = False) -> dict[str, Any]:
    """What every node is asked: each file that a role may put there, each unit that one promises.

    Raises:
        BadInput: a role's files.yml or role.yml is wrong.
    """
    return {
        "paths": sorted(entry.path for entry in file_entries(sources)),
        "units": sorted({unit for role in declared(sources) for unit in role.units}),
        "images": IMAGES, "hash_images": hash_images,
        "deadline_s": HASHED_PART_DEADLINE_S if hash_images else PART_DEADLINE_S,
    }  # fmt: skip


def program(asked: dict[str, Any]) -> bytes:
    """The node's program with its questions: what goes to the stdin of COMMAND."""
    source = Path(agent.__file__).read_text()
    # repr of a JSON text is a Python literal, whatever stands in it
    return f"{source}\n\nmain(json.loads({json.dumps(asked)!r}))\n".encode()


def collect(
    site: Site,
    names: Sequence[str],
    *,
    width: int = WIDTH,
    timeout_s: float = TIMEOUT_S,
    hash_images: bool = False,
    report: Callable[[Collected], None],
) -> None:
    """Ask nodes; report is called with each as soon as it answered, or was given up.

    Raises:
        Refused: the site is an example.
        BadInput: a role's files.yml or role.yml is wrong.
    """
    site.refuse_example("collect facts")
    ssh = site.fleet.ssh
    targets = [
        Target(name, site.fleet.nodes[name].address, ssh.user, ssh.port, site.identity_path, site.known_hosts_path)
        for name in names
    ]
    sent = program(questions(checkout.roles(), hash_images=hash_images))
    if hash_images:
        timeout_s += HASHED_PART_DEADLINE_S
    began_ms = time.time_ns() // 1_000_000
    for answer in run_everywhere(targets, COMMAND, stdin=sent, width=width, timeout_s=timeout_s):
        report(understood(answer, began_ms, time.time_ns() // 1_000_000))


def understood(answer: Answer, began_ms: int, ended_ms: int) -> Collected:
    """An answer as facts, or why it is none; it was asked for between two times of the controller's clock."""
    if not answer.ok:
        missing = ": no python3 on the node" if answer.code == 127 else ""  # noqa: PLR2004  sh: command not found
        return Collected(answer.name, None, answer.why + missing)
    try:
        facts = parse_facts(answer.out, answer.name)
    except BadInput as fault:
        return Collected(answer.name, None, f"not understood: {fault}")
    at_ms = getattr(facts.time, "utc_ms", None)
    off_ms = 0 if at_ms is None else min(0, at_ms - began_ms) or max(0, at_ms - ended_ms)
    return Collected(answer.name, facts, clock_off_ms=off_ms)
