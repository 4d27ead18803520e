"""Boxes and anchors against slow definitions."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from resnets.detection import boxes
from resnets.detection.anchors import choose_sizes, make_shapes, place_anchors

edges = st.tuples(*[st.integers(0, 40)] * 4)


def slow_overlap(a: list[float], b: list[float]) -> float:
    """Intersection over union by counting the unit squares of whole coordinates."""

    def cells(box: list[float]) -> set[tuple[int, int]]:
        return {(x, y) for x in range(int(box[0]), int(box[2])) for y in range(int(box[1]), int(box[3]))}

    both, either = cells(a) & cells(b), cells(a) | cells(b)
    return len(both) / len(either) if either else 0.0


@given(edges, edges)
def test_overlap_is_a_count_of_squares(a, b):
    found = boxes.measure_overlaps(torch.tensor([a]).double(), torch.tensor([b]).double())
    assert float(found) == pytest.approx(slow_overlap(a, b)) or a[2] < a[0] or a[3] < a[1] or b[2] < b[0] or b[3] < b[1]


def test_overlap_of_boxes_without_area_is_zero():
    empty = torch.tensor([[5.0, 5, 5, 9], [5, 5, 5, 5]])
    assert not boxes.measure_overlaps(empty, torch.cat([empty, torch.tensor([[0.0, 0, 9, 9]])])).any()
    assert not boxes.measure_cover(empty, torch.tensor([[0.0, 0, 9, 9]])).any()


def test_cover_is_the_share_inside():
    found = boxes.measure_cover(torch.tensor([[0.0, 0, 10, 10]]), torch.tensor([[5.0, 0, 30, 10], [0, 0, 99, 99]]))
    assert found.tolist() == [[0.5, 1.0]]


def test_encode_is_the_papers_formula():
    box, anchor = [10.0, 20, 50, 100], [0.0, 0, 40, 60]
    x, y, w, h = 30, 60, 40, 80
    x_a, y_a, w_a, h_a = 20, 30, 40, 60
    wanted = [(x - x_a) / w_a, (y - y_a) / h_a, math.log(w / w_a), math.log(h / h_a)]
    assert boxes.encode(torch.tensor([box]), torch.tensor([anchor]))[0].tolist() == pytest.approx(wanted)


def test_decode_undoes_encode():
    draw = torch.Generator().manual_seed(0)
    corner, sides = torch.rand(2, 100, 2, generator=draw, dtype=torch.float64) * 300
    some = torch.cat([corner, corner + sides + 20], 1)
    others = some.flip(0)
    assert torch.allclose(boxes.decode(boxes.encode(some, others), others), some)


def test_decode_stays_finite():
    huge = torch.tensor([[0.0, 0, 1e9, 1e9]])
    assert boxes.decode(huge, torch.tensor([[0.0, 0, 16, 16]])).isfinite().all()


def test_clip_and_mirror():
    box = torch.tensor([[-5.0, 10, 120, 90]])
    assert boxes.clip(box, (80, 100)).tolist() == [[0, 10, 100, 80]]
    assert boxes.mirror(torch.tensor([[10.0, 20, 30, 40]]), 100).tolist() == [[70, 20, 90, 40]]


def slow_anchors(sizes, ratios, height, width, stride):
    found = []
    for y in range(height):
        for x in range(width):
            for ratio in ratios:
                for size in sizes:
                    w, h = math.sqrt(size * size / ratio), math.sqrt(size * size * ratio)
                    middle = (x + 0.5) * stride, (y + 0.5) * stride
                    found.append([middle[0] - w / 2, middle[1] - h / 2, middle[0] + w / 2, middle[1] + h / 2])
    return found


def test_anchors_are_those_of_the_definition():
    sizes, ratios = (128, 256, 512), (0.5, 1.0, 2.0)
    found = place_anchors(make_shapes(sizes, ratios), 3, 5, 16)
    assert found.shape == (3 * 5 * 9, 4)
    assert np.allclose(found.numpy(), slow_anchors(sizes, ratios, 3, 5, 16), atol=1e-3)
    areas = boxes.measure_areas(found).view(-1, 3, 3)
    assert torch.allclose(areas, torch.tensor([128.0, 256, 512]).square().expand_as(areas))


def test_sizes_of_anchors_follow_the_boxes():
    assert choose_sizes(np.full(50, 100.0)) == (128,)
    assert choose_sizes(np.linspace(30, 130, 100)) == (32, 64, 128)
    assert choose_sizes(np.array([1.0] * 9 + [5000.0] * 9)) == (8, 16, 32, 64, 128, 256, 512)
    assert choose_sizes(np.array([])) == (128, 256, 512)
