"""VOC's rule: which detections of a class are right."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from resnets.data.annotations.pictures import Truth
from resnets.detection.average_precision import Found, Ranking, measure_overlaps

OVERLAP = 0.5


def rank_detections(truths: Sequence[Truth], found: Sequence[Found], label: int, overlap: float = OVERLAP) -> Ranking:
    """Rank the detections of a class.

    In order of score each detection meets the object of its picture that it overlaps most. It is right if the overlap
    is large enough and nobody met that object before. An object marked as difficult need not be found, and a
    detection that meets one does not count.
    """
    objects = [truth.labels == label for truth in truths]
    mine = [one.labels == label for one in found]
    scores = np.concatenate([one.scores[m] for one, m in zip(found, mine, strict=True)] or [np.empty(0)])
    pictures = np.repeat(np.arange(len(found)), [int(m.sum()) for m in mine])
    flags = [_judge(truth, one, (o, m), overlap) for truth, one, o, m in zip(truths, found, objects, mine, strict=True)]
    right = np.concatenate([flag[0] for flag in flags] or [np.empty(0, bool)])
    ignored = np.concatenate([flag[1] for flag in flags] or [np.empty(0, bool)])
    order = np.argsort(-scores, kind="stable")
    right, ignored = right[order], ignored[order]
    positives = np.array(
        [int((o & ~truth.difficult).sum()) for truth, o in zip(truths, objects, strict=True)], np.int64
    )
    return Ranking(right[None], (~right & ~ignored)[None], pictures[order], positives)


def _judge(
    truth: Truth, found: Found, chosen: tuple[np.ndarray, np.ndarray], overlap: float
) -> tuple[np.ndarray, np.ndarray]:
    """Whether each detection of a picture is right, and whether it does not count. The order between pictures does not
    matter, as a detection meets objects of its own picture only."""
    objects, mine = chosen
    count = int(mine.sum())
    right, ignored = np.zeros(count, bool), np.zeros(count, bool)
    if not count or not objects.any():
        return right, ignored
    overlaps = measure_overlaps(found.boxes[mine], truth.boxes[objects])
    difficult, met = truth.difficult[objects], np.zeros(int(objects.sum()), bool)
    for i in np.argsort(-found.scores[mine], kind="stable"):
        best = int(overlaps[i].argmax())
        if overlaps[i, best] < overlap:
            continue
        ignored[i] = difficult[best]
        right[i] = not difficult[best] and not met[best]
        met[best] = True
    return right, ignored
