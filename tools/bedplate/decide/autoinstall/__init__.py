"""The strict lint of autoinstall: what an installer would accept in silence, found before a disk is wiped."""
