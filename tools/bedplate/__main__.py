"""`python -m bedplate` is `bedplate`."""

from bedplate.cli.main import main

main()
