"""Filters of the scheduler's roles: what a node's Slurm may become, and for which Slurm a plug-in was built."""

import base64
from collections.abc import Callable
from typing import Any

from ansible.errors import AnsibleFilterError

from bedplate.decide.elf import NoPlugin, spank_abi
from bedplate.decide.upgrade import refusals


def bedplate_spank_abi(content: str) -> str:
    """The release ("24.11") that a plug-in was built for; content as ansible.builtin.slurp has it."""
    try:
        return spank_abi(base64.b64decode(content))
    except (NoPlugin, ValueError) as fault:
        raise AnsibleFilterError(f"spank_pyxis.so: {fault}") from fault


def bedplate_slurm_refusals(wanted: str, installed: str, controller: str) -> list[str]:
    """Why a node's slurmd may not become the wanted version."""
    return refusals(wanted=wanted, installed=installed or None, controller=controller)


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {
            "bedplate_spank_abi": bedplate_spank_abi,
            "bedplate_slurm_refusals": bedplate_slurm_refusals,
        }
