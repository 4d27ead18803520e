"""Side by side with other libraries, in one run: `python -m benchmarks`, or `make bench`."""
