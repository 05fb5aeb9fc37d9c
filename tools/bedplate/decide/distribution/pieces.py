"""How large the pieces of a torrent are."""

SMALLEST = 64 * 1024  # smaller ones cost more messages than they win
LARGEST = 16 * 1024 * 1024  # what other clients read
MOST = 6144  # pieces: 25 GB in pieces of 4 MiB


def piece_bytes(size: int) -> int:
    """A power of two: small pieces are given on sooner, many pieces are many messages."""
    found = SMALLEST
    while found < LARGEST and size > found * MOST:
        found *= 2
    return found
