"""Health in the ledger: one event for a run, and one for each node that is not well, each of a few hundred bytes.

health.run     {"run", "classes", "agent_sha256", "nodes": {"PASS": "gpu[001-640]", …}, "profiles": [sha256, …]}
health.judged  {"run", "verdict", "reason", "counts", "findings": […]} about node:NAME
"""

from collections.abc import Sequence

from bedplate.model.event import Draft
from bedplate.model.nodes import fold
from bedplate_agent.sinks import Result, reason, summary
from bedplate_agent.verdict import PASS

RUN, JUDGED = "health.run", "health.judged"


def drafts(results: Sequence[Result], *, run: str, classes: Sequence[str], agent_sha256: str) -> list[Draft]:
    """The events of a run."""
    nodes: dict[str, list[str]] = {}
    for result in results:
        nodes.setdefault(result.verdict, []).append(result.node)
    body = {
        "run": run, "classes": list(classes), "agent_sha256": agent_sha256,
        "nodes": {verdict: fold(names) for verdict, names in sorted(nodes.items())},
        "profiles": sorted({result.profile for result in results if result.profile}),
    }  # fmt: skip
    about = [draft for result in results if (draft := judged(result)) is not None]
    return [Draft(RUN, (f"health:{run}",), body), *about]


def judged(result: Result) -> Draft | None:
    """The event about a node that is not well; None: all of it passed."""
    if result.verdict == PASS:
        return None
    return Draft(JUDGED, (f"node:{result.node}",), {"run": result.run, "reason": reason(result), **summary(result)})
