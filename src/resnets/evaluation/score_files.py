"""The score of a detector as a file, from which two detectors can be compared later without another test."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch

from resnets.detect_options import METRICS
from resnets.detection.average_precision import Ranking
from resnets.detection.score import DetectionScore
from resnets.errors import UserError
from resnets.weights import files

_PARTS = ("right", "wrong", "pictures", "positives")


def write_score(path: Path, score: DetectionScore) -> None:
    """Write the ranked detections of each class; the numbers of COCO follow from boxes, which are not kept."""
    tensors = {
        f"{label}.{part}": torch.from_numpy(np.ascontiguousarray(getattr(ranking, part)))
        for label, ranking in enumerate(score.rankings)
        for part in _PARTS
    }
    about = {"metric": score.metric, "pictures": str(score.pictures), "classes": json.dumps(score.classes)}
    files.write(path, tensors, about)


def read_score(path: Path) -> DetectionScore:
    found = files.read(path)
    try:
        classes = tuple(map(str, json.loads(found.metadata["classes"])))
        metric, pictures = found.metadata["metric"], int(found.metadata["pictures"])
        rankings = tuple(
            Ranking(*(found.tensors[f"{label}.{part}"].numpy() for part in _PARTS)) for label in range(len(classes))
        )
        if metric not in METRICS or not all(_is_whole(ranking, pictures) for ranking in rankings):
            raise ValueError
    except (KeyError, ValueError, TypeError, RecursionError):
        raise UserError(f"{path} is not a score of a detector; delete it and test the detector again.") from None
    return DetectionScore(metric, pictures, classes, rankings)


def _is_whole(ranking: Ranking, pictures: int) -> bool:
    """Whether the arrays of a class fit each other."""
    right, wrong, of, positives = (getattr(ranking, part) for part in _PARTS)
    return (
        right.dtype == wrong.dtype == bool
        and of.dtype == positives.dtype == np.int64
        and right.ndim == 2
        and right.shape == wrong.shape
        and of.shape == right.shape[1:]
        and positives.shape == (pictures,)
        and bool((positives >= 0).all() and (of >= 0).all() and (of < pictures).all())
    )
