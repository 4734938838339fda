"""Readers: the user's own files by path, and one file for each data set that has a name."""
