"""What a network does: its cost, and how signals travel through it."""
