"""What the papers report, as data. No torch here."""
