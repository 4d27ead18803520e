"""The command, end to end on procedural images in seconds, and what it leaves."""

import dataclasses
import json
import math
import shutil

import numpy as np
import pytest
import torch

from resnets import UserError
from resnets.cli import main
from resnets.data.resized import keep_first_tests, load_resized, resize
from resnets.data.synthetic import synthetic
from resnets.engine import memory_choice
from resnets.engine.memory_estimate import MemoryEstimate
from resnets.experiments import comparison
from resnets.experiments import estimate as row_estimates
from resnets.experiments.budgets import BUDGETS
from resnets.experiments.estimate import estimate_row
from resnets.experiments.options import ReproduceOptions
from resnets.experiments.outcomes import Outcome, Outcomes
from resnets.experiments.plan import RowEstimate, make_job
from resnets.experiments.reproduce import Watcher, reproduce
from resnets.experiments.results import RowFile
from resnets.experiments.running import Runner
from resnets.papers.rows import Row
from resnets.papers.tables import EXPERIMENTS
from resnets.runs import find
from resnets.training import estimate
from resnets.training.estimate import Estimator, StepTime
from resnets.zoo import spec_of

SMOKE = BUDGETS["smoke"]


@pytest.fixture
def make_runner(tmp_path):
    def make(**training):
        return Runner(ReproduceOptions(out=tmp_path / "runs", results=tmp_path), quiet=True, **training)

    return make


def estimate_run(job, *how):
    """The estimate of one run on the device, in the memory mode, with the engine."""
    return estimate_row(RowEstimate(job, (0,), ()), Estimator(*how))


def test_a_figure_end_to_end_then_skipped_then_more_seeds(tmp_path, run_smoke):
    said = run_smoke("figure1").out
    assert "2 rows to run" in said
    assert "v2 Figure 1: training curves of ResNet-1001 on CIFAR-10. Errors in %; ours: budget smoke, scaled: " in said
    assert "observation 1, budget smoke" in said
    path = tmp_path / "results" / "smoke" / "preresnet1001-cifar10.json"
    found = json.loads(path.read_text())
    assert [run["seed"] for run in found["runs"]] == [0, 1]
    assert found["summary"]["runs"] == 2
    assert "11 of 1001 layers" in found["scaled"]
    for run in found["runs"]:
        assert {"command", "commit", "versions", "machine", "began"} <= set(run)
        assert run["steps"] == run["result"]["steps"] == 8
        assert len(run["curves"]["loss"][0]) == 8
        assert len(run["signal"]["size"]) == len(run["signal"]["zeros"]) == 4
        assert len(run["signal"]["responses"]) == 10
    before = path.read_bytes()

    said = run_smoke("figure1").out
    assert said.count("finished") == 2
    assert "0 rows to run" in said
    assert path.read_bytes() == before

    said = run_smoke("figure1", "--rows", "pre*", "--seeds", "3").out
    assert "1 of 3" in said
    assert [run["seed"] for run in json.loads(path.read_text())["runs"]] == [0, 1, 2]
    assert len(find(tmp_path / "runs")) == 5


def test_rows_on_held_out_images_leave_the_test_set_alone(tmp_path, run_smoke):
    assert "validation error of 1 runs" in run_smoke("gate-bias", "--rows", "*-3-*", "--seeds", "1").out
    (one,) = Outcomes.read(tmp_path / "results" / "smoke").values()
    assert "test" not in one.runs[0]["result"]
    assert one.values("error") == (one.runs[0]["result"]["validation"]["error"],)


def test_a_killed_row_goes_on_from_its_checkpoint(tmp_path, make_runner, interrupted):
    one = make_job(Row("resnet20"), SMOKE, 1)
    with pytest.raises(KeyboardInterrupt):
        make_runner(checkpoint_every=0).run(one, 0)
    assert not RowFile(tmp_path, one).path.exists()
    make_runner(checkpoint_every=0).run(one, 0)
    assert interrupted == [0, 1, 2, 3, 4, 4, 5, 6, 7]
    assert set(RowFile(tmp_path, one).runs) == {0}


def test_divergence_is_a_result(tmp_path, make_runner):
    """It is written with its reason and not run again; results of another recipe are no longer this row's."""
    one = make_job(Row("resnet20"), SMOKE)
    runner = make_runner()
    runner.run(one, 0)
    wild = dataclasses.replace(one, recipe=dataclasses.replace(one.recipe, lr=1e20))
    path = runner.run(wild, 1)
    (found,) = Outcomes.read(path.parent).values()
    (run,) = found.runs
    assert "is not finite in step" in run["result"]["failed"]
    assert (found.diverged, found.fails, found.values("error")) == (1, True, (math.inf,))
    assert comparison.write_error(found) == "fails: 1 of 1 diverged"
    assert set(RowFile(tmp_path, wild).runs) == {1}
    assert RowFile(tmp_path, one).runs == {}


def test_another_mistake_is_not_taken_for_divergence(tmp_path, make_runner):
    one = make_job(Row("resnet20"), SMOKE)
    with pytest.raises(UserError, match="decoders must be"):
        make_runner(decoders=-1).run(one, 0)
    assert not RowFile(tmp_path, one).path.exists()


def test_results_of_shards_merge_by_file(tmp_path, run_smoke):
    for i in (1, 2):
        run_smoke("figure1", "--shard", f"{i}/2", "--seeds", "1")
    assert set(Outcomes.read(tmp_path / "results" / "smoke")) == {"resnet1001-cifar10", "preresnet1001-cifar10"}


def test_a_dry_run_plans_estimates_and_leaves_nothing(tmp_path, run_smoke):
    said = run_smoke("table3", "options", "--dry-run", "--rows", "*1layer*").out
    assert "resnet110_1layer-cifar10" in said
    assert "2 rows to run" in said
    said = run_smoke("options", "--dry-run").out
    assert "Waiting for ImageNet, a folder with train and val that --imagenet DIR names: plain34-imagenet-" in said
    assert "0 rows to run" in said
    assert list(tmp_path.iterdir()) == []


class Log(Watcher):
    """What a reproduction reports, in order."""

    def __init__(self):
        self.said = []

    def show_plan(self, plan):
        self.said.append(("plan", [row.job.row.name for row in plan.todo]))

    def start_run(self, row, seed, number, count):
        self.said.append(("start", row.job.row.name, seed, number, count))

    def end_row(self, row, path, errors):
        self.said.append(("end", path.name, len(errors)))


def test_the_library_returns_plan_outcomes_tables_and_verdicts_and_prints_nothing(tmp_path, capsys):
    options = ReproduceOptions(
        budget="smoke", seeds=1, out=tmp_path / "runs", results=tmp_path / "results", rows="pre*"
    )
    log = Log()
    found = reproduce("figure1", options=options, watcher=log)
    assert log.said == [
        ("plan", ["preresnet1001-cifar10"]),
        ("start", "preresnet1001-cifar10", 0, 1, 1),
        ("end", "preresnet1001-cifar10.json", 1),
    ]
    assert [(row.seeds, row.fits, row.mode) for row in found.plan.rows] == [((0,), True, "fast")]
    assert list(found.outcomes) == ["preresnet1001-cifar10"]
    (table,) = found.tables
    assert table.cells[1][:2] == ["ResNet-1001, proposed unit", "4.92"]
    assert [(one.number, one.verdict) for one in found.verdicts] == [(1, "undecided"), (5, "undecided")]
    again = reproduce(["figure1"], options=options, dry_run=True)
    assert (again.plan.todo, again.plan.rows[0].seeds, dict(again.outcomes)) == ([], (), {})
    assert capsys.readouterr().out == ""


def test_cpu_time_stands_beside_the_time_by_the_clock(monkeypatch):
    """A step of 3 seconds that took 2 of CPU time from two threads took three times as long as these explain."""
    monkeypatch.setattr(estimate, "time_step", lambda *_, **how: StepTime(work=2.0, wall=3.0))
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    found = estimate_run(make_job(Row("resnet20"), SMOKE), "cpu")
    assert found.cpu_seconds == pytest.approx(found.seconds * 2 / 3)
    assert found.busy == pytest.approx(3.0)


@pytest.mark.parametrize(("busy", "warns"), [(2.0, True), (1.2, False)])
def test_an_estimate_on_a_busy_machine_comes_with_a_warning(run_smoke, monkeypatch, busy, warns):
    known = {"seconds": 14400.0, "cpu_seconds": 7200.0, "memory": 1 << 30, "mode": "fast", "busy": busy}
    monkeypatch.setattr(row_estimates, "estimate_row", lambda row, estimator: dataclasses.replace(row, **known))
    said = run_smoke("plain-cifar", "--rows", "resnet20*", "--seeds", "2", "--dry-run")
    assert "1 rows to run: 4:00:00 at the current load of the machine, 2.00 CPU hours." in said.out
    assert ("CPU time" in said.out, "2:00:00" in said.out) == (True, True)
    warning = "the machine is busy with other programs: steps take 2.0 times as long as their CPU time explains. "
    assert (f"{warning}Without these programs it would take about 2:00:00 instead of 4:00:00." in said.err) is warns
    assert ("busy" in said.err) is warns


def test_rows_run_by_plain_pytorch_where_that_is_asked_for(tmp_path, run_smoke):
    run_smoke("plain-cifar", "--rows", "resnet20*", "--engine", "plain", "--seeds", "1")
    (config,) = tmp_path.rglob("config.json")
    assert json.loads(config.read_text())["engine"]["engine"] == "plain"
    said = run_smoke("plain-cifar", "--rows", "resnet32*", "--engine", "plain", "--memory", "min", code=2).err
    assert "engine plain (PyTorch as it is) has no memory mode min" in said


def test_a_row_without_room_is_named_with_the_flag_that_makes_it_fit(tmp_path, run_smoke, monkeypatch):
    one = dataclasses.replace(make_job(Row("resnet20"), SMOKE), spec=spec_of("resnet56"))  # segments pay in deep nets
    spec = estimate.normalize_spec(one.spec)
    need = {mode: memory_choice.forecast(spec, 32, 16, mode).added for mode in ("fast", "min")}
    assert need["min"] < need["fast"]
    monkeypatch.setattr(memory_choice, "available", lambda device: int(need["min"] / 0.9) + 1)
    found = estimate_run(one, "cpu", "fast")
    assert (found.fits, found.advice, found.memory) == (False, "--memory min", need["fast"])
    assert estimate_run(one, "cpu", "auto").mode == "min"
    monkeypatch.setattr(memory_choice, "available", lambda device: 1000)
    said = run_smoke("plain-cifar", "--rows", "resnet20*", "--device", "cpu").out
    assert (
        "resnet20-cifar10 does not fit into memory and is left out; it would with a machine with more memory." in said
    )
    assert not (tmp_path / "runs").exists()


def test_the_time_of_a_step_grows_with_depth_on_a_straight_line(monkeypatch):
    """A line in work; a machine that becomes busier between the two measurements does not tilt it."""
    busy = iter((2, 4))

    def measured(spec, *_, **how):
        work = 0.1 + 0.02 * sum(spec.blocks)
        return StepTime(work, next(busy) * work)

    monkeypatch.setattr(estimate, "_time_steps", measured)
    spec = estimate.normalize_spec(make_job(Row("resnet110"), BUDGETS["hour"]).spec)
    factor = (2 * 0.16 + 4 * 0.46) / (0.16 + 0.46)
    found = estimate.time_step(spec, make_job(Row("resnet110"), SMOKE).recipe, 16, device="cpu", memory="fast")
    assert found == pytest.approx((1.18, 1.18 * factor))


def test_memory_is_estimated_for_the_device_that_will_train(monkeypatch):
    asked = []

    def forecast(spec, batch, size, *rest, device):
        asked.append(device)
        return MemoryEstimate("fast", 0, 1, 1)

    monkeypatch.setattr(estimate, "choose", torch.device)
    monkeypatch.setattr(memory_choice, "available", lambda device: None)
    monkeypatch.setattr(estimate, "time_step", lambda *_, **how: StepTime(1.0, 1.0))
    monkeypatch.setattr(memory_choice, "forecast", forecast)
    monkeypatch.setattr(
        memory_choice, "fastest", lambda spec, batch, size, room, device: forecast(spec, 1, 1, device=device)
    )
    estimate_run(make_job(Row("resnet20"), SMOKE), "cuda", "lean")
    assert asked == ["cuda", "cuda"]


def test_figure_7_shows_what_has_been_measured(tmp_path, run_smoke):
    said = run_smoke("figure7", "--seeds", "1", "--rows", "*20-*").out
    assert said.count("took 0:") == 2
    path = tmp_path / "results" / "smoke" / "plain20-cifar10.json"
    result = json.loads(path.read_text())
    stds = result["runs"][0]["signal"]["responses"]
    assert len(stds) == 7
    table = said.partition("before ReLU or addition, budget smoke:")[2]
    assert f"plain, 20 layers        7  {stds[0]:.3f}" in table
    assert "Not measured: plain, 56 layers; ResNet, 56 layers; ResNet, 110 layers." in table
    picture = path.with_name("figure7.svg")
    assert "ResNet, 20 layers (1 run)" in picture.read_text()
    assert "budget smoke, scaled: synthetic:256 for cifar10" in picture.read_text()


def test_what_older_results_lack_is_measured_from_their_weights(tmp_path, run_smoke):
    """The same numbers, with their own provenance; not from other weights, and not without any."""
    words = ("figure7", "--seeds", "1", "--rows", "plain20*")
    run_smoke(*words)
    path = tmp_path / "results" / "smoke" / "plain20-cifar10.json"
    whole = json.loads(path.read_text())
    old = json.loads(path.read_text())
    del old["runs"][0]["signal"]["responses"]
    path.write_text(json.dumps(old))
    said = run_smoke(*words).out
    assert "0 rows to run" in said
    assert "plain20-cifar10, seed 0: responses measured from" in said
    assert "Not measured: plain, 56" in said
    filled = json.loads(path.read_text())
    assert {"commit", "command", "began"} <= set(filled["runs"][0].pop("responses_measured"))
    assert filled == whole

    old["runs"][0]["signal"]["size"][1] *= 1.01
    path.write_text(json.dumps(old))
    said = run_smoke(*words, code=2).err
    assert "final.safetensors is not what" in said
    assert "its signal is" in said
    assert json.loads(path.read_text()) == old

    shutil.rmtree(tmp_path / "runs")
    said = run_smoke(*words).out
    assert "0 rows to run" in said
    assert "Not measured: plain, 20 layers; plain, 56" in said
    assert json.loads(path.read_text()) == old


def test_rows_that_cost_the_same_are_timed_once():
    kinds = {estimate.normalize_spec(make_job(row, SMOKE).spec) for row in EXPERIMENTS["gate-bias"].rows}
    assert len(kinds) == 1


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "say what to reproduce"),
        (["table9"], "unknown experiment 'table9'"),
        (["table1", "--shard", "5/4"], "a shard is written as 3/16"),
        (["table1", "--rows", "no"], "no row matches 'no'"),
        (["table1", "--seeds", "0"], "argument --seeds: seeds must be between 1 and 10000"),
        (["table1", "--memory", "much"], "unknown memory 'much'"),
    ],
)
def test_mistakes_are_one_sentence(run_smoke, words, sentence):
    said = run_smoke(*words, code=2)
    assert sentence in said.err
    assert len(said.err.splitlines()) == 1


def test_several_processes_do_not_write_the_same_results(run_smoke, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert "start it without torchrun, and spread rows by --shard" in run_smoke("table1", code=2).err


def test_a_bad_budget_is_one_sentence(capsys):
    assert main(["reproduce", "table1", "--budget", "week"]) == 2
    assert "unknown budget 'week'" in capsys.readouterr().err


def test_a_comparison_has_the_papers_values_and_ours(tmp_path, run_smoke):
    run_smoke("figure1", "--seeds", "1")
    found = Outcomes.read(tmp_path / "results" / "smoke")
    lines, scaled = comparison.compare_rows(EXPERIMENTS["table4"], found)
    assert "images 16x16" in scaled
    by_label = {line[0]: line for line in lines}
    assert by_label["NIN, cifar10"][1:3] == ["8.81", "not run"]
    assert by_label["ResNet-1202, cifar10"][1:3] == ["7.93", "not run"]
    ours = by_label["ResNet-1001 pre-activation, cifar10"]
    assert ours[1] == "4.92 (4.89 +- 0.14)"
    assert ours[2].startswith(f"{found['preresnet1001-cifar10'].values('error')[0]:.2f}")
    low, high = found["preresnet1001-cifar10"].runs[0]["result"]["test"]["interval"]
    assert f" ({low:.1f} to {high:.1f})" in ours[2]  # of one run, over test images
    assert ours[4] == "1"


def test_ranks_are_compared_within_one_protocol(tmp_path):
    """Rows of the same table that were scaled otherwise do not share a column."""
    cells = EXPERIMENTS["table3"].cells[:8]
    found = {}
    for i, cell in enumerate(cells):
        result = {"recipe": {"validation": 0}, "runs": [{"result": {"test": {"error": cell.value.error + 40}}}]}
        scaled = ("160it for 64000it",) if i >= 6 else ("700it for 64000it",)
        found[cell.row.name] = Outcome(cell.row.name, "hour", scaled, 81.0, result)
    assert list(map(str, comparison.correlate(EXPERIMENTS["table3"], Outcomes(found)))) == [
        "rank correlation with the paper over 6 rows on cifar10: +1.00"
    ]


# --- images and signals -----------------------------------------------------------------------


def test_smaller_images_are_means_of_pixels_for_training_and_testing_alike():
    images = synthetic(64)
    small = resize(images, 16)
    assert small.train_images.shape == (64, 3, 16, 16)
    assert small.test_images.shape == (16, 3, 16, 16)
    assert (small.name, small.digest == images.digest) == ("synthetic:64@16", False)
    whole = small.train_images / 255
    assert small.mean == pytest.approx(whole.mean((0, 2, 3)), abs=1e-4)
    assert small.std == pytest.approx(whole.std((0, 2, 3)), abs=1e-4)
    # antialiased bilinear by 1/2 weighs four pixels a side by 1, 3, 3, 1
    kernel = np.outer([1, 3, 3, 1], [1, 3, 3, 1]) / 64
    patch = images.train_images[5, 1, 9:13, 15:19].astype(np.float64)
    assert small.train_images[5, 1, 5, 8] == pytest.approx((kernel * patch).sum(), abs=0.51)


def test_fewer_test_images_are_another_data_set():
    images = load_resized("synthetic:64", tests=8)
    assert (len(images.test_images), len(images.test_labels), images.name) == (8, 8, "synthetic:64/8")
    assert images.digest != synthetic(64).digest
    assert np.array_equal(images.test_images, keep_first_tests(synthetic(64), 8).test_images)


def test_the_signal_is_that_of_the_networks_maps(tmp_path, make_runner):
    """Against the network's own list of maps."""
    from resnets.data.augment import Normalize
    from resnets.weights.models import load

    one = make_job(Row("resnet110", (("order", "relu_before_add"),)), SMOKE, 1)
    runner = make_runner()
    images = runner.load(one.source)
    runner.run(one, 0)
    (run,) = find(tmp_path / "runs")
    found = RowFile(tmp_path, one).runs[0]["signal"]
    with torch.no_grad():
        maps = load(run.weights).eval().forward_units(
            Normalize.of(images)(torch.from_numpy(images.train_images[:32]))
        )  # fmt: skip
    assert found["size"] == pytest.approx([x.double().square().mean().sqrt().item() for x in maps], rel=1e-4)
    assert found["zeros"] == pytest.approx([(x == 0).double().mean().item() for x in maps], abs=1e-5)
    assert found["size"][1] > found["size"][0]  # nothing is ever taken away


def test_a_plan_is_timed_with_the_threads_of_its_runs(monkeypatch, tmp_path):
    from resnets.engine.threads import count_threads
    from resnets.training import estimate

    seen, time_step = [], estimate.time_step

    def spy(*args, **how):
        found = time_step(*args, **how)
        seen.append(count_threads())
        return found

    monkeypatch.setattr(estimate, "time_step", spy)
    for threads in ("1", "3"):
        options = ReproduceOptions(budget="smoke", rows="resnet20*", threads=threads, results=str(tmp_path))
        reproduce(["plain-cifar"], options=options, dry_run=True)
    assert set(seen) == {1, 3}
