"""python -m lab.healthbaseline [--plain] NODE...: the healthy baseline that faults of `bedplate lab break` change.

--plain: hosts that nothing was rolled out to. They get their profile as well, without the clock: there is no chrony.
"""

import sys
from concurrent.futures import ThreadPoolExecutor

from lab.healthparts import PROFILE, lay, serve_time
from lab.places import CONTROLLER, SITE, places
from lab.run import on

names = sys.argv[1:]
if names[:1] == ["--plain"]:
    del names[0]
    text = PROFILE.replace("skip:\n", "skip:\n  host.time: this host has no chrony\n")
    on(CONTROLLER, ["tee", f"{SITE}/models/lab-gpu8.health.yml"], stdin=text)
serve_time(places())
with ThreadPoolExecutor(4) as pool:
    list(pool.map(lambda name: lay(places(), name), names))
