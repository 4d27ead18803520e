"""Files of the wrong shape: each is named with what is wrong in it, and the others are shown."""

import json
import os
from pathlib import Path

import pytest

from resnets import records, spec_of
from resnets.cli import main
from resnets.errors import UserError
from resnets.experiments.outcomes import Outcomes, read_row
from resnets.recipe import recipe_of
from resnets.runs import Run, RunKey, provenance
from tools.tables import pages as tables
from tools.tables.records import DETECTED, TEST, TRANSFER

ROOT = Path(__file__).parents[1]
ROW = ROOT / "results" / "hour" / "plain20-cifar10.json"
SCORE = {"images": 100, "wrong": 12, "loss": 0.5, "error": 12.0, "interval": [7.0, 19.8]}


def make_run(folder: Path, name: str = "good", network: str = "preresnet20") -> Run:
    """A finished run, written by hand."""
    spec = spec_of("preresnet20")
    identity = RunKey(type(spec)(**{**spec.__dict__, "name": network}), "cifar10", "ab", recipe_of("cifar-quick"), 0)
    run = Run(folder / name)
    run.path.mkdir(parents=True)
    run.config_path.write_text(json.dumps({"run": identity.to_dict(), "steps": 20, **provenance()}))
    train = [{"kind": "train", "step": s, "loss": 2.0, "error": 50.0, "images_per_second": 9.0} for s in (10, 20)]
    lines = [*train, {"kind": "test", "step": 20, "loss": 0.5, "error": 12.0}]
    run.metrics_path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    run.result_path.write_text(json.dumps({"steps": 20, "train": {"loss": 2.0, "error": 50.0}, "test": SCORE}))
    return run


def change(path: Path, keys: str, value: object) -> None:
    """Write another value at `run.recipe.lr`; `...` deletes the key."""
    data = json.loads(path.read_text())
    *way, last = [int(key) if key.isdigit() else key for key in keys.split(".")]
    inner = data
    for key in way:
        inner = inner[key]
    if value is ...:
        del inner[last]
    else:
        inner[last] = value
    path.write_text(json.dumps(data))


# --- what is wrong is said with its place -----------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "value", "sentence"),
    [
        ("run.recipe.lr", "x", 'config.json: run.recipe.lr must be a finite number, not "x".'),
        ("run.recipe.lr", float("nan"), "config.json: run.recipe.lr must be a finite number, not NaN."),
        ("run.recipe.lr", 1e999, "config.json: run.recipe.lr must be a finite number, not Infinity."),
        ("run.recipe.lr", 10**400, "config.json: run.recipe.lr must be a finite number, not 1000"),
        ("run.recipe.batch", 0, "config.json: batch must be between 1 and 1048576, not 0."),
        ("run.recipe", [], "config.json: run.recipe must be an object, not []."),
        ("run.network.blocks", [3, "3", 3], 'config.json: run.network.blocks[1] must be a whole number from'),
        ("run.network.order", "sideways", "config.json: unknown order 'sideways'"),
        ("run.network.bn_eps", 0.0, "config.json: network: bn_eps must be above 0, as PyTorch's BN demands, not 0.0."),
        ("run.seed", 1.5, "config.json: run.seed must be a whole number from"),
        ("run", ..., "config.json: run is missing."),
        ("steps", True, "config.json: steps must be a whole number from 1 to 9,007,199,254,740,992, not true."),
        ("command", None, "config.json: command must be text, not null."),
    ],
)  # fmt: skip
def test_a_config_of_the_wrong_shape_is_told_by_its_key_and_the_other_runs_are_listed(
    tmp_path, capsys, keys, value, sentence
):
    make_run(tmp_path)
    bad = make_run(tmp_path, "bad")
    change(bad.config_path, keys, value)
    assert main(["runs", str(tmp_path)]) == 1
    told = capsys.readouterr()
    assert f"left out: {tmp_path}/bad/{sentence}" in told.err
    assert told.err.count("\n") == 1
    assert "good" in told.out
    assert "bad" not in told.out
    with pytest.raises(UserError):
        _ = bad.identity


@pytest.mark.parametrize(
    ("keys", "value", "sentence"),
    [
        ("test.error", 101, "result.json: test.error must be a number from 0 to 100, not 101."),
        ("test.interval", [1], "result.json: test.interval must be a list of 2, not [1]."),
        ("test", 5, "result.json: test must be an object, not 5."),
        ("steps", ..., "result.json: steps is missing."),
    ],
)
def test_a_result_of_the_wrong_shape_is_refused_where_it_is_published(tmp_path, capsys, keys, value, sentence):
    bad = make_run(tmp_path, "bad")
    change(bad.result_path, keys, value)
    assert main(["results", str(bad.path), "-o", str(tmp_path / "r.json")]) == 2
    assert sentence in capsys.readouterr().err
    assert not (tmp_path / "r.json").exists()


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ('{"kind": "train", "step": 1, "error": 5, "images_per_second": 1}', "line 2: loss is missing."),
        ('{"kind": "test", "step": -1, "error": 5, "loss": 1}', "line 2: step must be a whole number from 0"),
        ("[1]", "line 2: its content must be an object, not [1]."),
        ("{", "line 2 cannot be read as JSON"),
        ('{"kind": 3}', "line 2: kind must be text, not 3."),
        ('{"kind": "signal", "step": 1, "rms": [1], "growth": [1, 2], "share": [1], "product": [1], "truncated": [1]}',
         "line 2: growth has 2 values and rms has 1; they must have equally many."),
    ],
)  # fmt: skip
def test_a_wrong_line_of_metrics_is_told_by_its_number_and_the_others_are_drawn(tmp_path, capsys, line, sentence):
    make_run(tmp_path)
    bad = make_run(tmp_path, "bad")
    lines = bad.metrics_path.read_text().splitlines()
    bad.metrics_path.write_text("\n".join([lines[0], line, *lines[1:]]) + "\n")
    assert main(["plot", str(tmp_path), "-o", str(tmp_path / "a.svg")]) == 1
    told = capsys.readouterr()
    assert sentence in told.err
    assert "12.00" in (tmp_path / "a.svg").read_text()
    assert main(["plot", str(bad.path), "-o", str(tmp_path / "b.svg")]) == 2
    assert not (tmp_path / "b.svg").exists()


def test_lines_of_kinds_that_newer_versions_write_are_passed_over(tmp_path):
    run = make_run(tmp_path)
    with run.metrics_path.open("a") as file:
        file.write('{"kind": "weather", "rain": true}\n')
    assert [line["kind"] for line in run.metrics()] == ["train", "train", "test"]


@pytest.mark.parametrize(
    ("keys", "value", "sentence"),
    [
        ("run.network.rows", ["conv"], "config.json: row 'conv': 'conv' is no conv, which is written as conv:FILTERS"),
        ("run.network.rows", "conv", 'config.json: run.network.rows must be a list, not "conv".'),
        ("run.network.rows", [], "config.json: run.network.rows must be a list of at least 1, not []."),
        ("run.network.rows", [1], "config.json: run.network.rows[0] must be text, not 1."),
        ("run.network.rows", ..., "config.json: run.network.rows is missing."),
        ("run.network.kind", "tree", "config.json: a network's kind must be chain, not 'tree'; update resnets"),
        ("run.network.input_size", 1, "config.json: nin cannot read images of 1x1 pixels"),
        ("run.network.aux", "no", 'config.json: run.network.aux must be true or false, not "no".'),
        ("run.teacher", 1, "config.json: run.teacher must be text, not 1."),
        ("run.recipe.init", "x", "config.json: init must be gaussian:STD"),
    ],
)
def test_a_config_of_another_system_is_held_to_its_shape(tmp_path, keys, value, sentence):
    run = make_run(tmp_path)
    key = RunKey(spec_of("nin"), "cifar10", "ab", recipe_of("nin-paper"), 0)
    change(run.config_path, "run", key.to_dict())
    assert run.identity == key
    change(run.config_path, keys, value)
    with pytest.raises(UserError) as error:
        _ = run.identity
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)


def test_a_row_of_another_system_has_no_signal(tmp_path):
    path = tmp_path / "hour" / ROW.name
    path.parent.mkdir()
    path.write_text(ROW.read_text())
    change(path, "network", spec_of("nin").to_dict())
    with pytest.raises(UserError, match=r"runs\[0\]\.signal is of residual units, and nin has none"):
        read_row(path)


def test_keys_of_newer_versions_are_allowed(tmp_path):
    run = make_run(tmp_path)
    change(run.config_path, "weather", {"rain": True})
    change(run.result_path, "test.weather", "rain")
    assert run.identity.spec.name == "preresnet20"
    assert run.result["test"]["weather"] == "rain"


# --- what is no JSON, or no file --------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"\xff\xfe{}", "cannot be read as JSON"),
        (b"", "cannot be read as JSON"),
        (b'{"a": ' + b"9" * 5000 + b"}", "cannot be read as JSON"),
        (b"[" * 100_000, "nested deeper than 64 levels"),
        (b"[" * 300 + b"]" * 300, "nested deeper than 64 levels"),
        (b'{"a": "\\ud800"}', "half of a character"),
        (b'{"a": 1, "b": {"lr": 1, "lr": 2}}', 'the key "lr" stands twice in one object'),
        (b'{"a": ' + b" " * 2000 + b"1}", "is larger than"),
    ],
)
def test_what_json_does_not_allow_or_python_does_not_stand_is_a_sentence(tmp_path, monkeypatch, content, sentence):
    monkeypatch.setattr(records, "MOST_BYTES", 2000 if sentence == "is larger than" else 1 << 20)
    path = tmp_path / "a.json"
    path.write_bytes(content)
    with pytest.raises(UserError, match=sentence) as told:
        records.load(path)
    assert str(path) in str(told.value)
    assert len(str(told.value)) < 300 + len(str(path))


def test_names_of_files_that_are_no_utf8_are_read_as_they_were_written(tmp_path):
    (tmp_path / "a.json").write_text(json.dumps({"command": "resnets train --out \udcff"}))
    assert records.load(tmp_path / "a.json") == {"command": "resnets train --out \udcff"}


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes with names")
def test_a_pipe_or_a_folder_in_place_of_a_file_is_refused_and_not_waited_for(tmp_path):
    run = make_run(tmp_path)
    run.result_path.unlink()
    os.mkfifo(run.result_path)
    assert main(["runs", str(tmp_path)]) == 2  # there is no other run to show
    run.result_path.unlink()
    run.result_path.mkdir()
    with pytest.raises(UserError, match=r"result\.json is not a file but a folder"):
        _ = run.result


@pytest.mark.parametrize("name", ["a\0b", "\ud800", "a" * 5000])
def test_a_name_that_no_file_can_have_is_a_sentence(name):
    with pytest.raises(UserError, match="cannot read"):
        records.load(Path(name))


# --- published results ------------------------------------------------------------------------


def test_every_published_file_has_its_shape():
    kinds = {
        "hour": records.ROW,
        "cifar": records.TRAINING,
        "imagenet": TEST,
        "transfer": TRANSFER,
        "detection": DETECTED,
    }
    found = [kind.read(path) for folder, kind in kinds.items() for path in (ROOT / "results" / folder).glob("*.json")]
    analysed = ROOT / "results" / "analysis"
    found += [records.ANALYSES.read(path) for path in analysed.rglob("propagation.json")]
    found += [records.SIGNALS.read(path) for part in ("units", "trained") for path in (analysed / part).rglob("*.json")]
    assert len(found) > 30


@pytest.mark.parametrize(
    ("keys", "value", "sentence"),
    [
        ("runs.0.curves.loss.1", [1.0], r"runs\[0\]\.curves\.loss\[1\] has 1 values"),
        ("runs.0.signal.zeros", [0.5], r"runs\[0\]\.signal\.zeros has 1 values for 9 units"),
        ("runs.0.result.test", ..., r"runs\[0\]\.result\.test is missing"),
        ("runs.0.steps", 0, r"runs\[0\]\.steps must be a whole number from 1"),
        ("runs.1.seed", 0, "runs has the seed 0 twice"),
        ("runs", [], "runs must be a list of at least 1"),
        ("network.order", "sideways", "network: unknown order"),
        ("fails_above", 1e300, "fails_above must be a number from 0 to 100"),
        ("row", "another", "row must be 'plain20-cifar10', as the file is called, not 'another'"),
    ],
)
def test_a_row_that_would_mislead_is_refused(tmp_path, keys, value, sentence):
    path = tmp_path / ROW.name
    path.write_bytes(ROW.read_bytes())
    assert read_row(path).row == ROW.stem
    change(path, keys, value)
    with pytest.raises(UserError, match=sentence):
        read_row(path)
    left_out = []
    assert Outcomes.read(tmp_path, left_out.append) == {}
    assert len(left_out) == 1


def test_the_page_leaves_out_a_broken_file_says_so_and_ends_with_1(tmp_path, capsys):
    folder = tmp_path / "hour"
    folder.mkdir()
    for name in ("plain20-cifar10.json", "resnet20-cifar10.json"):
        (folder / name).write_bytes((ROW.parent / name).read_bytes())
    change(folder / ROW.name, "runs.0.seed", "x")
    assert main(["report", str(tmp_path), "-o", str(tmp_path / "a.html")]) == 1
    told = capsys.readouterr()
    assert "plain20-cifar10.json: runs[0].seed must be" in told.err
    assert "1 rows at budget hour" in told.out
    assert "resnet20-cifar10" in (tmp_path / "a.html").read_text()
    assert main(["report", str(folder / ROW.name), "-o", str(tmp_path / "b.html")]) == 2
    assert not (tmp_path / "b.html").exists()


def test_a_row_whose_results_are_broken_is_not_run_over_them(tmp_path, capsys):
    (tmp_path / "hour").mkdir()
    path = tmp_path / "hour" / ROW.name
    path.write_bytes(ROW.read_bytes())
    change(path, "runs.0.curves", [])
    before = path.read_bytes()
    words = ["reproduce", "plain-cifar", "--rows", ROW.stem, "--budget", "hour", "--results", str(tmp_path)]
    assert main([*words, "--out", str(tmp_path / "runs")]) == 1
    told = capsys.readouterr()
    assert "runs[0].curves must be an object, not []. Move the file away, or repair it" in told.err
    assert told.err.count("left out") == 1
    assert "0 rows to run" in told.out
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("file", "keys", "value", "sentence"),
    [
        ("bench/step.json", "lines.preresnet20, batch 128.contestants.timm.seconds", [0], "seconds[0] must be"),
        ("bench/depth.json", "lines.preresnet20, batch 8.layers", ..., "layers is missing"),
        ("bench/epoch.json", "points", [], "points must be a list of at least 2"),
        ("imagenet/resnet50-keras-crop-224.json", "interval", 3, "interval must be a list of 2"),
        ("transfer/preresnet20-fashion-mnist.json", "errors.new", "x", "errors.new must be a list"),
        ("cifar/preresnet20-cifar-quick.json", "runs.0.result.test.error", None, "runs[0].result.test.error must be"),
    ],
)
def test_tables_are_not_made_from_a_broken_result(tmp_path, capsys, file, keys, value, sentence):
    path = tmp_path / "results" / file
    path.parent.mkdir(parents=True)
    path.write_bytes((ROOT / "results" / file).read_bytes())
    change(path, keys, value)
    names = ("cifar", "imagenet", "detectors", "transfer", "bench-step", "bench-depth", "bench-epoch")
    page = "".join(f"<!-- results: {name} -->\nold\n<!-- end -->\n" for name in names)
    (tmp_path / "README.md").write_text(page)
    assert tables.main([str(tmp_path)]) == 2
    told = capsys.readouterr().err
    assert f"{path}: " in told
    assert sentence in told
    assert (tmp_path / "README.md").read_text() == page


# --- names ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a$$b", "$x$", "_hidden", "\\$", "\x01\x1b[31m", "w" * 5000])
def test_any_name_can_be_drawn(tmp_path, name):
    run = make_run(tmp_path, network=name)
    out = tmp_path / "a.svg"
    assert main(["plot", str(run.path), "-o", str(out)]) == 0
    drawn = out.read_text()
    assert "test error 12.00 %" in drawn
    if name.isprintable() and len(name) < 10:
        assert f"{name}: test error" in drawn


def test_a_file_name_that_is_no_utf8_is_printed_escaped(tmp_path, capsys):
    run = make_run(tmp_path)
    assert main(["plot", str(run.path), "-o", str(tmp_path / "\udcff.svg")]) == 0
    assert capsys.readouterr().out.endswith("\\udcff.svg\n")
    assert os.path.exists(os.fsencode(tmp_path) + b"/\xff.svg")
