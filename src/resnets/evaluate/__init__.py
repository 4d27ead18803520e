"""The papers' ways of testing a network."""
