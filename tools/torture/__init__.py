"""The proof that the promises hold: kills, broken files, edited networks, full disks. Run by `make torture`.

`sections` lists what is tried, `worker` runs it in processes that may die, `__main__` counts what was broken.
"""
