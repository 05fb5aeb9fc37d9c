"""How a squashfs is compressed: what new ones get, and with what a lost one is made again.

A lock names a file by its bytes, and they depend on these options. So the record of an artifact has them, and an
artifact that is gone is made again with those of its record, not with what is the default by then (ADR 5).
"""

import re

# Enroot's own default, lzo with uncompressed data, is 18 GB where zstd has 7 (PyTorch 25.09), on every node. Blocks of
# 256 KiB against 1 MiB: the image is 3 to 5 % larger, the patch of an upgrade 40 % (docs/distribution.md, ADR 5).
BLOCK = "256K"
_OPTIONS = "-comp zstd -Xcompression-level 3 -b {block} -exit-on-error"
_RECORDED = re.compile(re.escape(_OPTIONS).replace(r"\{block\}", r"(128K|256K|512K|1M)") + "( -all-root)?")


def squash_options(block: str = BLOCK) -> str:
    """What mksquashfs is told."""
    return _OPTIONS.format(block=block)


def recorded(options: str) -> str | None:
    """The same for options as a record has them; None: they are of another form, and are not used again."""
    found = _RECORDED.fullmatch(options)
    return squash_options(found[1]) if found else None
