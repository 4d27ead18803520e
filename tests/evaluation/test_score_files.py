"""The score of a detector as a file: the same comparison as of the score itself, and no damaged file is believed."""

import numpy as np
import pytest
import torch

from resnets.detection.average_precision import Found
from resnets.detection.score import compare_scores, score_detections
from resnets.errors import UserError
from resnets.evaluation.score_files import read_score, write_score
from resnets.weights import files
from tests.detection.test_metrics import random_pictures


def score(seed):
    truths, found = random_pictures(seed)
    return score_detections(truths, found, ("a", "b", "c"), "voc2012"), truths, found


def test_a_file_compares_as_the_score_does(tmp_path):
    one, truths, found = score(0)
    worse = [Found(f.boxes, f.labels, np.roll(f.scores, 1)) for f in found]
    other = score_detections(truths, worse, one.classes, one.metric)
    for name, each in (("one", one), ("other", other)):
        write_score(tmp_path / name, each)
    again = [read_score(tmp_path / name) for name in ("one", "other")]
    assert compare_scores(*again) == compare_scores(one, other)
    assert compare_scores(one, other).difference != 0
    assert again[0].precision == one.precision
    assert again[0].classes == one.classes


@pytest.mark.parametrize(
    "change",
    [
        {"0.right": torch.zeros(1, 2, dtype=torch.bool)},
        {"1.pictures": torch.tensor([10**6])},
        {"2.positives": torch.tensor([1.0])},
        {"0.wrong": torch.zeros(3)},
    ],
)
def test_a_damaged_file_is_refused(tmp_path, change):
    path = tmp_path / "score"
    write_score(path, score(1)[0])
    kept = files.read(path)
    files.write(path, {**kept.tensors, **change}, kept.metadata)
    with pytest.raises(UserError, match="not a score of a detector"):
        read_score(path)


def test_weights_are_no_score(tmp_path):
    files.write(tmp_path / "net", {"w": torch.zeros(1)}, {})
    with pytest.raises(UserError, match="not a score of a detector"):
        read_score(tmp_path / "net")
