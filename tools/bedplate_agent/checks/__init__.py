"""The checks: a file each, found by registry.py."""
