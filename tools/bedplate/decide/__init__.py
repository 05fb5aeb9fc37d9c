"""Pure decisions: rules, lock documents, plans, folds, rendering, verdicts. No I/O."""
