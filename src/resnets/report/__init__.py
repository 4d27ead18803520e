"""Results as pictures and pages. No torch here."""
