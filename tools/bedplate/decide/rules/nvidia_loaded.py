"""The loaded kernel module is that of the installed packages."""

from collections.abc import Iterator

from bedplate.decide.rule import Finding, Rule, fault, unknown
from bedplate.decide.subject import Subject
from bedplate.model.layers import Layer
from bedplate.model.versions import same


def _check(subject: Subject) -> Iterator[Finding]:
    driver, machine = subject.driver(), subject.machine
    if machine is None or driver is None:
        return
    if not machine.driver and "nouveau" in machine.modules:
        yield fault(
            driver, f"{driver} is installed, kernel {machine.kernel} has given the GPUs to nouveau",
            "blacklist nouveau (options nouveau modeset=0), update-initramfs -u, reboot",
        )  # fmt: skip
    elif not machine.driver:
        yield unknown(driver, f"{driver} is installed, kernel {machine.kernel} has no driver loaded", "see dmesg")
    elif not same(driver.version, machine.driver):
        yield fault(
            driver, f"{driver} is installed, kernel {machine.kernel} runs the module {machine.driver}:"
            " Driver/library version mismatch",
            "reboot, once the kernel has the modules of the installed version",
        )  # fmt: skip


RULE = Rule(
    id="NVIDIA-LOADED",
    title="the loaded module is of the installed version",
    layers=(Layer.DRIVER, Layer.KERNEL),
    source="shine-cluster#30: an upgrade of libnvidia under a loaded module; NVIDIA driver installation guide: nouveau"
    " has to be disabled",
    check=_check,
    asked=False,
)
