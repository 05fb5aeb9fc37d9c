"""Which nodes a change will boot, and why: what the boot step will find, foretold from two locks."""

from bedplate.decide.lockdoc import LockDocument
from bedplate.decide.wiring import the_driver, the_kernel


def reboot_reasons(old: LockDocument | None, new: LockDocument, kind: str) -> list[str]:
    """Why nodes of a kind that leave one lock for another will boot; None: what they run is not known.

    A change that needs no boot by itself may still find one outstanding on a node: that is the node's to say.
    """
    packages = {name: package.version for name, package in new.packages(kind).items()}
    kernel, driver = the_kernel(packages), the_driver(packages)
    words = list(new.layers["kernel"].get("command_line", []))
    if old is None or kind not in old.kinds:
        wanted = [f"kernel {kernel}"] * bool(kernel) + [f"driver {driver}"] * bool(driver)
        return [f"{each}, unless it runs already" for each in wanted]
    before = {name: package.version for name, package in old.packages(kind).items()}
    pairs = (
        ("kernel", the_kernel(before), kernel), ("driver", the_driver(before), driver),
        ("command line", " ".join(old.layers["kernel"].get("command_line", [])), " ".join(words)),
    )  # fmt: skip
    return [f"{what} {then or 'none'} -> {now or 'none'}" for what, then, now in pairs if then != now]
