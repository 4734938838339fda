"""A run as a folder that other programs use: the network in open formats, its preprocessing, a model card."""
