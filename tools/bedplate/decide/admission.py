"""Whether a batch that the budget allows may begin now: maintenance windows, and a person's approval."""

import datetime
from collections.abc import Collection

from bedplate.decide.plan import Batch
from bedplate.model.policy import Policy
from bedplate.model.window import why_closed


def why_not_now(policy: Policy, batch: Batch, *, now: datetime.datetime, approved: Collection[str], name: str) -> str:
    """Why it may not begin; empty: it may.

    now: by the clock of the policy's time zone; approved: batches that a person approved for the environment `name`.
    """
    closed = why_closed(policy.windows, now)
    if closed:
        return f"{closed} ({policy.timezone}); the same command goes on then"
    if batch.name in policy.approvals and batch.name not in approved:
        return (
            f"the {batch.name} batches wait for a person's word"
            f" (run: bedplate rollout {name} --approve {batch.name} --approved-by NAME --reason TEXT)"
        )
    return ""
