"""Bedplate: the environment of a GPU fleet as code, with a record of every layer."""

__version__ = "0.1.0"
