"""The commands of `bayesattn`, one file each."""
