"""What a released model is good for, measured: exactly on public text, through a mechanism on private text."""
