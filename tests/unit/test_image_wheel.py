"""A wheel against a commit, file by file."""

import zipfile
from pathlib import Path

import pytest

from bedplate.decide.images.wheel import wheel_difference
from bedplate.model.faults import BadInput
from bedplate.sources.wheel import compared

COMMIT = {
    "megatron/core/package_info.py": "0.19.1\n", "megatron/core/model.py": "same\n", "megatron/core/Makefile": "all:\n",
    "pretrain_gpt.py": "not packed\n", "megatron/core/__pycache__/model.pyc": "x",
}  # fmt: skip
WHEEL = {
    "megatron/core/package_info.py": "0.19.2\n", "megatron/core/model.py": "same\n",
    "megatron/core/helpers_cpp.so": "ELF", "megatron/core/made.py": "by the build\n",
    "megatron_core-0.19.2.dist-info/RECORD": "",
}  # fmt: skip


def write(folder: Path) -> tuple[Path, Path]:
    for name, text in COMMIT.items():
        path = folder / "checkout" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    wheel = folder / "megatron_core-0.19.2-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in WHEEL.items():
            archive.writestr(name, text)
    return wheel, folder / "checkout"


def test_every_file_is_told_by_where_it_is_and_whether_it_is_the_same(tmp_path: Path) -> None:
    found = compared(*write(tmp_path))
    assert found["same"] == 1
    assert list(found["differ"]) == ["megatron/core/package_info.py"]
    assert found["compiled"] == ["megatron/core/helpers_cpp.so"]
    assert found["wheel_only"] == ["megatron/core/made.py"]
    assert found["commit_only"] == ["megatron/core/Makefile"]


def test_two_things_that_have_nothing_in_common_are_not_compared(tmp_path: Path) -> None:
    wheel, _ = write(tmp_path)
    (tmp_path / "other").mkdir()
    with pytest.raises(BadInput, match="no file of the wheel"):
        compared(wheel, tmp_path / "other")
    with pytest.raises(ValueError, match="no file"):
        wheel_difference({}, {})


def test_a_file_that_is_no_wheel_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.whl").write_text("x")
    with pytest.raises(BadInput, match=r"a\.whl: no wheel"):
        compared(tmp_path / "a.whl", tmp_path)
