"""Memory along an epoch of files, on a small tree."""

import json
import sys

import pytest

from benchmarks import epoch
from tools.tables.pages import fill_page

MIB = 2**20


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
@pytest.mark.parametrize("decoders", [0, 1])
def test_an_epoch_keeps_no_image(tmp_path, decoders, monkeypatch):
    """Three thousand images of 96x96, of which one batch is in use at a time: kept, they would take 80 MiB as bytes
    and 320 MiB as numbers."""
    monkeypatch.setattr(epoch, "CLASSES", 10)
    monkeypatch.setattr(epoch, "PICTURES", 50)
    epoch.linked(tmp_path, 3008)
    _, indexed, *along = epoch.epoch(tmp_path / "tree", 32, decoders, side=96)
    assert [point["images"] for point in (indexed, along[0], along[-1])] == [0, 32, 3008]
    assert len(along) == epoch.TELLS + 1
    assert all(len(point["decoders"]) == decoders for point in along)
    whole = [point["training"] + sum(point["decoders"]) for point in along]
    assert whole[-1] - whole[3] < 16 * MIB


def test_the_page_shows_the_tenths(tmp_path):
    (tmp_path / "bench").mkdir()
    points = [(0, 100, []), (0, 120, []), (256, 130, [50, 60]), (512, 131, [51, 60])]
    told = {
        "files": 1234567, "decoders": 2, "commit": "0123456789abcdef", "began": "2026-01-02T03:04:05+00:00",
        "points": [{"images": n, "training": t * MIB, "decoders": [d * MIB for d in ds]} for n, t, ds in points],
    }  # fmt: skip
    page = "<!-- results: bench-epoch -->\n<!-- end -->"
    assert "Not measured yet" in fill_page(page, tmp_path)
    (tmp_path / "bench" / "epoch.json").write_text(json.dumps(told))
    shown = fill_page(page, tmp_path)
    assert "| 0 | 120 | 0 |\n| 256 | 130 | 110 |\n| 512 | 131 | 111 |" in shown
    assert "1,234,567 files; commit 0123456789; 2026-01-02" in shown
