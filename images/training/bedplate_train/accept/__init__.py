"""The acceptance: questions that make a machine a reference, asked in order, inside the image."""
