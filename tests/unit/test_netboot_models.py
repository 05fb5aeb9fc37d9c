"""A golden for each hardware model that there is, also for those that the example has no machines of.

Write them anew, for a change that is meant: python tests/unit/test_netboot_models.py; then read their diff as code.
"""

import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT / "tests"))

import pytest  # noqa: E402
import yaml  # noqa: E402

from bedplate.decide.autoinstall.lint import lint  # noqa: E402
from bedplate.sources.site import open_site  # noqa: E402
from unit.netboot_sample import OF_MODEL, recipe, write_example  # noqa: E402
from unit.site_sample import replace_in  # noqa: E402

GOLDENS = Path(__file__).with_name("goldens") / "netboot"
OTHERS = ("hgx-h100", "hgx-h200")
"""Models of machines like those of the kind gpu; their nodes are rendered in place of these."""
NO_MODELS = {"common", "hgx-b200-data"}  # the second: test_netboot_data_disks.py


def rendered(model: str, folder: Path) -> dict[str, str]:
    """The files of gpu001, were it of another model."""
    write_example(folder / "site")
    replace_in(folder / "site/fleet.yml", "gpu: {model: hgx-b200,", f"gpu: {{model: {model},")
    made = recipe(open_site(folder / "site"))
    return made.files(made.nodes(["gpu001"])[0])


def test_every_model_of_the_example_has_a_golden() -> None:
    models = {path.name.partition(".")[0] for path in (ROOT / "inventory/models").glob("*.yml")}
    assert models == {*OF_MODEL, *OTHERS} == {path.name for path in GOLDENS.iterdir()} - NO_MODELS


@pytest.mark.parametrize("model", OTHERS)
def test_a_node_of_a_model_that_nobody_has_yet_is_rendered_byte_for_byte(model: str, tmp_path: Path) -> None:
    files = rendered(model, tmp_path)
    assert files == {path.name: path.read_text() for path in (GOLDENS / model).iterdir()}
    assert [str(each) for name, text in files.items() for each in lint(text.encode(), name).findings] == []


@pytest.mark.parametrize("model", [*OF_MODEL, *OTHERS])
def test_a_golden_of_each_model_names_its_boot_disks_by_serial_and_nothing_else_that_is_wiped(model: str) -> None:
    actions = yaml.safe_load((GOLDENS / model / "user-data").read_text())["autoinstall"]["storage"]["config"]
    disks = [action for action in actions if action["type"] == "disk"]
    assert disks
    assert all(list(disk["match"]) == ["serial"] and disk["match"]["serial"].startswith("*EX") for disk in disks)
    assert {action["device"] for action in actions if action["type"] == "partition"} == {disk["id"] for disk in disks}


def main() -> None:
    for model in OTHERS:
        (GOLDENS / model).mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as folder:
            for name, text in rendered(model, Path(folder)).items():
                (GOLDENS / model / name).write_text(text)


if __name__ == "__main__":
    main()
