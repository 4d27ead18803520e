import os
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
sys.path.insert(0, str(TESTS))  # for peers.py

import peers  # noqa: E402


@pytest.fixture(scope="session")
def build_peer():
    """`peers.build`, which skips the test where the library is not installed."""

    def build(library, name, **options):
        try:
            return peers.build(library, name, **options)
        except ModuleNotFoundError as error:
            pytest.skip(f"{library} is not installed ({error})")

    return build


@pytest.fixture(scope="session")
def shared_weights():
    """Finds real weights of others, which are not part of the project."""
    folder = Path(os.environ.get("RESNETS_SHARED_DATA", TESTS.parents[1] / "shared" / "data")) / "weights"

    def find(name):
        if not (folder / name).is_file():
            pytest.skip(f"{name} is not in {folder}; RESNETS_SHARED_DATA may name another folder than its parent")
        return folder / name

    return find
