"""The healthy baseline that faults of `bedplate lab break` change.

--plain: hosts whose rollout had no health agent. They get their profile as well, without the clock: there is no chrony.
"""

import argparse
from concurrent.futures import ThreadPoolExecutor

from lab.healthparts import PROFILE, lay, serve_time
from lab.places import CONTROLLER, SITE, places
from lab.run import on

parser = argparse.ArgumentParser(prog="python -m lab.healthbaseline", description=__doc__)
parser.add_argument("--plain", action="store_true", help="hosts that no rollout gave a profile or a clock")
parser.add_argument("names", metavar="NODE", nargs="+")
asked = parser.parse_args()
if asked.plain:
    text = PROFILE.replace("skip:\n", "skip:\n  host.time: this host has no chrony\n")
    on(CONTROLLER, ["tee", f"{SITE}/models/lab-gpu8.health.yml"], stdin=text)
serve_time(places())
with ThreadPoolExecutor(4) as pool:
    list(pool.map(lambda name: lay(places(), name), asked.names))
