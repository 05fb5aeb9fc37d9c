"""Work on millions of objects that never refer to themselves, without looking among them for those that do."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Python's collector of cycles waits: it takes a sixth of the time of what makes objects by the million."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
