"""What Slurm says of GPUs: of a node (`scontrol show node NAME --json`), and of the tasks of a step."""

from __future__ import annotations

import re
from typing import NamedTuple

from bedplate_agent.parse.text import NotUnderstood, document, integer, member, shown

_GRES = re.compile(r"gpu:(?:([a-z0-9_-]+):)?([0-9]+)(?:\(.*?\))?")
_TASK = re.compile(r"([0-9]+): GPU [0-9]+: (.+) \(UUID: (GPU-[0-9a-f-]{36})\)")


class Gres(NamedTuple):
    """type: empty where the node registered GPUs without one; state: the words of the node's state."""

    type: str
    gpus: int
    state: list[str]
    reason: str


def parse_gres(text: str) -> Gres:
    nodes = member(document(text, "scontrol"), "nodes", list, "scontrol")
    if len(nodes) != 1:
        raise NotUnderstood(f"{len(nodes)} nodes where one was asked for")
    gres = member(nodes[0], "gres", str, "the node")
    state = member(nodes[0], "state", list, "the node")
    if not all(isinstance(word, str) for word in state):
        raise NotUnderstood("the node's state is no list of words")
    found = [match for part in re.split(r",(?![^()]*\))", gres) if (match := _GRES.fullmatch(part))]
    if len(found) > 1:
        raise NotUnderstood(f"several GPUs in {shown(gres)}")
    reason = str(nodes[0].get("reason", ""))
    return Gres(found[0][1] or "", int(found[0][2]), state, reason) if found else Gres("", 0, state, reason)


def parse_step(text: str) -> dict[int, list[str]]:
    """`srun --label … nvidia-smi -L`: task -> UUIDs that it sees; the last line says how many tasks there were."""
    lines = text.splitlines()
    end = re.fullmatch(r"tasks ([0-9]+)", lines[-1])
    if end is None:
        raise NotUnderstood("it does not tell the number of tasks: cut off")
    found: dict[int, list[str]] = {task: [] for task in range(integer(end[1], "tasks"))}
    for line in lines[:-1]:
        match = _TASK.fullmatch(line.strip())
        if match is None or int(match[1]) not in found:
            raise NotUnderstood(f"no GPU of a task: {shown(line)}")
        found[int(match[1])].append(match[3])
    return found
