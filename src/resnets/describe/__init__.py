"""Networks in words: tables, JSON, and drawings of their units."""
