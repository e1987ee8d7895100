"""What is larger than memory: arrays in files, and a sort on disk."""
