"""With which options a squashfs is made, and one that is gone is made again."""

import pytest

from bedplate.decide.images.compression import BLOCK, recorded, squash_options


@pytest.mark.parametrize("block", ["128K", "256K", "512K", "1M"])
@pytest.mark.parametrize("importers_own", ["", " -all-root"])
def test_what_a_record_has_is_used_again_as_it_was(block: str, importers_own: str) -> None:
    assert recorded(squash_options(block) + importers_own) == squash_options(block)


def test_new_ones_have_blocks_of_256_kib() -> None:
    assert squash_options() == "-comp zstd -Xcompression-level 3 -b 256K -exit-on-error" == squash_options(BLOCK)


@pytest.mark.parametrize(
    "options",
    [
        "",
        "-comp lzo -noD",
        squash_options("3M"),
        squash_options("1M -root-owned"),
        squash_options() + " -all-root -p /etc/shadow",
        squash_options().replace("-comp zstd", "-comp lz4"),
        squash_options() + "\n",
    ],
)
def test_what_was_never_ours_is_not_used_again(options: str) -> None:
    assert recorded(options) is None
