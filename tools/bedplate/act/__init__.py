"""Changes the world: resolves locks, builds and places images, runs rollouts."""
