"""Programs of the project that are files, not modules of a package: Ansible's, and what a bare machine runs."""

import importlib.util
from pathlib import Path
from types import ModuleType

from bedplate.sources import checkout


def load(path: str) -> ModuleType:
    """A program as a module, each time a new one; path: in the checkout."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, checkout.root() / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def node_program() -> ModuleType:
    """What a bare machine runs of itself, autoinstall/node.py."""
    return load("autoinstall/node.py")


def ansible_module(name: str) -> ModuleType:
    """A module of playbooks/library, as bedplate_NAME."""
    return load(f"playbooks/library/bedplate_{name}.py")
