"""Which roles a machine gets, and in which order."""

import pytest

from bedplate.decide.roles import Role, applicable, declared
from bedplate.model.faults import BadInput
from bedplate.model.layers import Layer
from unit.lock_sample import parsed


def sources(**texts: str) -> dict[str, bytes]:
    return {f"roles/{name}/role.yml": text.encode() for name, text in texts.items()}


def names(**texts: str) -> list[str]:
    return [role.name for role in declared(sources(**texts))]


def faults(**texts: str) -> list[str]:
    with pytest.raises(BadInput) as caught:
        declared(sources(**texts))
    return [str(fault) for fault in caught.value.faults]


def test_roles_come_in_the_order_of_layers_then_after_then_names() -> None:
    assert names(slurm="layer: scheduler\nafter: [zz]", zz="layer: scheduler", base="layer: os", aa="layer: image") == [
        "base",
        "zz",
        "slurm",
        "aa",
    ]


def test_a_role_says_all_of_itself() -> None:
    text = "layer: fabric\npackages: [nvlsm]\npreflight: true\nunits: [x.service]"
    assert declared(sources(fm=text)) == [Role("fm", Layer.FABRIC, ("nvlsm",), (), (), True, ("x.service",))]


def test_every_fault_of_every_declaration_is_told_at_once() -> None:
    assert faults(a="layer: drivre", b="layer: os\nafter: [c]", d="layer: os\nwhen: x", e="layer: os\nafter: [f]",
                  f="layer: image") == [
        'roles/a/role.yml:1: layer: unknown layer "drivre" (did you mean "driver"?)',
        'roles/b/role.yml:2: after[0]: no role "c" (known: b, e, f)',
        ('roles/d/role.yml:2: unknown key "when"'
        " (known: layer, packages, beside, after, preflight, units, modules, values, replaces)"),
        "roles/e/role.yml:2: after[0]: f is of layer image, which comes after os (leave it out)",
    ]  # fmt: skip


def test_a_circle_is_told() -> None:
    assert faults(a="layer: os\nafter: [b]", b="layer: os\nafter: [a]") == [
        "roles/a/role.yml:2: after: a circle of roles: a, b"
    ]


def test_a_role_applies_where_its_layer_is_managed_and_one_of_its_packages_is_locked() -> None:
    roles = declared(
        sources(
            base="layer: os", slurm="layer: scheduler", driver="layer: driver\npackages: [nvidia-driver-*]",
            other="layer: driver\npackages: [amdgpu]",
        )
    )  # fmt: skip
    assert [role.name for role in applicable(roles, parsed(), "gpu")] == ["base", "driver"]


def test_a_role_that_needs_two_packages_applies_where_both_are_locked() -> None:
    roles = declared(
        sources(
            both="layer: fabric\npackages: [nvidia-fabricmanager*]\nbeside: [amdgpu, nvidia-driver-*]",
            one="layer: fabric\npackages: [nvidia-fabricmanager*]\nbeside: [amdgpu]",
        )
    )
    assert [role.name for role in applicable(roles, parsed(), "gpu")] == ["both"]
