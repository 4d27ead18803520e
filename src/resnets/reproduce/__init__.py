"""The papers' experiments, run: rows and a budget make a plan, the plan runs, the runs make results."""
