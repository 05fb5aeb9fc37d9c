"""Whether a batch that the budget allows may begin now: maintenance windows, and a person's approval."""

import datetime
from collections.abc import Collection

from bedplate.decide.plan import Batch
from bedplate.model.nodes import fold
from bedplate.model.policy import Policy
from bedplate.model.window import why_closed


def why_not_now(policy: Policy, batch: Batch, *, now: datetime.datetime, approved: Collection[str], name: str) -> str:
    """Why it may not begin; empty: it may.

    now: by the clock of the policy's time zone; approved: batches that a person approved for the environment `name`.
    """
    closed = why_closed(policy.windows, now)
    if closed:
        return f"{closed} ({policy.timezone}); the same command goes on then"
    wanted = batch.fresh or batch.name
    if wanted in policy.approvals and wanted not in approved:
        run = f"run: bedplate rollout {name} --approve {wanted} --approved-by NAME --reason TEXT"
        if not batch.fresh:
            return f"the {wanted} batches wait for a person's word ({run})"
        bad = fold(batch.nodes[:-1])
        return (
            f"{batch.nodes[-1]}, which is fresh, goes with {bad} in the place of a {wanted} batch, and those wait for a"
            f" person's word ({run}; or {bad} alone: --nodes '{bad}')"
        )
    return ""
