"""python -m lab.healthbaseline NODE...: the healthy baseline that health faults of `bedplate lab break` change."""

import sys

from lab.healthparts import lay, serve_time
from lab.places import places

serve_time(places())
for name in sys.argv[1:]:
    lay(places(), name)
