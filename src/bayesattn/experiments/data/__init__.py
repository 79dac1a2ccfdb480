"""Data sets, one file each: find it, check it, load it."""
