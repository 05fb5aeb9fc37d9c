"""The package archive's acts: each module one of them, each leaves an event in the ledger."""
