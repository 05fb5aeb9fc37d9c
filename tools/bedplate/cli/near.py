"""What a misspelt word was meant to be: the words there are, nearest first."""

import difflib
from collections.abc import Iterable

MOST = 3  # words that are named: more is a list to search, no answer


def nearest(word: str, known: Iterable[str], *, most: int = MOST) -> list[str]:
    """The known words that are most like it, the nearest first; none where nothing is like it."""
    return difflib.get_close_matches(word, sorted(set(known)), n=most, cutoff=0.5)


def said(word: str, known: Iterable[str]) -> str:
    """`nearest: a, b; `, or nothing: the beginning of a list of what there is."""
    found = nearest(word, known)
    return f"nearest: {', '.join(found)}; " if found else ""
