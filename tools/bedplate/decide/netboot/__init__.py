"""Installation over the network: what a machine is given, and what may be answered to it."""
