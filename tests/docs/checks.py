"""docs/checks.md, generated from the checks themselves: python tests/docs/checks.py > docs/checks.md"""

from itertools import groupby

from bedplate_agent.check import Check
from bedplate_agent.registry import every

HEAD = """# Checks

Generated from `tools/bedplate_agent/checks` by `tests/docs/checks.py`; a test fails when it differs.

What each check holds a node against comes from outside the node: the hardware model (`models/NAME.yml`), its health
profile (`models/NAME.health.yml`), the lock, the fleet. [health.md](health.md) says how they are run and read.

The action is that of a failure; a check that knows more says another one (a pending MIG mode is a reboot).

| class | when | within |
|---|---|---|
| passive | any time, beside jobs | 20 s together |
| slow | any time, not in a prolog: the BMC | 200 s |
| idle | no job on the node | 20 s |
| active | the node is idle, and drained or reserved | 90 minutes |
"""
COLUMNS = "| check | what holds | expectation | class | action |\n|---|---|---|---|---|\n"
TITLES = {
    "bmc": "BMC", "dcgm": "DCGM", "driver": "Driver", "fabric": "Fabric", "gpu": "GPUs", "host": "Host",
    "ib": "InfiniBand", "kernel": "Kernel log", "nccl": "NCCL", "nvbandwidth": "nvbandwidth", "nvlink": "NVLink",
    "rdma": "RDMA",
}  # fmt: skip


def family(check: Check) -> str:
    return check.id.partition(".")[0]


def page() -> str:
    parts = [HEAD]
    for name, checks in groupby(every(), key=family):
        parts.append(
            f"\n## {TITLES[name]}\n\n| check | what holds | expectation | class | action |\n|---|---|---|---|---|\n"
        )
        parts += [
            f"| `{check.id}` | {check.what} | {check.source} | {check.klass} | {check.action} |\n" for check in checks
        ]
    return "".join(parts)


if __name__ == "__main__":
    print(page(), end="")
