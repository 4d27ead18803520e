"""The confusion matrix as a picture and in JSON."""

import json
import re

import numpy as np
import pytest

import resnets
from resnets.cli import main
from resnets.evaluation.score import Score
from resnets.report.confusion import draw_confusion


def score(counts, classes):
    counts = np.array(counts)
    return Score(int(counts.sum()), int(counts.sum() - counts.trace()), 0.0, confusion=counts, classes=classes)


def test_cells_have_the_shares_of_their_class(tmp_path):
    found = score([[3, 1, 0], [0, 200, 1], [0, 0, 0]], ("cat", "dog $x$", "_bird"))
    text = draw_confusion(found, tmp_path / "new" / "a.svg").read_text()
    words = re.findall(r"<text[^>]*>([^<]*)</text>", text)
    assert [word for word in words if word in ("75", "25", "100", "&lt;1")].count("75") == 1
    assert "&lt;1" in words
    assert any("error 0.98 % of 205 images" in word for word in words)
    for name in ("cat", "dog $x$", "_bird"):
        assert sum(name in word for word in words) == 2  # beside and below
    again = draw_confusion(found, tmp_path / "b.svg").read_text()
    assert again == text


def test_many_classes_have_no_names(tmp_path):
    found = score(np.eye(100, dtype=int), tuple(f"class{i}" for i in range(100)))
    assert "class7" not in draw_confusion(found, tmp_path / "a.svg").read_text()
    assert draw_confusion(found, tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_eval_draws_and_writes_it(tmp_path, capsys):
    run = resnets.train(
        "resnet20", "synthetic:40", "cifar-quick", length="1it", batch=8, quiet=True, engine="plain", whiten=False,
        out=str(tmp_path / "runs"), network={"widths": (4, 4, 4), "blocks": 1},
    )  # fmt: skip
    argv = ["eval", str(run.path), "--engine", "plain", "--confusion", str(tmp_path / "matrix.png")]
    assert main([*argv, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    counts = np.array(found["confusion"])
    assert counts.sum() == found["images"]
    assert counts.sum() - counts.trace() == found["wrong"]
    assert [row["images"] for row in found["classes"]] == counts.sum(1).tolist()
    assert (tmp_path / "matrix.png").exists()
    assert main([*argv, "--per-class"]) == 0
    assert capsys.readouterr().out.endswith(f"confusion matrix: {tmp_path / 'matrix.png'}\n")


def test_mistakes_are_refused_before_the_test(tmp_path, capsys):
    assert main(["eval", "resnet20.cifar10", "--confusion", str(tmp_path / "a.txt")]) == 2
    assert "is drawn to .png, .svg, .pdf" in capsys.readouterr().err
    with pytest.raises(resnets.UserError, match="has no confusion matrix"):
        draw_confusion(Score(1, 0, 0.0), tmp_path / "a.png")
