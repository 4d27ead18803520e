"""One thread a test process: the tests run in parallel, and small nets lose by threads that wait for each other."""

import os

os.environ["OMP_NUM_THREADS"] = "1"

import pytest


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    import torch

    torch.set_num_threads(1)
