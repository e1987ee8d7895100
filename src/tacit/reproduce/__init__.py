"""The papers' experiments on our own code, with sound numbers beside the printed ones: a package a paper."""
