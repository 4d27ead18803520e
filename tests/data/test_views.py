"""Parts of images against PIL, slowly: the whole image scaled, then cropped."""

import math

import numpy as np
import pytest
from PIL import Image

from pictures import decode, encoded, photographs, smooth
from resnets.data.random_crops import View
from resnets.errors import UserError

SCALE = View("scale", 224, (256, 480))
ASPECT = View("aspect", 224, (0, 0))


def numbers(view, count, seed=0, epoch=0):
    return view.numbers(seed, epoch, np.arange(count))[0]


def test_the_middle_is_what_pil_gives_by_scaling_and_cropping():
    for data in photographs(8):
        whole = Image.fromarray(decode(data))
        by = 256 / min(whole.size)
        width, height = (max(256, int(s * by)) for s in whole.size)
        left, top = round((width - 224) / 2), round((height - 224) / 2)
        slow = whole.resize((width, height), Image.Resampling.BILINEAR).crop((left, top, left + 224, top + 224))
        fast = View("centre", 224, (256, 256))(data, np.zeros(9))
        assert np.abs(fast.astype(int) - np.asarray(slow)).max() <= 1


@pytest.mark.parametrize("view", [SCALE, ASPECT], ids=["scale", "aspect"])
def test_random_parts_are_what_pil_gives_by_cutting_and_scaling(view):
    """The same part by PIL from the whole image; JPEGs at reduced scale may differ by a little."""
    exact = reduced = 0
    for data, u in zip(photographs(24), numbers(view, 24), strict=True):
        whole = decode(data)
        size = whole.shape[1], whole.shape[0]
        part = view.part(size, u)
        left, top = (
            min(round(at), math.floor(most - length)) for at, most, length in zip(part[:2], size, part[2:], strict=True)
        )
        cut = Image.fromarray(whole).crop((left, top, left + math.ceil(part.width), top + math.ceil(part.height)))
        slow = np.asarray(cut.resize((224, 224), Image.Resampling.BILINEAR, (0, 0, part.width, part.height)))
        difference = np.abs(view(data, u).astype(int) - slow)
        if min(part[2:]) < 2 * 224:
            exact += 1
            assert difference.max() <= 2  # of 255: two decoders and two filters, each rounding
        else:
            reduced += 1
            assert difference.mean() < 6
    assert exact > 15
    assert view is ASPECT or reduced == 0 or reduced < 10


def test_scales_are_uniform_and_crops_lie_anywhere():
    """Shorter sides uniform over 256 to 480; places uniform between the edges: by Kolmogorov and Smirnov."""
    size, count = (500, 375), 4000
    parts = [SCALE.part(size, u) for u in numbers(SCALE, count)]
    shorter = np.array([224 * 375 / part.width for part in parts])
    assert sorted(set(np.round(shorter).astype(int))) == list(range(256, 481))
    x = np.array([part.left / (500 - part.width) for part in parts])
    y = np.array([part.top / (375 - part.height) for part in parts])
    for values in ((shorter - 255.5) / 225, x, y):
        distance = np.abs(np.sort(values) - (np.arange(count) + 0.5) / count).max()
        assert distance < 1.63 / math.sqrt(count)  # 1 %
    assert abs(np.corrcoef([shorter, x, y]) - np.eye(3)).max() < 0.05


def slow_aspect(size, draw):
    """Inception's crop, written out with numpy's generator."""
    width, height = size
    for _ in range(10):
        area = draw.uniform(0.08, 1) * width * height
        ratio = math.exp(draw.uniform(math.log(3 / 4), math.log(4 / 3)))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if w <= width and h <= height:
            return draw.integers(0, width - w + 1), draw.integers(0, height - h + 1), w, h
    w, h = min(width, round(height * 4 / 3)), min(height, round(width / (3 / 4)))
    return (width - w) // 2, (height - h) // 2, w, h


@pytest.mark.parametrize("size", [(500, 375), (300, 900), (900, 90)])
def test_parts_of_any_shape_are_distributed_as_the_slow_ones(size):
    count, draw = 3000, np.random.default_rng(0)
    ours = np.array([ASPECT.part(size, u) for u in numbers(ASPECT, count)])
    theirs = np.array([slow_aspect(size, draw) for _ in range(count)], float)
    assert (ours >= 0).all()
    assert (ours[:, :2] + ours[:, 2:] <= size).all()
    for column in range(4):
        both = np.sort(np.concatenate([ours[:, column], theirs[:, column]]))
        counts = [np.searchsorted(np.sort(part[:, column]), both, "right") for part in (ours, theirs)]
        assert np.abs(counts[0] - counts[1]).max() / count < 1.63 * math.sqrt(2 / count)  # 1 %


def test_numbers_depend_on_seed_epoch_and_index_alone():
    one, mirrored = View("scale", 8, (8, 9), "random").numbers(1, 2, np.arange(100))
    other, also = View("scale", 8, (8, 9), "random").numbers(1, 2, np.array([99, 5]))
    assert np.array_equal(one[[99, 5]], other)
    assert np.array_equal(mirrored[[99, 5]], also)
    assert not np.array_equal(one, numbers(View("scale", 8, (8, 9)), 100, seed=1, epoch=3))
    assert len(np.unique(one)) == one.size
    assert 30 < mirrored.sum() < 70


def test_flips():
    def mirrored(flip, epoch):
        return View("scale", 8, (8, 9), flip).numbers(0, epoch, np.arange(1000))[1]

    assert not mirrored("none", 0).any()
    assert 0.4 < mirrored("random", 0).mean() < 0.6
    assert np.array_equal(mirrored("alternate", 0), ~mirrored("alternate", 1))
    data, u = encoded(smooth(30, 20), "PNG"), numbers(SCALE, 1)[0]
    view = View("scale", 16, (16, 20))
    assert np.array_equal(view(data, u, True), view(data, u)[:, ::-1])


@pytest.mark.parametrize("size", [(1, 1), (1, 3000), (3000, 2), (28, 28), (7, 5)])
@pytest.mark.parametrize("view", [SCALE, ASPECT, View("centre", 224, (256, 256)), View("centre", 32, (32, 32))])
def test_odd_shapes_are_seen_too(size, view):
    data = encoded(smooth(*size), "PNG")
    for u in numbers(view, 20):
        assert view(data, u).shape == (view.side, view.side, 3)


def test_a_crop_must_fit():
    with pytest.raises(UserError, match="images of shorter side 200 to 480 have no crop of 224x224"):
        View("scale", 224, (200, 480))
    with pytest.raises(UserError, match="unknown view 'middle'"):
        View("middle", 224, (256, 256))
