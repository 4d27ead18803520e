"""The operators for regions: against ONNX Runtime and the reference, and on any number of threads."""

import pytest
import torch
from torch import Tensor

from resnets.detection import operators, reference
from resnets.detection.reference import Bins
from resnets.engine.threads import Threads
from resnets.errors import UserError
from tests.detection import onnx_operators

needs_compiler = pytest.mark.skipif(operators.load() is None, reason="the operators were not compiled")
WAYS = {"compiled": operators, "reference": reference}
each_way = pytest.mark.parametrize("way", [pytest.param("compiled", marks=needs_compiler), "reference"])


def random_map(seed: int = 0, channels: int = 24, dtype: torch.dtype = torch.float32) -> Tensor:
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(3, channels, 21, 33, generator=draw, dtype=dtype).relu()  # zeros are ties
    return x.contiguous(memory_format=torch.channels_last)


def random_regions(count: int = 40, seed: int = 1) -> Tensor:
    """Boxes of all sizes; some reach over the edge of the picture, some lie outside, one is a point."""
    draw = torch.Generator().manual_seed(seed)
    corner = torch.rand(count, 2, generator=draw) * torch.tensor([580.0, 380.0]) - 40
    sides = torch.rand(count, 2, generator=draw).square() * 400
    sides[0] = 0
    pictures = torch.randint(3, (count, 1), generator=draw).float()
    return torch.cat([pictures, corner, corner + sides], 1)


def random_boxes(count: int, seed: int = 2) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(seed)
    corner = torch.rand(count, 2, generator=draw) * 300
    sides = torch.rand(count, 2, generator=draw) * 200
    return torch.cat([corner, corner + sides], 1), torch.rand(count, generator=draw)


@each_way
@pytest.mark.parametrize("size", [1, 7, 14])
def test_pooling_is_onnxruntimes_to_the_bit(way, size):
    x, regions = random_map(), random_regions()
    inside = regions[(regions[:, 1:3] >= 0).all(1)]
    wanted = onnx_operators.run("MaxRoiPool", x.contiguous(), inside, pooled_shape=[size, size], spatial_scale=0.0625)
    assert torch.equal(WAYS[way].pool_regions(x, inside, Bins(size, 0.0625)), wanted)


@needs_compiler
@pytest.mark.parametrize("length", [57, 62, 114, 121])
def test_pooling_rounds_bins_as_others_do(length):
    """Regions of these lengths have bins whose edges depend on the rounding of float."""
    x = torch.randn(1, 3, 130, 130, generator=torch.Generator().manual_seed(length))
    regions = torch.tensor([[0.0, 2, 3, 2 + length - 1, 3 + length - 1]])
    for size in (7, 14):
        wanted = onnx_operators.run("MaxRoiPool", x, regions, pooled_shape=[size, size], spatial_scale=1.0)
        assert torch.equal(operators.pool_regions(x, regions, Bins(size, 1.0)), wanted)
        assert torch.equal(reference.pool_regions(x, regions, Bins(size, 1.0)), wanted)


@each_way
@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("samples", [0, 2, 3])
def test_align_is_onnxruntimes(way, samples, aligned):
    x, regions = random_map(), random_regions()
    wanted = onnx_operators.run(
        "RoiAlign",
        x.contiguous(),
        regions[:, 1:].contiguous(),
        regions[:, 0].long(),
        output_height=7,
        output_width=7,
        sampling_ratio=samples,
        spatial_scale=0.0625,
        coordinate_transformation_mode="half_pixel" if aligned else "output_half_pixel",
    )
    found = WAYS[way].align_regions(x, regions, Bins(7, 0.0625, samples, aligned))
    assert (found - wanted).abs().max() <= 2e-5
    if way == "compiled":
        assert torch.equal(found, wanted)


@each_way
@pytest.mark.parametrize("threshold", [0.0, 0.3, 0.7, 1.0])
def test_suppression_is_onnxruntimes(way, threshold):
    boxes, scores = random_boxes(500)
    wanted = onnx_operators.run(
        "NonMaxSuppression",
        boxes[None],
        scores[None, None],
        torch.tensor(10**6),
        torch.tensor([threshold]),
        torch.tensor([-1.0]),
    )[:, 2]
    order = scores.argsort(descending=True)
    if way == "reference":
        found = order[reference.suppress(boxes[order], threshold, len(boxes))]
    else:
        found = operators.suppress(boxes, scores, threshold)
    assert torch.equal(found, wanted)
    assert torch.equal(operators.suppress(boxes, scores, threshold, 10), wanted[:10])


def test_of_equal_scores_the_first_box_wins():
    boxes = torch.tensor([[0.0, 0, 10, 10], [1.0, 0, 10, 10], [50.0, 50, 60, 60]])
    assert operators.suppress(boxes, torch.ones(3), 0.5).tolist() == [0, 2]


@needs_compiler
@pytest.mark.parametrize("operator", ["pool_regions", "align_regions"])
def test_gradients_are_the_references(operator):
    regions, bins = random_regions(), Bins(5, 0.0625)
    results = []
    for way in (operators, reference):
        x = random_map().requires_grad_()
        out = getattr(way, operator)(x, regions, bins)
        weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(3))
        results.append(torch.autograd.grad((out * weights).sum(), x)[0])
    assert (results[0] - results[1]).abs().max() <= 1e-5 * results[1].abs().max()


@pytest.mark.parametrize("operator", ["pool_regions", "align_regions"])
def test_gradients_are_those_of_the_definition(operator):
    """Float64 runs the reference, whose gradient is compared with differences."""
    x = torch.randn(1, 2, 6, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64, requires_grad=True)
    regions = torch.tensor([[0.0, 8, 3, 70, 60], [0, 50, 40, 200, 90]], dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda x: getattr(operators, operator)(x, regions, Bins(3, 0.0625)), x)


@needs_compiler
def test_the_same_bytes_on_any_number_of_threads():
    regions, bins = random_regions(200), Bins(7, 0.0625)
    for operator in (operators.pool_regions, operators.align_regions):
        found = []
        for threads in (1, 2, 3, 7):
            x = random_map(channels=200).requires_grad_()
            with Threads(threads):
                out = operator(x, regions, bins)
                (gradient,) = torch.autograd.grad(out.square().sum(), x)
            found.append((out.detach(), gradient))
        for out, gradient in found[1:]:
            assert torch.equal(out, found[0][0])
            assert torch.equal(gradient, found[0][1])


@each_way
def test_no_regions_and_no_boxes(way):
    x, none = random_map().requires_grad_(), torch.zeros(0, 5)
    for operator in ("pool_regions", "align_regions"):
        out = getattr(WAYS[way], operator)(x, none, Bins(7, 0.0625))
        assert out.shape == (0, 24, 7, 7)
        assert not torch.autograd.grad(out.sum(), x)[0].any()
    assert operators.suppress(torch.zeros(0, 4), torch.zeros(0), 0.5).tolist() == []


@each_way
def test_pooling_does_not_hide_nan(way):
    x = random_map()
    x[0, 3, 5, 5] = torch.nan
    out = WAYS[way].pool_regions(x, torch.tensor([[0.0, 16, 16, 200, 200]]), Bins(2, 0.0625))
    assert out[0, 3].isnan().any()
    assert not out[0, :3].isnan().any()


def test_wrong_regions_are_refused():
    x = random_map()
    for regions, words in (
        (torch.zeros(2, 4), "must be \\(N, 5\\)"),
        (torch.tensor([[3.0, 0, 0, 9, 9]]), "outside of a batch of 3"),
        (torch.tensor([[-1.0, 0, 0, 9, 9]]), "outside of a batch of 3"),
        (torch.tensor([[0.0, 0, 0, torch.nan, 9]]), "finite"),
    ):
        with pytest.raises(UserError, match=words):
            operators.pool_regions(x, regions, Bins(7, 0.0625))
    with pytest.raises(UserError, match="3 scores need boxes"):
        operators.suppress(torch.zeros(2, 4), torch.zeros(3), 0.5)
