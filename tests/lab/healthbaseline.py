"""python -m lab.healthbaseline NODE...: the healthy baseline that health faults of `bedplate lab break` change."""

import sys

from lab.healthparts import lay
from lab.places import places

for name in sys.argv[1:]:
    lay(places(), name)
