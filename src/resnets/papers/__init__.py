"""What the papers report, as data: tables, figures and numbers."""
