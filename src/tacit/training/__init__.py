"""Plans, phases, the loop, checkpoints. torch is imported by the modules that need it, not here."""
