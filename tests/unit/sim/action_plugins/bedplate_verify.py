"""The product's action, beside nodes that answer as the scenario says instead of over ssh."""

from collections.abc import Mapping

from ansible.plugins.loader import connection_loader

from bedplate.decide.verification import PASS, Row, Verification, judge_node
from bedplate.doors import verify as door
from bedplate.doors.verify import ActionModule
from bedplate.sources.site import Site

__all__ = ["ActionModule"]


def verify(site: Site, asked: Mapping[str, str]) -> dict[str, Verification]:
    sim = connection_loader.get("sim", class_only=True)
    return {
        node: judge_node(
            node, name, [Row(node, "sim", "driver", sim.act(node, "verify") or PASS, "as the scenario says")],
            {"packages": "sha256:" + "0" * 64},
        )
        for node, name in asked.items()
    }  # fmt: skip


door.verify = verify  # type: ignore[attr-defined]
