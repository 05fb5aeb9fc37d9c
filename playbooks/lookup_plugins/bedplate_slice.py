"""Door to bedplate.doors.slice."""

from bedplate.doors.slice import LookupModule

__all__ = ["LookupModule"]

DOCUMENTATION = """
name: bedplate_slice
short_description: What the lock of an environment says for this node's kind, and the node's rendered files
description:
  - Read once in a process; a playbook's group_vars give roles their values through it.
options:
  _terms:
    description: The name of the environment.
    required: true
"""
