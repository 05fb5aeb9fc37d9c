"""Door to bedplate.doors.plan."""

from bedplate.doors.plan import LookupModule

__all__ = ["LookupModule"]

DOCUMENTATION = """
name: bedplate_plan
short_description: Open this process's rollout and return its hosts and batch sizes
description:
  - Evaluated once in a process, for the play's C(hosts) and C(serial), before any node is contacted.
  - Takes the controller's lock and opens the ledger, except with C(--check) and the listing options.
options:
  _terms:
    description: The name of the environment.
    required: true
"""
