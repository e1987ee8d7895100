"""Work that takes long: in child processes, in many small jobs, or in one that goes on where it stopped."""
