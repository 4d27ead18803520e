"""VOC's and COCO's metrics: against pycocotools, slow definitions, and real boxes."""

import contextlib
import io
import itertools
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from resnets.data.annotations.pictures import Truth
from resnets.detection.average_precision import (
    Found,
    Ranking,
    average,
    draw_weights,
    find_interval,
    measure_11_points,
    measure_area,
)
from resnets.detection.coco_metric import NAMES, measure
from resnets.detection.score import compare_scores, score_detections
from resnets.errors import UserError

SHARED = Path(os.environ.get("RESNETS_SHARED_DATA") or Path(__file__).parents[3] / "shared" / "data")
BCCD = SHARED / "bccd" / "BCCD"


def random_pictures(seed: int, pictures: int = 30, classes: int = 3) -> tuple[list[Truth], list[Found]]:
    """Objects of all sizes, some difficult or crowds, and detections near them and elsewhere, with equal scores."""
    random = np.random.default_rng(seed)
    truths, found = [], []
    for _ in range(pictures):
        count = int(random.integers(0, 8))
        corner, sides = random.uniform(0, 300, (count, 2)), random.exponential(80, (count, 2)) + 2
        boxes = np.concatenate([corner, corner + sides], 1)
        areas = sides.prod(1) * random.uniform(0.5, 1, count)
        labels = random.integers(0, classes, count)
        truths.append(Truth(boxes, labels, random.random(count) < 0.2, random.random(count) < 0.15, areas))
        near = np.repeat(boxes, 3, 0) + random.normal(0, 8, (3 * count, 4))
        more, sizes = random.uniform(0, 300, (6, 2)), random.exponential(80, (6, 2)) + 2
        every = np.concatenate([near, np.concatenate([more, more + sizes], 1)])
        every[:, 2:] = np.maximum(every[:, 2:], every[:, :2] + 1)
        names = np.concatenate([np.repeat(labels, 3), random.integers(0, classes, 6)])
        wrong = random.random(len(names)) < 0.1
        names[wrong] = random.integers(0, classes, int(wrong.sum()))
        found.append(Found(every, names, np.round(random.random(len(names)), 2)))
    return truths, found


# --- COCO against pycocotools -----------------------------------------------------------------


def run_pycocotools(truths: list[Truth], found: list[Found], classes: int) -> list[float]:
    coco = pytest.importorskip("pycocotools.coco")
    evaluation = pytest.importorskip("pycocotools.cocoeval")

    def to_xywh(box: Any) -> list[float]:
        return [*map(float, box[:2]), float(box[2] - box[0]), float(box[3] - box[1])]

    images = [{"id": i + 1} for i in range(len(truths))]
    objects = [
        {
            "image_id": i + 1, "category_id": int(truth.labels[k]) + 1, "bbox": to_xywh(truth.boxes[k]),
            "area": float(truth.areas[k]), "iscrowd": int(truth.crowd[k]),
        }
        for i, truth in enumerate(truths)
        for k in range(len(truth.labels))
    ]  # fmt: skip
    for number, one in enumerate(objects, 1):
        one["id"] = number
    results = [
        {
            "image_id": i + 1, "category_id": int(one.labels[k]) + 1, "bbox": to_xywh(one.boxes[k]),
            "score": float(one.scores[k]),
        }
        for i, one in enumerate(found)
        for k in range(len(one.labels))
    ]  # fmt: skip
    with contextlib.redirect_stdout(io.StringIO()):
        data = coco.COCO()
        data.dataset = {
            "info": {}, "images": images, "annotations": objects,
            "categories": [{"id": i + 1, "name": str(i)} for i in range(classes)],
        }  # fmt: skip
        data.createIndex()
        judge = evaluation.COCOeval(data, data.loadRes(results), "bbox")
        judge.evaluate()
        judge.accumulate()
        judge.summarize()
    return judge.stats.tolist()


def assert_same_twelve(truths: list[Truth], found: list[Found], classes: int) -> None:
    wanted = run_pycocotools(truths, found, classes)
    ours = measure(truths, found, classes)
    assert list(ours) == list(NAMES)
    for (name, value), theirs in zip(ours.items(), wanted, strict=True):
        assert (-1 if value is None else value) == pytest.approx(theirs, abs=1e-6), name


@pytest.mark.parametrize("seed", range(6))
def test_coco_is_pycocotools(seed):
    assert_same_twelve(*random_pictures(seed), 3)


def test_coco_is_pycocotools_where_a_size_or_a_class_has_no_object():
    truths, found = random_pictures(7, pictures=4)
    large = [
        Truth(t.boxes * [1, 1, 1, 1] + [0, 0, 200, 200], t.labels * 0, t.difficult, t.crowd & False, t.areas + 10000)
        for t in truths
    ]
    assert_same_twelve(large, found, 3)


def test_coco_keeps_the_hundred_best_of_a_picture():
    truths, found = random_pictures(8, pictures=3, classes=1)
    many = [Found(np.tile(f.boxes, (12, 1)), np.tile(f.labels, 12), np.tile(f.scores, 12) * 0.99) for f in found]
    assert_same_twelve(truths, many, 1)


@pytest.mark.skipif(not BCCD.is_dir(), reason="the BCCD pictures are not here")
def test_metrics_on_real_boxes():
    """The objects of BCCD, found with errors."""
    from resnets.data.annotations import open_annotated

    data = open_annotated(f"voc:{BCCD}:train:test", bad_boxes="clip")
    assert data.test is not None
    random = np.random.default_rng(0)
    truths, found = list(map(data.test.truth, range(len(data.test)))), []
    for truth in truths:
        kept = random.random(len(truth.labels)) < 0.9
        boxes = truth.boxes[kept] + random.normal(0, 6, (int(kept.sum()), 4))
        boxes[:, 2:] = np.maximum(boxes[:, 2:], boxes[:, :2] + 1)
        found.append(Found(boxes, truth.labels[kept], random.random(len(boxes))))
    assert_same_twelve(truths, found, 3)
    for metric in ("voc2007", "voc2012"):
        score = score_detections(truths, found, data.classes, metric)
        assert score.precision == pytest.approx(100 * slow_voc(truths, found, 3, metric), abs=1e-6)
        low, high = score.interval
        assert low < score.precision < high


# --- VOC against a slow definition ------------------------------------------------------------


def slow_overlap(a: Any, b: Any) -> float:
    wide, high = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    if wide <= 0 or high <= 0:
        return 0.0
    return wide * high / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - wide * high)


def slow_voc(truths: list[Truth], found: list[Found], classes: int, metric: str) -> float:
    """The devkit's procedure, object by object and recall by recall."""
    values = []
    for label in range(classes):
        count = sum(int(t.labels[k] == label and not t.difficult[k]) for t in truths for k in range(len(t.labels)))
        if not count:
            continue
        ranked = sorted(
            (-float(f.scores[k]), i, k)
            for i, f in enumerate(found)
            for k in range(len(f.labels))
            if f.labels[k] == label
        )
        met, points, right, wrong = set(), [], 0, 0
        for _, i, k in ranked:
            objects = [j for j in range(len(truths[i].labels)) if truths[i].labels[j] == label]
            overlaps = [slow_overlap(found[i].boxes[k], truths[i].boxes[j]) for j in objects]
            if overlaps and max(overlaps) >= 0.5:
                j = objects[overlaps.index(max(overlaps))]
                if truths[i].difficult[j]:
                    continue
                right, wrong = (right + 1, wrong) if (i, j) not in met else (right, wrong + 1)
                met.add((i, j))
            else:
                wrong += 1
            points.append((right / count, right / (right + wrong)))
        if metric == "voc2007":
            steps = [k / 10 for k in range(11)]
            best = [max([p for r, p in points if r >= step], default=0.0) for step in steps]
            values.append(sum(best) / 11)
        else:
            recalls = sorted({0.0, *(r for r, _ in points)})
            area = 0.0
            for before, now in itertools.pairwise(recalls):
                area += (now - before) * max(p for r, p in points if r >= now)
            values.append(area)
    return sum(values) / len(values)


@pytest.mark.parametrize("metric", ["voc2007", "voc2012"])
@pytest.mark.parametrize("seed", range(5))
def test_voc_is_the_devkits_procedure(seed, metric):
    truths, found = random_pictures(seed)
    score = score_detections(truths, found, "abc", metric)
    assert score.precision == pytest.approx(100 * slow_voc(truths, found, 3, metric), abs=1e-6)
    assert [c.objects for c in score.per_class] == [
        sum(int(((t.labels == label) & ~t.difficult).sum()) for t in truths) for label in range(3)
    ]


def one(box: list[float], label: int = 0, *, difficult: bool = False, score: float | None = None) -> Any:
    boxes, labels = np.array([box], float), np.array([label])
    if score is not None:
        return Found(boxes, labels, np.array([score]))
    area = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    return Truth(boxes, labels, np.array([difficult]), np.array([False]), area)


def test_difficult_objects_neither_count_nor_cost():
    """A detection of a difficult object is no error, and missing it is none."""
    box = [0.0, 0, 10, 10]
    truths = [one(box), one(box, difficult=True), one(box, difficult=True)]
    nothing = Found(np.empty((0, 4)), np.empty(0, np.int64), np.empty(0))
    found = [one(box, score=0.5), one(box, score=0.9), nothing]
    for metric in ("voc2007", "voc2012"):
        assert score_detections(truths, found, ["a"], metric).precision == pytest.approx(100)
    counted = [one(box), one([50, 50, 60, 60]), one(box)]
    assert score_detections(counted, found, ["a"], "voc2012").precision < 50


def test_a_second_detection_of_an_object_is_wrong():
    box = [0.0, 0, 10, 10]
    twice = Found(np.array([box, box]), np.array([0, 0]), np.array([0.9, 0.8]))
    other = Found(np.array([box]), np.array([0]), np.array([0.1]))
    assert score_detections([one(box), one(box)], [twice, other], ["a"], "voc2012").precision == pytest.approx(
        100 * (0.5 * 1 + 0.5 * 2 / 3)
    )


def test_eleven_points_and_area_differ_as_they_should():
    ranking = Ranking(
        np.array([[True, False, True]]), np.array([[False, True, False]]), np.zeros(3, int), np.array([4])
    )
    assert measure_area(ranking)[0] == pytest.approx(0.25 * 1 + 0.25 * 2 / 3)
    assert measure_11_points(ranking)[0] == pytest.approx((3 * 1 + 3 * 2 / 3) / 11)


# --- intervals --------------------------------------------------------------------------------


def test_weights_repeat_pictures():
    """A picture drawn twice counts as two pictures with these detections."""
    truths, found = random_pictures(3, pictures=8)
    weights = draw_weights(8, 1, seed=5)[0]
    places = np.repeat(np.arange(8), weights.astype(int))
    whole = score_detections(truths, found, "abc", "voc2012")
    again = score_detections([truths[i] for i in places], [found[i] for i in places], "abc", "voc2012")
    weighted = average(whole.rankings, measure_area, weights)
    assert 100 * weighted == pytest.approx(again.precision, abs=2.0)  # equal scores may stand in another order


def test_interval_shrinks_with_pictures_and_holds_the_value():
    widths = []
    for pictures in (20, 320):
        score = score_detections(*random_pictures(4, pictures=pictures), "abc", "voc2012")
        low, high = score.interval
        assert low <= score.precision <= high
        widths.append(high - low)
    assert widths[1] < widths[0] / 2
    assert score.interval == score_detections(*random_pictures(4, pictures=320), "abc", "voc2012").interval


def test_difference_of_two_detectors_is_paired():
    truths, found = random_pictures(5, pictures=60)
    worse = [Found(f.boxes[::2], f.labels[::2], f.scores[::2]) for f in found]
    score, other = (score_detections(truths, f, "abc", "voc2012") for f in (found, worse))
    same = compare_scores(score, score)
    assert (same.difference, same.interval) == (0, (0, 0))
    difference = compare_scores(score, other)
    assert difference.difference == pytest.approx(score.precision - other.precision)
    low, high = difference.interval
    assert low <= difference.difference <= high
    assert high - low < (score.interval[1] - score.interval[0]) + (other.interval[1] - other.interval[0])
    with pytest.raises(UserError, match="same pictures"):
        compare_scores(score, score_detections(truths, found, "abc", "voc2007"))


def test_nothing_to_be_found():
    empty = Truth(np.empty((0, 4)), np.empty(0, int), np.empty(0, bool), np.empty(0, bool), np.empty(0))
    score = score_detections([empty], [one([0, 0, 9, 9], score=0.5)], ["a"], "coco")
    assert score.precision is None
    assert score.interval is None
    assert find_interval([], measure_area) is None
    assert "no object" in str(score)
    assert all(value is None for value in score.numbers.values())


def test_wrong_use_is_refused():
    with pytest.raises(UserError, match="unknown metric"):
        score_detections([], [], ["a"], "voc2008")
    with pytest.raises(UserError, match="detections of 1"):
        score_detections([], [one([0, 0, 9, 9], score=0.5)], ["a"])
