"""Door to bedplate.doors.record."""

from bedplate.doors.record import CallbackModule

__all__ = ["CallbackModule"]

DOCUMENTATION = """
name: bedplate_ledger
type: aggregate
short_description: Writes every step of a rollout to its ledger
description:
  - Loaded because it lies beside the playbook; silent unless a rollout is open.
"""
