"""The tables of README and docs, made from results/."""
