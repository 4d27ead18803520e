"""What all tests run in."""

import os
import signal

import pytest

# The tests run in parallel, and small nets lose by threads that wait for each other.
os.environ["OMP_NUM_THREADS"] = "1"
# A shell starts its background jobs deaf to Ctrl-C, and with them the processes that tests send it to.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    import torch

    torch.set_num_threads(1)
