"""Plug-ins of Slurm, as far as anybody reads them before they are loaded."""

import struct


def shared_object(number: int, *, name: str = "plugin_version", size: int = 4, big: bool = False) -> bytes:
    """The smallest ELF file with one dynamic symbol: null, .rodata, .dynsym, .dynstr, .shstrtab."""
    order = ">" if big else "<"
    names = b"\0.rodata\0.dynsym\0.dynstr\0.shstrtab\0"
    strings = b"\0" + name.encode() + b"\0"
    data = struct.pack(order + "I", number)
    symbols = bytes(24) + struct.pack(order + "IBBHQQ", 1, 0x11, 0, 1, 0x1000, size)
    parts = [data, symbols, strings, names]
    offsets, at = [], 64
    for part in parts:
        offsets.append(at)
        at += len(part)
    types = [(1, 1, 2, 0x1000, 0, 0), (9, 11, 2, 0, 3, 24), (17, 3, 0, 0, 0, 0), (25, 3, 0, 0, 0, 0)]
    headers = bytes(64)
    for (title, kind, flags, address, link, entry), offset, part in zip(types, offsets, parts, strict=True):
        headers += struct.pack(
            order + "IIQQQQIIQQ", title, kind, flags, address, offset, len(part), link, 0, 1, entry
        )  # fmt: skip
    ident = b"\x7fELF" + bytes([2, 2 if big else 1, 1]) + bytes(9)
    head = ident + struct.pack(order + "HHIQQQIHHHHHH", 3, 62, 1, 0, 0, at, 0, 64, 0, 0, 64, 5, 4)
    return head + b"".join(parts) + headers
