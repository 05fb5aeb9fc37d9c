"""Door to bedplate.doors.words."""

from bedplate.doors.words import LookupModule

__all__ = ["LookupModule"]

DOCUMENTATION = """
name: bedplate_words
short_description: The hosts of a play that is no rollout, once what it is asked with can be
description:
  - Refuses extra variables that nothing reads, an example site, and an environment that is not locked.
options:
  _terms:
    description: The name of the environment, empty for what the ledger says of each node.
    required: true
"""
