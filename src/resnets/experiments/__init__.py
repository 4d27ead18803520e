"""The papers' experiments run here: budgets, plan, runs, outcomes, and their comparison with the papers."""
