"""Kernels in C++ for units on CPUs, compiled on first use. Everything works without them, in PyTorch alone."""
