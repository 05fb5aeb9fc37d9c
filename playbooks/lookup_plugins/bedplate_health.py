"""Door to bedplate.doors.health."""

from bedplate.doors.health import LookupModule

__all__ = ["LookupModule"]

DOCUMENTATION = """
name: bedplate_health
short_description: The health agent as a file on the controller, and what this node must show under a lock
description:
  - The agent is built once, and lies in the user's cache under its hash.
options:
  _terms:
    description: The name of the environment.
    required: true
"""
