"""Curves, listings, results and tables from run folders written by hand."""

import dataclasses
import json
import statistics
from pathlib import Path

import pytest

from resnets import Spec, UserError, records, spec_of
from resnets.cli.run_output import compare_command, plot_command, report_command, results_command, runs_command
from resnets.differences import find_differences, label_runs, summarize_differences
from resnets.experiments.results import POINTS, collect_runs
from resnets.recipe import Recipe, recipe_of
from resnets.report import curves
from resnets.report.compare import compare_runs, name_runs
from resnets.report.listing import list_runs, summarize_run
from resnets.runs import Run, RunKey, Summary, provenance
from tools.tables import pages as tables

ROOT = Path(__file__).parents[2]


def make_run(
    folder: Path,
    seed: int = 0,
    error: float | None = 12.0,
    model: str = "preresnet20",
    lines: int = 300,
    network: dict | None = None,
    **changes,
) -> Run:
    identity = RunKey(spec_of(model, **network or {}), "cifar10", "d1ge57", recipe_of("cifar-quick", **changes), seed)
    run = Run(folder / identity.slug)
    run.path.mkdir(parents=True)
    run.config_path.write_text(json.dumps({"run": identity.to_dict(), "steps": 10 * lines, **provenance()}))
    with run.open_metrics() as file:
        for i in range(1, lines + 1):
            line = {"kind": "train", "step": 10 * i, "loss": 2 / i, "error": 9.0, "lr": 0.1, "images_per_second": 128.0}
            file.write(json.dumps({**line, "epoch": i / 10, "memory": 1}) + "\n")
        file.write(json.dumps({"kind": "epoch", "step": 10 * lines, "epoch": 1, "loss": 0.1, "error": 9.0}) + "\n")
        if error is not None:
            file.write(json.dumps({"kind": "test", "step": 10 * lines, "epoch": 1, "loss": 0.1, "error": error}) + "\n")
    if error is not None:
        test = {"error": error, "interval": [error - 1, error + 1]}
        run.result_path.write_text(json.dumps({"steps": 10 * lines, "test": test}))
    return run


def test_several_runs_in_one_picture_the_same_bytes_each_time(tmp_path):
    a, b = make_run(tmp_path), make_run(tmp_path, seed=1, error=11.5)
    first = curves.draw([a, b], tmp_path / "one.svg").read_bytes()
    assert curves.draw([a, b], tmp_path / "two.svg").read_bytes() == first
    text = first.decode()
    assert "preresnet20, seed 1: test error 11.50 %" in text
    assert "training loss (dashed)" in text
    assert curves.draw([a], tmp_path / "one.png").read_bytes().startswith(b"\x89PNG")


def test_labels_are_as_short_as_tells_runs_apart(tmp_path):
    a, b = make_run(tmp_path), make_run(tmp_path, model="resnet20")
    assert name_runs([a, b], [a.identity, b.identity]) == ["preresnet20", "resnet20"]
    assert name_runs([a, a], [a.identity] * 2) == [a.path.name] * 2


@pytest.mark.parametrize(("name", "message"), [("a.txt", "end its name in .svg, .png or .pdf")])
def test_a_picture_of_no_known_kind_is_refused(tmp_path, name, message):
    with pytest.raises(UserError, match=message):
        curves.draw([make_run(tmp_path)], tmp_path / name)


def test_a_run_without_metrics_cannot_be_drawn(tmp_path):
    run = make_run(tmp_path, lines=1)
    run.metrics_path.write_text("")
    with pytest.raises(UserError, match="has no metrics yet"):
        curves.draw([run], tmp_path / "a.svg")


def test_a_listing_tells_state_and_time_left(tmp_path, capsys):
    make_run(tmp_path)
    stopped = make_run(tmp_path, seed=1, error=None)
    config = stopped.config
    stopped.config_path.write_text(json.dumps({**config, "steps": 6000}))
    rows = {row.run: row for row in list_runs(tmp_path)}
    assert rows[stopped.path.name].to_dict() | {"run": ""} == {
        "run": "", "state": "stopped", "step": 3000, "steps": 6000, "loss": 2 / 300, "error_on": "training",
        "last_error": 9.0, "best_error": 9.0, "validation": None, "test": None, "interval": None, "seconds_left": 3000,
        "images_per_second": 128.0, "memory": 1, "differs": {"seed": "1"},
    }  # fmt: skip
    with stopped.lock():
        assert summarize_run(stopped).state == "training"
    runs_command(str(tmp_path), as_json=False)
    shown = capsys.readouterr().out
    assert "50:00" in shown
    assert "12.00" in shown
    runs_command(str(tmp_path), as_json=True)
    assert len(json.loads(capsys.readouterr().out)) == 2


def test_folders_without_runs_are_told(tmp_path):
    with pytest.raises(UserError, match="does not exist"):
        runs_command(str(tmp_path / "no"), as_json=False)
    with pytest.raises(UserError, match="there is no run in"):
        runs_command(str(tmp_path), as_json=False)
    with pytest.raises(UserError, match="there is no run in"):
        plot_command([str(tmp_path)], "a.svg")


def test_results_hold_every_seed_with_its_provenance(tmp_path, capsys):
    runs = [make_run(tmp_path / "runs", seed, error) for seed, error in ((2, 12.0), (0, 11.0), (1, 13.5))]
    out = tmp_path / "results" / "cifar" / "a.json"
    results_command([str(run.path) for run in runs], str(out))
    found = json.loads(out.read_text())
    assert [run["seed"] for run in found["runs"]] == [0, 1, 2]
    assert found["summary"]["test"]["median"] == 12.0
    assert found["network"] == spec_of("preresnet20").to_dict()
    for run in found["runs"]:
        assert {"command", "commit", "versions", "machine", "began", "result"} <= set(run)
        steps, losses = run["curves"]["loss"]
        assert len(steps) == len(losses) <= POINTS
        assert (steps[0], steps[-1]) == (10, 3000)
    table = tables.fill_page("<!-- results: cifar -->\nold\n<!-- end -->\n", tmp_path / "results")
    assert "| preresnet20 | cifar10 | `cifar-quick` | [median 12.00 % (12.17 +- 1.26, 3 runs)]" in table
    assert "8.75 % (v1 Table 6)" in table
    assert "old" not in table


def test_the_table_says_in_which_fields_a_recipe_has_changed_since_the_training(tmp_path):
    run = make_run(tmp_path / "runs", 0, 11.0, length="13.5ep", whiten=False)
    results_command([str(run.path)], str(tmp_path / "results" / "cifar" / "a.json"))
    table = tables.fill_page("<!-- results: cifar -->\nold\n<!-- end -->\n", tmp_path / "results")
    assert "| preresnet20 | cifar10 | `cifar-quick` with length 13.5ep, whiten False | [11.00 %" in table


def test_only_finished_runs_are_collected_each_once(tmp_path):
    done = make_run(tmp_path)
    with pytest.raises(UserError, match="only finished runs"):
        collect_runs([done, make_run(tmp_path, seed=5, error=None)])
    with pytest.raises(UserError, match="are the same run; leave one of them out"):
        collect_runs([done, done])
    with pytest.raises(UserError, match="no run was given"):
        collect_runs([])


def test_results_of_several_variants_are_groups_in_one_file(tmp_path):
    """Each group is what a file of that variant alone would be; tables and the page have a line for each."""
    runs = [make_run(tmp_path / "runs", seed, 10.0 + seed) for seed in (0, 1)]
    runs += [make_run(tmp_path / "runs", 0, 14.0, network={"shortcut": "scale:0.5:1"}, lr=0.2)]
    out = tmp_path / "results" / "cifar" / "a.json"
    results_command([str(run.path) for run in runs], str(out))
    data = json.loads(out.read_text())
    assert data == {"groups": [json.loads(json.dumps(collect_runs(part))) for part in (runs[:2], runs[2:])]}
    assert records.check_trainings(data, out) == data["groups"]
    assert records.check_trainings(data["groups"][0], out) == data["groups"][:1]
    table = tables.fill_page("<!-- results: cifar -->\nold\n<!-- end -->\n", tmp_path / "results")
    first = (
        "| preresnet20, shortcut identity, lr 0.3 | cifar10 | `cifar-quick` | [median 10.50 % (10.50 +- 0.71, 2 runs)]"
    )
    assert first in table
    assert (
        "| preresnet20, shortcut scale:0.5:1, lr 0.2 | cifar10 | `cifar-quick` | [14.00 % (13.0 to 15.0), 1 run]"
        in table
    )
    page = tmp_path / "page.html"
    assert report_command([str(tmp_path / "results")], str(page)) == 0
    text = page.read_text()
    assert "preresnet20, shortcut scale:0.5:1, lr 0.2</th>" in text
    assert 'id="from-a__variant_1"' in text
    assert 'id="from-a__variant_2"' in text


def test_a_broken_group_is_named(tmp_path):
    data = {"groups": [collect_runs([make_run(tmp_path / "runs")])] * 2}
    data = json.loads(json.dumps(data))
    data["groups"][1]["network"]["order"] = "no"
    with pytest.raises(UserError, match=r"a\.json: groups\[1\]\.network: unknown order 'no'"):
        records.check_trainings(data, Path("a.json"))


def test_a_listing_shows_what_differs_and_not_hashes(tmp_path, capsys):
    """Fields that follow from the names of network and recipe are not shown; numbers are sorted as numbers."""
    scaled = {"shortcut": "scale:0.5:1"}
    for network, lr, seed in ((scaled, 0.3, 10), (scaled, 0.3, 9), ({}, 0.3, 9), ({}, 0.05, 9)):
        make_run(tmp_path, seed, 10.0 + seed, network=network, lr=lr)
    make_run(tmp_path, 0, 30.0, model="resnet20")
    found = list_runs(tmp_path)
    assert [list(run.differs.items()) for run in found] == [
        [("network", network), ("shortcut", shortcut), ("lr", lr), ("seed", seed)]
        for network, shortcut, lr, seed in (
            ("preresnet20", "identity", "0.05", "9"),
            ("preresnet20", "identity", "0.3", "9"),
            ("preresnet20", "scale:0.5:1", "0.3", "9"),
            ("preresnet20", "scale:0.5:1", "0.3", "10"),
            ("resnet20", "identity", "0.3", "0"),
        )
    ]
    assert (found[1].last_error, found[1].best_error, found[1].error_on) == (19.0, 19.0, "test")
    runs_command(str(tmp_path), as_json=False)
    header, *lines = capsys.readouterr().out.splitlines()
    words = "run network shortcut lr seed state steps loss error on last best time left"
    assert header.split() == words.split()
    assert "  preresnet20  scale:0.5:1  0.3   10" in lines[3]


def test_the_best_error_is_the_lowest_that_was_measured(tmp_path):
    run = make_run(tmp_path, error=12.0)
    with run.open_metrics() as file:
        for step, error in ((3000, 8.0), (3001, 8.5)):
            file.write(json.dumps({"kind": "test", "step": step, "epoch": 1, "loss": 0.1, "error": error}) + "\n")
    assert (summarize_run(run).last_error, summarize_run(run).best_error) == (8.5, 8.0)


def test_a_stopped_run_is_at_the_step_of_its_checkpoint(tmp_path):
    """Ctrl-C keeps a checkpoint after a step that was not logged; a kill leaves lines that will be logged again."""
    run = make_run(tmp_path, error=None)
    run.checkpoints.mkdir()
    for step in (2990, 3007):
        (run.checkpoints / f"step-{step:08d}-0123456789abcdef.safetensors").touch()
    (run.checkpoints / "step-99999999-notes.safetensors").touch()  # another name
    assert (summarize_run(run).state, summarize_run(run).step) == ("stopped", 3007)
    (run.checkpoints / "step-00003007-0123456789abcdef.safetensors").unlink()
    assert summarize_run(run).step == 2990
    with run.lock():
        assert (summarize_run(run).state, summarize_run(run).step) == ("training", 3000)


# --- side by side -----------------------------------------------------------------------------


def test_two_runs_are_compared_field_by_field(tmp_path, capsys):
    one, other = make_run(tmp_path, 0, 12.0), make_run(tmp_path, 0, 12.5, network={"shortcut": "scale:0.5:1"})
    picture = tmp_path / "a.svg"
    compare_command([str(one.path), str(other.path)], str(picture), as_json=False)
    said = capsys.readouterr().out
    assert f"A: preresnet20, shortcut identity ({one.path})" in said
    assert "shortcut      identity  scale:0.5:1" in said
    assert "last error, %     12.00           12.50" in said
    assert "95 % interval     11.00 to 13.00  11.50 to 13.50" in said
    assert (
        "preresnet20, shortcut scale:0.5:1 against preresnet20, shortcut identity: test error +0.50 points, within "
        "chance (the 95 % intervals over images overlap; seeds may differ by more)" in said
    )
    assert "preresnet20, shortcut scale:0.5:1: test error 12.50 %" in picture.read_text()
    compare_command([str(one.path), str(other.path)], None, as_json=True)
    data = json.loads(capsys.readouterr().out)
    labels = ["preresnet20, shortcut identity", "preresnet20, shortcut scale:0.5:1"]
    assert data["fields"] == {"shortcut": dict(zip(labels, ("identity", "scale:0.5:1"), strict=True))}
    assert [run["test"] for run in data["runs"]] == [12.0, 12.5]
    assert data["differences"][0]["beyond_chance"] is False


@pytest.mark.parametrize(("errors", "beyond"), [((12.0, 12.1, 12.2), True), ((11.0, 12.1, 13.2), False)])
def test_seeds_are_pooled_by_variant(tmp_path, errors, beyond):
    """Student's t by hand: 4 degrees of freedom, 2.776 times the pooled deviation times the root of 2/3."""
    runs = [make_run(tmp_path, seed, error) for seed, error in enumerate(errors)]
    runs += [make_run(tmp_path, seed, error + 1, lr=0.1) for seed, error in enumerate(errors)]
    found = compare_runs(runs)
    (difference,) = found.differences
    assert (difference.variant, difference.against) == ("preresnet20, lr 0.1", "preresnet20, lr 0.3")
    assert difference.points == pytest.approx(1.0)
    bound = 2.776 * statistics.stdev(errors) * (2 / 3) ** 0.5
    assert difference.beyond_chance is (bound < 1) is beyond
    assert f"3 and 3 seeds explain {bound:.2f} points" in difference.why
    assert list(found.fields) == ["lr", "seed"]
    mixed = compare_runs([runs[i] for i in (0, 3, 4, 1, 2, 5)])
    assert [run.path for run in mixed.runs] == [run.path for run in runs]


def test_one_run_is_not_compared(tmp_path):
    with pytest.raises(UserError, match="name two runs"):
        compare_runs([make_run(tmp_path)])


def test_all_that_a_recipe_changes_is_shown_in_a_comparison_and_only_its_name_in_a_label(tmp_path):
    one = make_run(tmp_path)
    key = RunKey(spec_of("preresnet20"), "cifar10", "d1ge57", recipe_of("cifar-paper"), 0)
    assert {"recipe", "lr", "schedule", "optimizer", "sizes"} <= set(find_differences([one.identity, key]))
    assert label_runs([one.identity, key]) == ["preresnet20, cifar-quick", "preresnet20, cifar-paper"]


def test_data_decide_the_number_of_classes(tmp_path):
    ten, hundred = (
        RunKey(spec_of("resnet20", num_classes=count), name, name, recipe_of("cifar-quick"), 0)
        for count, name in ((10, "cifar10"), (100, "cifar100"))
    )
    assert summarize_differences([ten, hundred]) == {"data": ("cifar10", "cifar100")}
    more = RunKey(spec_of("resnet20", num_classes=12), ten.data, ten.digest, ten.recipe, 0)
    assert summarize_differences([ten, more]) == {"num_classes": ("10", "12")}


def test_long_values_are_shortened_as_long_as_they_differ():
    paths = ["/data/of/somebody/with/a/long/name/flowers", "/data/of/somebody/else/with/a/long/name/birds"]
    keys = [RunKey(spec_of("resnet20"), path, path, recipe_of("cifar-quick"), 0) for path in paths]
    assert summarize_differences(keys)["data"] == ("/data/of/some...name/flowers", "/data/of/some...g/name/birds")
    alike = [path[:20] + middle + path[20:] for path in paths[:1] for middle in "ab"]
    keys = [RunKey(spec_of("resnet20"), path, path, recipe_of("cifar-quick"), 0) for path in alike]
    assert summarize_differences(keys)["data"] == tuple(alike)


def test_fields_of_networks_and_recipes_have_different_names():
    """So that a column is named by its field alone."""
    network, recipe = ({field.name for field in dataclasses.fields(record)} for record in (Spec, Recipe))
    assert network & recipe == {"name"}


def test_summary_is_the_papers():
    assert str(Summary((4.0, 5.0, 9.0))) == "median 5.00 % (6.00 +- 2.65, 3 runs)"
    assert str(Summary((4.0,))) == "4.00 %"


@pytest.mark.parametrize(("page", "folder"), tables.list_pages(ROOT).items(), ids=lambda p: getattr(p, "stem", ""))
def test_the_tables_of_the_pages_are_those_of_the_results(page, folder):
    text = page.read_text()
    assert tables.fill_page(text, ROOT / "results", folder) == text, "run `make tables`"


def test_tests_by_protocol_are_a_table(tmp_path):
    found = {"error": 27.5, "interval": [21.78, 34.07], "top5": {"error": 12.0, "interval": [8.2, 17.23]}}
    about = {"network": {"name": "resnet50"}, "data": "../some/tree", "images": 200, "views": "crop 224 of 256"}
    (tmp_path / "imagenet").mkdir()
    (tmp_path / "imagenet" / "a.json").write_text(json.dumps({**about, **found}))
    row = tables.write_imagenet(tmp_path).splitlines()[-1]
    assert "tree, 200 pictures | crop 224 of 256 | 27.50 % (21.8 to 34.1) | 12.00 % (8.2 to 17.2)" in row


def test_tests_of_detectors_are_a_table(tmp_path):
    assert "make detect-demo" in tables.write_detectors(tmp_path)
    found = {"map": 85.25, "interval": [80.11, 90.49], "metric": "voc2012", "images": 72}
    classes = [{"name": "WBC", "objects": 72, "ap": 97.5}, {"name": "none", "objects": 0, "ap": None}]
    about = {"network": {"name": "faster_rcnn_resnet50"}, "data": "voc:some/BCCD:train:test", "views": "one scale"}
    (tmp_path / "detection").mkdir()
    (tmp_path / "detection" / "a.json").write_text(json.dumps({**about, **found, "classes": classes}))
    row = tables.write_detectors(tmp_path).splitlines()[-1]
    assert "[faster_rcnn_resnet50](../results/detection/a.json) | voc BCCD test, 72 pictures | one scale" in row
    assert row.endswith("voc2012 | 85.25 % (80.1 to 90.5) | WBC 97.50 % |")
