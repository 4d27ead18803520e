"""The kernels give the same bytes on any number of threads."""

import pytest
import torch

from resnets.engine.native.build import load
from resnets.engine.native.kernels import ACT, ADD, MASK, RAW, Kernels, Sink, Source

THREADS = (1, 2, 3, 4)
pytestmark = pytest.mark.skipif(load().kernels is None, reason="the kernels are not compiled here")


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def numbers(*shape, seed=0):
    x = torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
    return x.contiguous(memory_format=torch.channels_last) if len(shape) == 4 else x


@pytest.mark.parametrize("side", [1, 3])
@pytest.mark.parametrize(
    ("n", "size", "into", "out"), [(7, 9, 16, 16), (33, 8, 64, 64), (2, 32, 16, 32), (1, 1, 8, 8), (3, 5, 256, 128)]
)
def test_convolutions_and_their_gradients(threads, side, n, size, into, out):
    kernels = load().kernels
    x, g, weight = (
        numbers(n, into, size, size),
        numbers(n, out, size, size, seed=1),
        numbers(out, into, side, side, seed=2),
    )
    a, d = numbers(into, seed=3), numbers(into, seed=4)
    found = []
    for count in THREADS:
        threads(count)
        act = Source(ACT, x, a=a, d=d)
        y, sums = kernels.conv(act, weight, Sink(ADD, add=g, sums=True))
        back, others = kernels.conv(
            Source(RAW, g), weight, Sink(MASK, m=x, a=a, d=d, q=x, c=d, sums=True), back_to=(size, size)
        )
        found.append((y, sums, back, others, kernels.conv_filters(act, Source(RAW, g), weight)))
    for other in found[1:]:
        assert all(torch.equal(first, again) for first, again in zip(found[0], other, strict=True))


def test_sums_of_a_map(threads):
    kernels, x = load().kernels, numbers(19, 24, 13, 11)
    found = []
    for count in THREADS:
        threads(count)
        found.append(kernels.transform(Source(RAW, x), Sink(sums=True), keep=False)[1])
    assert all(torch.equal(found[0], other) for other in found[1:])
    assert torch.allclose(found[0][0], x.double().sum((0, 2, 3)))
    assert isinstance(kernels, Kernels)
