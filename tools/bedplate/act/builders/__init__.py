"""Programs that build an image from a definition; a new one is a new file."""
