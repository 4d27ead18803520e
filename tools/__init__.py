"""Programs for those who work on the package; no part of what is installed."""
