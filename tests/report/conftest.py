"""Made-up results, as `resnets reproduce` and `resnets analyze` write them, and the page read."""

import json
from html.parser import HTMLParser
from pathlib import Path

import pytest

from resnets import spec_of
from resnets.papers.tables import EXPERIMENTS
from resnets.report.propagation import PANELS

FROM = {
    "command": "resnets reproduce table1 --budget hour",
    "commit": "c0ffee",
    "versions": {"resnets": "0.1.0", "torch": "2.4.0"},
    "machine": {"system": "Test", "cpu": "made up", "cores": 2},
}


def write_row(folder: Path, cell, budget: str, errors, *, curve: bool = False) -> Path:
    """A row's file with a run for each error; None is a run that diverged."""
    row, runs = cell.row, []
    spec = spec_of(row.network, **dict(row.changes))
    steps = [10, 20, 30, 40]
    for seed, error in enumerate(errors):
        units = sum(spec.blocks)
        run = {"seed": seed, "steps": 40, "began": f"2026-01-0{seed + 1}T00:00:00+00:00", **FROM}
        run["curves"] = {"loss": [steps, [2.3, 2.0, 1.5, 1.2]], "training": [steps, [90.0, 80.0, 70.0, 60.0]]}
        if error is None:
            run["result"] = {"failed": "the loss is nan at step 3"}
        else:
            run["result"] = {"test": {"error": error, "images": 10000, "interval": [error - 1, error + 1]}}
            run["curves"]["test"] = [steps, [90.0, 85.0, 80.0, error]] if curve else [[40], [error]]
            run["signal"] = {"size": [1.0] * (units + 1), "zeros": [0.25] * (units + 1), "responses": [0.5, 0.75]}
        runs.append(run)
    result = {
        "row": row.name, "budget": budget, "scaled": ["images 16x16", "40it for 64000it"], "fails_above": 81.0,
        "network": spec.to_dict(), "data": {"name": "cifar10@16", "digest": "0"},
        "recipe": {"name": f"cifar-paper-{budget}", "validation": 0}, "runs": runs,
    }  # fmt: skip
    path = folder / budget / f"{row.name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result))
    return path


def write_signals(folder: Path) -> Path:
    """Of 20 layers two networks with new weights, as `resnets reproduce signals` writes them."""
    made = {"command": "resnets reproduce signals", "commit": "c0ffee", "began": "2026-01-01", "versions": {}}
    data = {
        "layers": 20, "kernels": "basic", "data": "cifar10", "images": 16, "seed": 0, "statistics": "batch",
        "spans": [[0, 3], [4, 6], [7, 9]], "at": [0, 3, 4, 6, 7, 9],
        "signals": [
            {
                "shortcut": shortcut, "order": "original", "rms": [1.0, 2.0, 1.5, 2.5, 2.0, 3.0],
                "gradient": [0.5, 0.25, None, 0.125, 0.1, 0.05],
                "product": [factor**n for n in (3, 0, 2, 0, 2, 0)], "predicted": [factor**n for n in (3, 2, 2)],
                "missed": [0.7, 0.5, 0.4], "cosine": [0.1, 0.2, 0.3],
            }
            for shortcut, factor in (("identity", 1.0), ("scale:0.5:1", 0.5))
        ],
        "provenance": {**made, "machine": {"cpu": "made up", "cores": 2}},
    }  # fmt: skip
    path = folder / "analysis" / "units" / "20-basic.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data))
    return path


class Reader(HTMLParser):
    """Elements that are opened and closed in order, the rows of tables, and the data of charts and of the explorer."""

    VOID = ("meta", "br")

    def __init__(self, text):
        super().__init__()
        self.open, self.rows, self.data, self.ids, self.targets, self.outside = [], [], {}, [], set(), []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, name, attributes):
        attributes = dict(attributes)
        self.ids += [attributes["id"]] if "id" in attributes else []
        self.targets |= {attributes[key].lstrip("#") for key in ("popovertarget", "href") if key in attributes}
        self.outside += [attributes[key] for key in ("src", "srcset", "action", "data") if key in attributes]
        if name not in self.VOID:
            self.open.append((name, attributes))
        if name == "tr":
            self.rows.append([])
        elif name in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, name):
        assert self.open.pop()[0] == name

    def handle_data(self, data):
        names = [name for name, _ in self.open]
        if "td" in names or "th" in names:
            self.rows[-1][-1] += data
        if self.open and self.open[-1][1].get("type") == "application/json":
            self.data[self.open[-1][1].get("id", len(self.data))] = json.loads(data)

    @property
    def charts(self):
        return [one for key, one in self.data.items() if key != "explorer-data"]

    @property
    def explorer(self):
        return self.data["explorer-data"]


@pytest.fixture
def read_page():
    return Reader


@pytest.fixture
def write():
    return write_row


@pytest.fixture
def made_results(tmp_path) -> Path:
    """Of Table 1 four rows at `hour` and one at `smoke`, Figure 1 with one curve of two, and an analysis."""
    folder = tmp_path / "made"
    original, plain, half, scaled, *_ = EXPERIMENTS["table1"].cells
    write_row(folder, original, "hour", (60.1, 60.3))
    write_row(folder, plain, "hour", (89.0, 90.0))
    write_row(folder, half, "hour", (None, None))
    write_row(folder, scaled, "hour", (55.0, 55.2))  # better than identity: against the paper
    write_row(folder, original, "smoke", (91.0,))
    write_row(folder, EXPERIMENTS["figure1"].cells[0], "hour", (70.0,), curve=True)
    maps = [2.0, 1.5, None, 1.0]
    net = {"label": "a <b>net</b>", "spans": [[0, 1], [2, 3]], "images": 8, "data": "synthetic", "seed": 0}
    net |= {"statistics": "batch", "maps": {"predicted_product": maps}, "units": {}}
    for panel in PANELS:
        net[panel.part][panel.name] = maps if panel.part == "maps" else maps[1:]
    analysis = {"analyses": [net], "provenance": {"command": "resnets analyze", "commit": "c0ffee"}}
    (folder / "propagation.json").write_text(json.dumps(analysis))
    write_signals(folder)
    return folder
