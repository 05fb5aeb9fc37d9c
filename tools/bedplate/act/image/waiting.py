"""Many who ask for the same image at once: one does the work, the others wait for it, and take what it made."""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from bedplate.act.image.state import Say, alone
from bedplate.model.faults import Busy
from bedplate.sources.site import Site

WAIT_S = 4 * 3600  # as long as an import may take
_PROBE_S = 0.5


@contextmanager
def turn(site: Site, name: str, *, say: Say, wait_s: float = WAIT_S) -> Iterator[None]:
    """Hold an image alone, after whoever holds it now; then look again at what is left to do.

    Raises:
        Busy: it was held all the time.
    """
    deadline = time.monotonic() + wait_s
    told = False
    with ExitStack() as held:
        while True:
            try:
                held.enter_context(alone(site, name))
                break
            except Busy as busy:
                if time.monotonic() >= deadline:
                    raise Busy(f"{busy} (waited {wait_s:g} s)") from None
                if not told:
                    say(f"{busy}; waiting at most {wait_s:g} s")
                    told = True
            time.sleep(_PROBE_S)
        yield
