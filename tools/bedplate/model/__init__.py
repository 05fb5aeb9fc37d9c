"""The nouns: node, layer, environment, event; and the faults of their files. No I/O."""
