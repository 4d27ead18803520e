"""Training: recipes as data, the schedule, the loop, checkpoints, more than one device."""
