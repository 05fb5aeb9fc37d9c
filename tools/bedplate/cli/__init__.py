"""The command line: reads arguments, prints results; holds no rules."""
