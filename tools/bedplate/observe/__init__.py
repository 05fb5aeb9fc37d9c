"""Looks at nodes: verification and collected facts."""
