"""Reads what others hold: the files of a site, package archives, registries."""
