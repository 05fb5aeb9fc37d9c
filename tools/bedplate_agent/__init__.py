"""The node agent: asks one node how it is, and judges what it said. Python 3.10, standard library, nothing else.

It is built into one file (bedplate.observe.agentfile), and imports nothing of bedplate. The flow, left to right:

    probes (what is asked) -> runner (asks) -> parse (understands, or raises) -> checks (judge) -> sinks (tell)

Invariants
- Silence is never health: what was not asked, not answered, cut off, garbled or not understood is ERROR.
- What is expected comes from the profile that the agent is given, never from the node it runs on.
- SKIP is said by the profile, with its reason; a check has no say in it.
- Judging reads no file, no clock and no environment: recorded answers give the same verdict anywhere (--replay).
"""

VERSION = "1"
