"""A long text on one line, with its front and its end: programs begin with their command and end with the cause.

Example: brief("apt-get failed:\nReading lists...\nE: no space left", 40) -> "apt-get failed: ... E: no space left"
"""

GAP = " ... "
FRONT = 2, 5  # two fifths of what there is room for: what was done is known elsewhere, the cause stands at the end


def on_one_line(text: str) -> str:
    """Text on one line, without what would steer a terminal."""
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())


def brief(text: str, width: int) -> str:
    """Text on one line of at most width characters.

    Of several lines that are too long together: the first, and the last that says something. What is too long then
    keeps its front and its end.
    """
    whole = on_one_line(text)
    if len(whole) <= width:
        return whole
    said = [line for line in map(on_one_line, text.splitlines()) if any(letter.isalnum() for letter in line)]
    first, last = (said[0], said[-1]) if said else (whole, whole)
    room = width - len(GAP)
    front = room * FRONT[0] // FRONT[1]
    if len(said) > 1:
        front = max(front, room - len(last))
    head = first[:front]
    return f"{head.rstrip()}{GAP}{last[-(room - len(head)) :].lstrip()}"
