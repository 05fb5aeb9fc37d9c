"""What a reader wrote (readers.py): `key TAB value` lines, and at the end how many there were."""

from __future__ import annotations

from bedplate_agent.parse.text import NotUnderstood, integer, shown


class Listing(dict[str, str]):
    """Key -> value; keys are paths relative to what the reader reads, values one line each."""

    def need(self, key: str) -> str:
        """A value.

        Raises:
            NotUnderstood: the node does not have it.
        """
        try:
            return self[key]
        except KeyError:
            raise NotUnderstood(f"{key} is not there") from None

    def under(self, prefix: str) -> dict[str, str]:
        """The entries whose key begins with prefix/, without it."""
        start = f"{prefix}/"
        return {key[len(start) :]: value for key, value in self.items() if key.startswith(start)}

    def names(self) -> list[str]:
        """The first parts of all keys, in order, each once."""
        return list(dict.fromkeys(key.partition("/")[0] for key in self))


def parse(text: str) -> Listing:
    lines = text.split("\n")[:-1]
    if not lines or not lines[-1].startswith("end\t"):
        raise NotUnderstood("it does not tell its end: cut off")
    found = Listing()
    for line in lines[:-1]:
        key, tab, value = line.partition("\t")
        if not tab or not key or key in found:
            raise NotUnderstood(f"no line of a listing: {shown(line)}")
        found[key] = value
    wanted = integer(lines[-1].partition("\t")[2], "end")
    if wanted != len(found):
        raise NotUnderstood(f"it says that it has {wanted} lines and has {len(found)}")
    return found
