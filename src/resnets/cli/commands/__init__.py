"""What each command does: calls the library and prints what it returns."""
