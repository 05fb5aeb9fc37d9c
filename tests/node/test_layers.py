"""The host layers as they run: units, kernel and modules, one version from driver to library, Docker, mounts."""

import pytest

from bedplate.model.layers import Layer
from bedplate.observe.expectation import Expectation
from bedplate.observe.hostlayers import HostLayers, emptied, lacking

HOST_LAYERS = (Layer.OS, Layer.KERNEL, Layer.DRIVER, Layer.FABRIC, Layer.CONTAINER, Layer.SCHEDULER)
ENABLED = {"enabled", "enabled-runtime", "static", "alias", "generated", "indirect", "linked"}


def managed(expected: Expectation, layer: str) -> None:
    if layer in expected.unmanaged:
        pytest.skip(f"unmanaged: {expected.unmanaged[layer]}")


@pytest.mark.parametrize("layer", [pytest.param(it.value, marks=pytest.mark.layer(it.value)) for it in HOST_LAYERS])
def test_units_run(node: str, layer: str, expected: Expectation, layers: HostLayers) -> None:
    managed(expected, layer)
    units = [unit for unit, of in expected.units.items() if of == layer]
    if not units:
        pytest.skip("no role of this layer has a unit here")
    found = {unit: layers.units.get(unit, ("absent", "absent")) for unit in units}
    wrong = [f"{unit} is {active}" for unit, (active, _) in found.items() if active != "active"]
    wrong += [
        f"{unit} is {state}: a reboot would lose it" for unit, (_, state) in found.items() if state not in ENABLED
    ]
    assert not wrong, "; ".join(wrong)


@pytest.mark.layer("kernel")
def test_the_kernel_of_the_lock_runs(node: str, expected: Expectation, layers: HostLayers) -> None:
    managed(expected, "kernel")
    if expected.kernel:
        assert layers.kernel == expected.kernel, f"{layers.kernel} runs, the lock says {expected.kernel}"
    words = expected.lock.layers["kernel"].get("command_line", [])
    absent = [word for word in words if word not in layers.command_line]
    assert not absent, f"the kernel runs without {' '.join(absent)}"


@pytest.mark.layer("kernel")
def test_kernel_modules_are_loaded(node: str, expected: Expectation, layers: HostLayers) -> None:
    if not expected.modules:
        pytest.skip("no role of this node needs one")
    absent = [name for name in expected.modules if name.replace("-", "_") not in layers.modules]
    assert not absent, f"not loaded: {', '.join(absent)}"


@pytest.mark.layer("driver")
def test_driver_library_and_lock_are_of_one_version(node: str, expected: Expectation, layers: HostLayers) -> None:
    managed(expected, "driver")
    if not expected.driver:
        pytest.skip("the lock has no driver")
    wrong = []
    if layers.modules.get("nvidia") != expected.driver:
        wrong.append(f"the loaded driver is {layers.modules.get('nvidia', 'absent')}")
    wrong += [
        f"libnvidia-ml is {version} (Driver/library version mismatch)"
        for version in layers.libraries
        if version != expected.driver
    ]
    assert not wrong, f"{'; '.join(wrong)}; the lock says {expected.driver}"


@pytest.mark.layer("driver")
def test_no_library_of_the_driver_is_empty(node: str, expected: Expectation, layers: HostLayers) -> None:
    """A failed installation leaves them; no rollout repairs what dpkg calls installed."""
    managed(expected, "driver")
    found = emptied(layers.empty, expected.packages)
    assert not found, "; ".join(found)


@pytest.mark.layer("fabric")
def test_fabric_manager_is_the_drivers(node: str, expected: Expectation, layers: HostLayers) -> None:
    managed(expected, "fabric")
    if not any(name.startswith("nvidia-fabricmanager") for name in expected.packages):
        pytest.skip("the lock has no Fabric Manager")
    loaded = layers.modules.get("nvidia", "absent")
    assert layers.manager == loaded, f"Fabric Manager is {layers.manager or 'absent'}, the loaded driver is {loaded}"
    bad = [line for line in layers.fabric if line.replace(" ", "") != "Completed,Success"]
    assert layers.fabric, "nvidia-smi says nothing of the fabric"
    assert not bad, f"fabric of {len(bad)} GPUs: {bad[0]}"


@pytest.mark.layer("container")
def test_docker_has_our_configuration(node: str, expected: Expectation, layers: HostLayers) -> None:
    managed(expected, "container")
    if "docker-ce" not in expected.packages:
        pytest.skip("the lock has no Docker")
    assert layers.ours is not None, "what we want of Docker is not on the node"
    found = lacking(layers.ours, layers.daemon)
    assert not found, f"/etc/docker/daemon.json: {'; '.join(found)}"


@pytest.mark.layer("os")
def test_kernel_settings_hold(node: str, expected: Expectation, layers: HostLayers) -> None:
    managed(expected, "os")
    if not layers.settings:
        pytest.skip("the environment has none")
    wrong = [
        f"{key} is {there or 'absent'}, not {want}" for key, (want, there) in layers.settings.items() if want != there
    ]
    assert not wrong, "; ".join(wrong)


@pytest.mark.layer("os")
def test_material_is_read_only_and_runs_can_be_written(node: str, expected: Expectation, layers: HostLayers) -> None:
    if "material.mount" not in expected.units:
        pytest.skip("the environment mounts no storage")
    assert "ro" in layers.mounts.get("/material", ()), "/material is not mounted read-only"
    assert "rw" in layers.mounts.get("/runs", ()), "/runs is not mounted, or cannot be written"


@pytest.mark.layer("os")
def test_an_upgrade_would_change_nothing_of_the_lock(node: str, expected: Expectation, layers: HostLayers) -> None:
    """A hold on a kernel image and not on its metapackage brings the next kernel: only apt itself can say.

    A kernel that the lock does not name counts as well, where the lock has one: it would be the next to boot.
    """
    managed(expected, "os")
    ours = "kernel" not in expected.unmanaged
    touched = [
        line
        for line in layers.upgrade
        if (name := line.split()[1].partition(":")[0]) in expected.packages
        or (ours and line.startswith("Inst ") and name.startswith("linux-image-"))
    ]
    assert not touched, f"apt-get dist-upgrade would: {'; '.join(touched[:5])}"
    failed = [line for line in layers.upgrade if line.startswith("E:")]
    assert not failed, "; ".join(failed)
