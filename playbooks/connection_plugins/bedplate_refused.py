"""Door to bedplate.doors.refused."""

from bedplate.doors.refused import Connection

__all__ = ["Connection"]

DOCUMENTATION = """
name: bedplate_refused
short_description: Refuses to contact a node of an example site
description:
  - The inventory plug-in gives it to every node of a site that says C(example: true).
"""
