"""For which Slurm a SPANK plug-in was built: the symbol plugin_version in its bytes.

Slurm compares it with its own number under the mask 0xffff00 (src/common/plugin.c): major and minor count, micro does
not. The number is SLURM_VERSION_NUMBER: 0x180b05 is 24.11.5.
"""

import io

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

SYMBOL = "plugin_version"
_SIZE = 4  # const uint32_t


class NoPlugin(ValueError):
    """The bytes are no SPANK plug-in; says why."""


def spank_abi(data: bytes) -> str:
    """The release that a plug-in was built for: "24.11".

    Raises:
        NoPlugin: no ELF file, or one without a plugin_version that can be read.
    """
    try:
        number = _number(data)
    # pyelftools checks little: a damaged file is any of these.
    except (ELFError, ValueError, KeyError, IndexError, AttributeError, TypeError, UnicodeDecodeError, OverflowError,
            MemoryError, AssertionError) as fault:  # fmt: skip
        if isinstance(fault, NoPlugin):
            raise
        raise NoPlugin(f"no ELF file that can be read: {type(fault).__name__}: {fault}") from fault
    return f"{number >> 16 & 0xFF}.{number >> 8 & 0xFF:02d}"


def _number(data: bytes) -> int:
    elf = ELFFile(io.BytesIO(data))
    table = elf.get_section_by_name(".dynsym")
    if not isinstance(table, SymbolTableSection):
        raise NoPlugin("no table of dynamic symbols: not a shared object")
    symbols = table.get_symbol_by_name(SYMBOL) or []
    for symbol in symbols:
        if not isinstance(symbol["st_shndx"], int):
            continue  # it is asked for, not defined
        section = elf.get_section(symbol["st_shndx"])
        offset = symbol["st_value"] - section["sh_addr"]
        value = section.data()[offset : offset + _SIZE]
        if symbol["st_size"] != _SIZE or offset < 0 or len(value) != _SIZE:
            raise NoPlugin(f"{SYMBOL} is no 32-bit number")
        return int.from_bytes(value, "little" if elf.little_endian else "big")
    raise NoPlugin(f"no symbol {SYMBOL}: not a plug-in of Slurm")
