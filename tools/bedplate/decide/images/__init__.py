"""Images before they are built: how they are named, what their recipes leave open, what a package would replace."""
