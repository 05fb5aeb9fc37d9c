"""Connection to nodes that exist only in a scenario file; it runs nothing.

SIM_SCENARIO: {node or "*": {step: act}}. An act is "fail", "unreachable", {"until": FILE} (the step lasts until
the file is there), {"sql": STATEMENT} (run on the database SIM_LEDGER while the step runs), or, for `verify`, a
verdict. SIM_WORLD: the file where each step is noted, as the nodes saw it: the truth that the ledger is held against.
"""

import json
import os
import re
import sqlite3
import time
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.connection import ConnectionBase

DOCUMENTATION = """
name: sim
short_description: Nodes that exist only in a scenario file
options:
  host:
    description: Name of the node.
    vars: [{name: inventory_hostname}]
"""


class Connection(ConnectionBase):
    transport = "sim"
    has_pipelining = True

    @staticmethod
    def act(node: str, step: str) -> Any:
        """What the scenario says for a step, after it was noted as begun."""
        _note("begin", node, step)
        scenario = json.loads(Path(os.environ["SIM_SCENARIO"]).read_text())
        return {**scenario.get("*", {}), **scenario.get(node, {})}.get(step)

    def _connect(self) -> "Connection":
        self._connected = True
        return self

    def exec_command(self, cmd: str, in_data: Any = None, sudoable: bool = True) -> tuple[int, bytes, bytes]:  # noqa: ARG002
        node, found = self.get_option("host"), re.search(r"\bstep (\w+)", cmd)
        assert found, cmd
        step = found[1]
        act = self.act(node, step)
        if act == "unreachable":
            raise AnsibleConnectionFailure(f"{node} does not answer")
        if act == "fail":
            return 1, b"", b"scripted failure, not UTF-8: \xff"
        if act and "until" in act:
            while not Path(act["until"]).exists():
                time.sleep(0.02)
        if act and "sql" in act:
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


def _note(*words: str) -> None:
    with Path(os.environ["SIM_WORLD"]).open("ab", buffering=0) as world:
        world.write((" ".join(words) + "\n").encode())
