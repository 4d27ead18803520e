"""Weights: files and their metadata, the layouts of other libraries, conversion, pretrained networks."""
