"""Training: tasks, the loop, callbacks, runs that resume, several devices."""
