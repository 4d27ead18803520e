"""Matching and sampling of anchors and regions against slow references, and the losses against their formulas."""

import math

import pytest
import torch
from torch import Tensor

from resnets.detection.anchors import make_shapes, place_anchors
from resnets.detection.proposals import (
    Chosen,
    Objects,
    find_proposals,
    match_anchors,
    measure_proposal_loss,
    sample,
)
from resnets.detection.regions import choose_regions, match_regions, measure_region_loss

NONE = torch.zeros(0, 4)


def overlap(a: Tensor, b: Tensor) -> float:
    wide, high = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    if wide <= 0 or high <= 0:
        return 0.0
    both = float(wide * high)
    return both / (float((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1])) - both)


def random_objects(seed: int, count: int = 4, size: tuple[int, int] = (160, 208)) -> Objects:
    draw = torch.Generator().manual_seed(seed)
    corner = torch.rand(count, 2, generator=draw) * torch.tensor([size[1] - 60.0, size[0] - 60.0])
    sides = 15 + torch.rand(count, 2, generator=draw) * 60
    boxes = torch.cat([corner, corner + sides], 1)
    return Objects(boxes, torch.randint(3, (count,), generator=draw), NONE, NONE)


def anchors() -> Tensor:
    return place_anchors(make_shapes((24, 48), (0.5, 1.0, 2.0)), 10, 13, 16)


def slow_match(anchors: Tensor, objects: Objects, size: tuple[int, int]) -> list[int]:
    """Faster R-CNN's rule, anchor by anchor."""
    inside = [i for i, a in enumerate(anchors) if a[0] >= 0 and a[1] >= 0 and a[2] <= size[1] and a[3] <= size[0]]
    table = {i: [overlap(anchors[i], b) for b in objects.boxes] for i in inside}
    best = [max((table[i][k] for i in inside), default=0.0) for k in range(len(objects.boxes))]
    labels = [-1] * len(anchors)
    for i in inside:
        most = max(table[i], default=0.0)
        if most < 0.3:
            labels[i] = 0
        if most >= 0.7 or any(math.isclose(o, b, rel_tol=1e-6) and b > 0 for o, b in zip(table[i], best, strict=True)):
            labels[i] = 1
    return labels


@pytest.mark.parametrize("seed", range(6))
def test_anchors_match_as_the_paper_says(seed):
    size, objects, every = (160, 208), random_objects(seed), anchors()
    labels, places = match_anchors(every, objects, size)
    assert labels.tolist() == slow_match(every, objects, size)
    assert (labels == 1).any()
    for i in (labels == 1).nonzero()[:, 0]:
        table = [overlap(every[i], b) for b in objects.boxes]
        assert table[int(places[i])] == pytest.approx(max(table))


def test_every_object_has_an_anchor_where_one_touches_it():
    objects = Objects(torch.tensor([[100.0, 80, 104, 84]]), torch.tensor([0]), NONE, NONE)  # smaller than all anchors
    labels, _ = match_anchors(anchors(), objects, (160, 208))
    assert (labels == 1).sum() >= 1


def test_pictures_without_objects_are_all_background():
    labels, _ = match_anchors(anchors(), Objects(NONE, torch.zeros(0, dtype=torch.long), NONE, NONE), (160, 208))
    assert set(labels.tolist()) == {-1, 0}
    inside = [a[0] >= 0 and a[1] >= 0 and a[2] <= 208 and a[3] <= 160 for a in anchors()]
    assert (labels == 0).tolist() == [bool(i) for i in inside]


def test_difficult_objects_and_crowds_are_no_background():
    difficult, crowd = torch.tensor([[40.0, 40, 64, 64]]), torch.tensor([[100.0, 0, 208, 160]])
    none = torch.zeros(0, dtype=torch.long)
    labels, _ = match_anchors(anchors(), Objects(NONE, none, difficult, crowd), (160, 208))
    for anchor, label in zip(anchors(), labels.tolist(), strict=True):
        area = float((anchor[2] - anchor[0]) * (anchor[3] - anchor[1]))
        wide = max(0.0, float(min(anchor[2], 208) - max(anchor[0], 100)))
        high = max(0.0, float(min(anchor[3], 160) - max(anchor[1], 0)))
        if overlap(anchor, difficult[0]) >= 0.5 or wide * high / area >= 0.5:
            assert label == -1
    regions, _ = match_regions(
        torch.tensor([[40.0, 40, 64, 64], [120, 20, 140, 40], [0, 0, 9, 9]]), Objects(NONE, none, difficult, crowd)
    )
    assert regions.tolist() == [-1, -1, 0]


def test_regions_match_from_one_half():
    objects = Objects(torch.tensor([[0.0, 0, 10, 10], [50, 50, 60, 60]]), torch.tensor([2, 1]), NONE, NONE)
    candidates = torch.tensor([[0.0, 0, 10, 5], [0, 0, 10, 4.9], [50, 50, 60, 60], [30, 30, 40, 40]])
    labels, places = match_regions(candidates, objects)
    assert labels.tolist() == [1, 0, 1, 0]
    assert places[[0, 2]].tolist() == [0, 1]


# --- samples ----------------------------------------------------------------------------------


def test_a_sample_has_the_right_numbers():
    labels = torch.tensor([1] * 50 + [0] * 500 + [-1] * 50)
    for count, share, positive in ((40, 0.25, 10), (40, 0.5, 20), (400, 0.5, 50), (8, 0.0, 0)):
        chosen = sample(labels, count, share, 7, "anchors")
        assert len(chosen.positive) == positive
        assert len(chosen.all) == min(count, positive + 500)
        assert (labels[chosen.positive] == 1).all()
        assert (labels[chosen.negative] == 0).all()
        assert len(set(chosen.all.tolist())) == len(chosen.all)


def test_a_sample_follows_from_its_key():
    labels = torch.tensor([1] * 50 + [0] * 500)
    first, again, other = (sample(labels, 64, 0.5, key, "anchors").all.tolist() for key in (7, 7, 8))
    assert first == again
    assert first != other
    assert sample(labels, 64, 0.5, 7, "regions").all.tolist() != first


def test_samples_are_fair():
    """Over many keys every box is chosen about equally often."""
    labels, counts = torch.tensor([1] * 10 + [0] * 90), torch.zeros(100)
    for key in range(2000):
        counts[sample(labels, 20, 0.25, key, "anchors").all] += 1
    assert (counts[:10] / 2000 - 5 / 10).abs().max() < 0.05
    assert (counts[10:] / 2000 - 15 / 90).abs().max() < 0.05


def test_regions_hold_the_objects_themselves_and_the_background_is_last():
    objects = random_objects(3)
    proposals = torch.tensor([[0.0, 0, 5, 5], [1, 1, 7, 9]])
    found = choose_regions(proposals, objects, 3, count=64, share=0.9, key=1)
    positive = found.labels < 3
    assert {tuple(b) for b in found.boxes[positive].tolist()} == {tuple(b) for b in objects.boxes.tolist()}
    assert sorted(found.labels[positive].tolist()) == sorted(objects.labels.tolist())
    assert found.targets[positive].abs().max() < 1e-6
    assert (found.labels[~positive] == 3).all()
    assert not found.targets[~positive].any()


def test_targets_are_divided_by_their_deviations():
    objects = Objects(torch.tensor([[0.0, 0, 20, 40]]), torch.tensor([0]), NONE, NONE)
    found = choose_regions(torch.tensor([[2.0, 0, 22, 30]]), objects, 1, count=2, share=1.0, key=0)
    target = found.targets[found.boxes[:, 0] == 2][0]
    wanted = [(10 - 12) / 20 / 0.1, (20 - 15) / 30 / 0.1, 0.0, math.log(40 / 30) / 0.2]
    assert target.tolist() == pytest.approx(wanted, abs=1e-5)


# --- proposals --------------------------------------------------------------------------------


def test_proposals_are_clipped_sorted_and_apart():
    every = anchors()
    draw = torch.Generator().manual_seed(0)
    scores, shifts = torch.randn(len(every), generator=draw), torch.randn(len(every), 4, generator=draw) * 0.5
    boxes, ranked = find_proposals(scores, shifts, every, (160, 208), (500, 40))
    assert len(boxes) == 40
    assert (ranked.diff() <= 0).all()
    assert (boxes[:, :2] >= 0).all()
    assert (boxes[:, 2] <= 208).all()
    assert (boxes[:, 3] <= 160).all()
    assert ((boxes[:, 2:] - boxes[:, :2]) >= 1).all()
    for i in range(len(boxes)):
        assert all(overlap(boxes[i], boxes[j]) <= 0.7 for j in range(i))


def test_proposals_without_area_are_left_out():
    every = anchors()
    shifts = torch.zeros(len(every), 4)
    shifts[:, 0] = 100.0  # all of them lie outside of the picture
    boxes, scores = find_proposals(torch.zeros(len(every)), shifts, every, (160, 208), (500, 40))
    assert boxes.shape == (0, 4)
    assert scores.shape == (0,)


# --- losses -----------------------------------------------------------------------------------


def smooth(x: float, beta: float) -> float:
    return 0.5 * x * x / beta if abs(x) < beta else abs(x) - beta / 2


def test_the_loss_of_proposals():
    scores = torch.tensor([0.3, -1.0, 2.0, 0.0])
    shifts = torch.tensor([[0.05, 1.0, 0.0, -0.3]] * 4)
    targets = torch.zeros(1, 4)
    score_loss, box_loss = measure_proposal_loss(
        scores, shifts, Chosen(torch.tensor([2]), torch.tensor([0, 1])), targets
    )
    wanted = -math.log(1 / (1 + math.exp(-2.0))) - sum(math.log(1 - 1 / (1 + math.exp(-s))) for s in (0.3, -1.0))
    assert float(score_loss) == pytest.approx(wanted / 3, rel=1e-5)
    assert float(box_loss) == pytest.approx(sum(smooth(v, 1 / 9) for v in (0.05, 1.0, 0.0, -0.3)) / 3, rel=1e-5)


def test_the_loss_of_regions_reads_the_shifts_of_the_true_class():
    scores = torch.tensor([[1.0, 2.0, 0.5], [0.0, 0.0, 3.0]])
    shifts = torch.arange(16.0).view(2, 2, 4) / 10
    labels, targets = torch.tensor([1, 2]), torch.zeros(2, 4)
    class_loss, box_loss = measure_region_loss(scores, shifts, labels, targets)
    wanted = -sum(float(scores[i].log_softmax(0)[labels[i]]) for i in range(2)) / 2
    assert float(class_loss) == pytest.approx(wanted, rel=1e-5)
    assert float(box_loss) == pytest.approx(sum(smooth(v, 1.0) for v in (0.4, 0.5, 0.6, 0.7)) / 2, rel=1e-5)


def test_losses_without_positives_are_finite():
    shifts = torch.zeros(4, 4, requires_grad=True)
    empty = torch.zeros(0, dtype=torch.long)
    losses = measure_proposal_loss(torch.zeros(4), shifts, Chosen(empty, torch.tensor([0, 1])), torch.zeros(0, 4))
    assert all(loss.isfinite() for loss in losses)
    sum(losses).backward()
    assert not shifts.grad.any()
    found = measure_region_loss(torch.zeros(2, 3), torch.zeros(2, 2, 4), torch.tensor([2, 2]), torch.zeros(2, 4))
    assert float(found[1]) == 0
    nothing = measure_region_loss(torch.zeros(0, 3), torch.zeros(0, 2, 4), empty, torch.zeros(0, 4))
    assert all(loss.isfinite() for loss in nothing)
