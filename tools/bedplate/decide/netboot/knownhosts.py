"""known_hosts with the key that a machine made for itself, in place of what stood there for it before."""

from collections.abc import Sequence


def with_key(text: str, names: Sequence[str], key: str, *, port: int = 22) -> str:
    """The file with one line for these names; lines of other machines stay as they are."""
    wanted = [name if port == 22 else f"[{name}]:{port}" for name in names]  # noqa: PLR2004  what ssh leaves out
    kept = [line for line in text.splitlines() if not set(wanted) & set(_names(line))]
    return "".join(f"{line}\n" for line in [*kept, f"{','.join(wanted)} {key}"])


def _names(line: str) -> list[str]:
    words = line.split()
    if not words or words[0].startswith("#"):
        return []
    return (words[1] if words[0].startswith("@") and len(words) > 1 else words[0]).split(",")
