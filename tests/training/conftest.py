import pytest

from resnets.data.images import Images
from resnets.data.synthetic import synthetic


@pytest.fixture(scope="session")
def images() -> Images:
    return synthetic(256)
