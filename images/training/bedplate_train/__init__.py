"""The training program of the image, and the acceptance that makes a machine a reference."""
