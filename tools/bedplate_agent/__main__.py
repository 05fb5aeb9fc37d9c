"""The zipapp's entry."""

from bedplate_agent.command import main

if __name__ == "__main__":
    main()
