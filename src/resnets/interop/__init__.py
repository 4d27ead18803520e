"""Weights in and out: our own files, and those of other libraries."""
