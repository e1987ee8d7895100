"""The release folder: the one way to write it, its manifest, its signature, and what `tacit verify` checks."""
