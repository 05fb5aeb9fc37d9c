"""Connection to nodes that exist only in a scenario or in a weather; it runs nothing.

SIM_SCENARIO: {node or "*": {step: act}}. An act is "fail", "unreachable", "hang" (until the task's time is over),
"slow", {"until": FILE} (the step lasts until the file is there), {"sql": STATEMENT} (run on the database SIM_LEDGER
while the step runs), or, for `verify`, a verdict. SIM_WEATHER: {"seed", "rates": {act: share of all steps}, "only":
steps}: what becomes of a step where no scenario says it, the same for the same seed, node and step. SIM_WORLD: the
file where each step is noted, as the nodes saw it: the truth that the ledger is held against.
"""

import hashlib
import json
import os
import re
import sqlite3
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.connection import ConnectionBase

from bedplate.act.acceptance import Wanted
from bedplate.decide.acceptance import ANSWERED, FAILED, PASSED, REFUSED, UNKNOWN, Answered
from bedplate.decide.statedigest import Digested, parse_digest
from bedplate.decide.verification import ERROR, FAIL, PASS, UNREACHABLE, Row, Verification, judge_node
from bedplate.model.event import Draft
from bedplate.sources.site import Site

DOCUMENTATION = """
name: sim
short_description: Nodes that exist only in a scenario or in a weather
options:
  host:
    description: Name of the node.
    vars: [{name: inventory_hostname}]
"""
HANG_S, SLOW_S = 600.0, 0.2
VERDICTS = {"fail": FAIL, "unreachable": UNREACHABLE, "hang": ERROR, "slow": PASS}  # of a check in bad weather


class Connection(ConnectionBase):
    transport = "sim"
    has_pipelining = True

    @staticmethod
    def act(node: str, step: str) -> Any:
        """What becomes of a step, after it was noted as begun."""
        _note("begin", node, step)
        scenario = _scenario()
        said = {**scenario.get("*", {}), **scenario.get(node, {})}.get(step)
        return _weather(node, step) if said is None else said

    @classmethod
    def verify(cls, site: Site, asked: Mapping[str, str]) -> dict[str, Verification]:  # noqa: ARG003
        """In the place of the verification over ssh."""
        found = {}
        for node, name in asked.items():
            act = cls.act(node, "verify") or PASS
            row = Row(node, "sim", "driver", VERDICTS.get(act, act), "as the scenario says")
            found[node] = judge_node(node, name, [row], {"packages": "sha256:" + "0" * 64})
            if found[node].verdict == PASS:
                _note("end", node, "verify")
        return found

    @classmethod
    def look(cls, site: Site, node: str, wanted: Wanted) -> tuple[Answered, Draft]:  # noqa: ARG003
        """In the place of the questions that a node's image asks: the step `answer`; a hang is what nobody knows."""
        bad = {"fail": FAILED, "unreachable": UNKNOWN, "hang": UNKNOWN}.get(cls.act(node, "answer"))
        answered = Answered(bad or PASSED, "compute: rank 3 is wrong" if bad else "", "its log" if bad else "")
        if not bad:
            _note("end", node, "answer")
        body = {
            "asked": list(wanted.questions), "engine": wanted.engine, "environment": wanted.environment,
            "verdict": answered.verdict, "why": answered.why, "profile": {"name": "sim"},
        }  # fmt: skip
        return answered, Draft(REFUSED if bad else ANSWERED, (f"node:{node}",), body)

    @classmethod
    def digests(cls, site: Site, programs: Mapping[str, str]) -> dict[str, Digested | str]:  # noqa: ARG003
        """In the place of the question over ssh."""
        return {node: parse_digest(f"bedplate-state 9 {cls.state(node)}\n") for node in programs}

    @staticmethod
    def state(node: str) -> str:
        """The digest of a node's state: the scenario's word for it, or the same for all."""
        scenario = _scenario()
        return str({**scenario.get("*", {}), **scenario.get(node, {})}.get("state", "0" * 64))

    def _connect(self) -> "Connection":
        self._connected = True
        return self

    def exec_command(self, cmd: str, in_data: Any = None, sudoable: bool = True) -> tuple[int, bytes, bytes]:  # noqa: ARG002
        if "bedplate-state" in cmd:
            return 0, f"bedplate-state 9 {self.state(self.get_option('host'))}\n".encode(), b""
        node, found = self.get_option("host"), re.search(r"\bstep (\w+)", cmd)
        assert found, cmd
        step = found[1]
        act = self.act(node, step)
        if act == "unreachable":
            raise AnsibleConnectionFailure(f"{node} does not answer")
        if act == "fail":
            return 1, b"", b"scripted failure, not UTF-8: \xff"
        if act in ("hang", "slow"):
            time.sleep(HANG_S if act == "hang" else SLOW_S)
        elif act and "until" in act:
            while not Path(act["until"]).exists():
                time.sleep(0.02)
        elif act and "sql" in act:
            with sqlite3.connect(os.environ["SIM_LEDGER"]) as database:
                database.execute(act["sql"])
            database.close()
        _note("end", node, step)
        return 0, b"", b""

    def put_file(self, in_path: str, out_path: str) -> None:
        raise NotImplementedError

    fetch_file = put_file

    def close(self) -> None:
        self._connected = False


def _scenario() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(os.environ["SIM_SCENARIO"]).read_text())
    return found


@cache
def _climate() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(os.environ.get("SIM_WEATHER") or "{}")
    return found


def _weather(node: str, step: str) -> str | None:
    """The act that the seed gives to this step on this node: a share of all steps for each act."""
    climate = _climate()
    if not climate or step not in climate.get("only", [step]):
        return None
    drawn = hashlib.sha256(f"{climate['seed']} {node} {step}".encode()).digest()
    at = int.from_bytes(drawn[:8]) / 2**64
    for act, share in climate["rates"].items():
        if at < share:
            return str(act)
        at -= share
    return None


def _note(*words: str) -> None:
    with Path(os.environ["SIM_WORLD"]).open("ab", buffering=0) as world:
        world.write((" ".join(words) + "\n").encode())
