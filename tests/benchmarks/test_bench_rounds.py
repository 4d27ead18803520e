"""Rounds, workers that fail, and what is saved."""

import json
import sys

import pytest

from benchmarks import __main__ as command
from benchmarks import lines as table
from benchmarks import results, timing
from resnets.errors import UserError
from tools.tables import performance, ratios

SAY = {name: ("-c", f"print({name!r})") for name in "ab"}


def test_everyone_is_first_in_turn():
    assert [timing.rotated("abc", i) for i in range(4)] == [list("abc"), list("bca"), list("cab"), list("abc")]


def test_whole_processes_take_turns_and_a_failing_one_gives_its_reason():
    commands = {**SAY, "bad": ("-c", "raise SystemExit('it broke')")}
    ticks = []
    line = table.Line("process", ("a", "bad", "b"), way="process", commands=commands)
    found = timing.measure(line, 2, lambda: ticks.append(1))
    assert list(found) == ["a", "bad", "b"]
    assert found["bad"] == {"reason": "it broke"}
    assert [len(found[name]["seconds"]) for name in "ab"] == [2, 2]
    assert len(ticks) == 6


@pytest.fixture
def as_worker(monkeypatch):
    """Runs these lines of Python instead of a worker."""
    popen = timing.subprocess.Popen

    def become(code):
        words = [sys.executable, "-c", f"import json, os, sys\n{code}"]
        monkeypatch.setattr(timing.subprocess, "Popen", lambda _, **options: popen(words, **options))

    return become


WORKER = """
print(json.dumps({"build": 1.0}), flush=True)
for round, _ in enumerate(sys.stdin, 1):
    print(json.dumps({"seconds": round, "pid": os.getpid()}), flush=True)
"""


@pytest.mark.parametrize(("way", "seconds", "processes"), [("kept", [1, 2, 3], 1), ("fresh", [1, 1, 1], 3)])
def test_workers_stay_or_are_made_anew(as_worker, way, seconds, processes):
    as_worker(WORKER)
    found = timing.measure(table.Line("batch", ("a", "b"), way=way), 3, lambda: None)
    for name in "ab":
        assert found[name]["seconds"] == seconds
        assert found[name]["build"] == [1.0] * processes
        assert len(set(found[name]["pid"])) == processes
    assert not set(found["a"]["pid"]) & set(found["b"]["pid"])


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("print('last words', file=sys.stderr, flush=True); os._exit(3)", "ended with code 3: last words"),
        ("print(json.dumps({'build': 1.0}), flush=True); sys.stdin.readline(); os.abort()", "ended with code -6"),
        ("print(json.dumps({'reason': 'no such net'}), flush=True)", "no such net"),
    ],
)
def test_a_worker_that_fails_says_how(as_worker, code, reason):
    as_worker(code)
    assert timing.measure(table.Line("batch", ("a",)), 2, lambda: None) == {"a": {"reason": reason}}


def test_a_worker_that_never_answers_is_given_up(as_worker, monkeypatch):
    monkeypatch.setattr(timing, "PATIENCE", 0.2)
    as_worker("sys.stdin.read()")
    found = timing.measure(table.Line("batch", ("a",)), 2, lambda: None)
    assert found["a"]["reason"].startswith("no answer for")


def test_what_needs_more_memory_than_there_is_stays_out(monkeypatch):
    monkeypatch.setattr(timing, "available", lambda: 3 * timing.GIB)
    found = timing.measure(table.Line("step", ("timm",), "preresnet1001", 128, needs={"timm": 22}), 2, lambda: None)
    assert found == {"timm": {"reason": "needs about 22 GiB of memory, and 3.0 GiB are free"}}


def test_lines_are_saved_one_by_one_each_with_its_origin(tmp_path):
    path = tmp_path / "bench" / "step.json"
    lines = [table.Line("step", ("timm", "plain"), net) for net in ("preresnet20", "resnet110")]
    for line in lines:
        found = {"timm": {"seconds": [2.0, 4.00000049]}, "plain": {"reason": "none"}}
        results.save(path, line, found, rounds=2, **results.origin())
        assert line.name in json.loads(path.read_text())["lines"]
    told = ratios.read_lines(tmp_path, "step")
    assert list(told) == ["preresnet20, batch 128", "resnet110, batch 128"]
    for line in told.values():
        assert {"command", "commit", "began", "versions", "machine", "load_before"} <= set(line)
        assert {"python", "torch", "timm", "keras"} <= set(line["versions"])
        assert line["command"].startswith("python -m benchmarks")
        assert line["contestants"] == {"timm": {"seconds": [2.0, 4.0]}, "plain": {"reason": "none"}}
    assert (told["resnet110, batch 128"]["layers"], told["resnet110, batch 128"]["unit"]) == (110, "basic")


def test_the_plan():
    full, quick = command.plan(None, False, None), command.plan(None, True, None)
    assert {section for section, _, _ in full} == set(table.SECTIONS) - {"race94"}  # which takes hours
    slow = {"race", "race94", "large", "first", "jobs"}  # which take minutes
    assert {section for section, _, _ in quick} == set(table.SECTIONS) - slow
    assert max(rounds for _, _, rounds in quick) <= 3
    assert {rounds for _, _, rounds in command.plan("step,data", False, 5)} == {5}
    [(section, line, _)] = command.plan("memory", False, None, "*1001*128")
    assert (section, line.net, line.batch) == ("memory", "preresnet1001", 128)
    with pytest.raises(UserError, match="no line has a name like 'resnet7'"):
        command.plan(None, False, None, "resnet7")
    with pytest.raises(UserError, match="did you mean memory"):
        command.plan("memori", False, None)
    with pytest.raises(UserError, match="at least 1"):
        command.plan(None, False, 0)


def test_the_race_to_94_is_measured_on_request_and_needs_a_script(monkeypatch, tmp_path, capsys):
    monkeypatch.delenv("AIRBENCH", raising=False)
    monkeypatch.setattr(sys, "argv", ["benchmarks", "--only", "race94", "--out", str(tmp_path)])
    assert command.main() == 2
    assert capsys.readouterr().err.startswith("benchmarks: AIRBENCH is not set: set it to the path of airbench94_muon")
    script = tmp_path / "airbench94_muon.py"
    script.write_text("")
    monkeypatch.setenv("AIRBENCH", str(script))
    [(section, line, rounds)] = command.plan("race94", False, None)
    assert (section, line.contestants, rounds) == ("race94", ("airbench94_muon", "cifar-94"), 1)


def test_the_table_of_whole_trainings_has_errors_and_ratios():
    line = {
        "contestants": {"airbench94_muon": {"seconds": [3300.0], "error": [5.99]}, "cifar-94": {"reason": "no net"}}
    }
    header, rows = performance.SECTIONS["race94"]({"a line": line})
    assert header == ["recipe", "test error with its own views, %", "times as fast as the first"]
    assert rows == [
        ["airbench94_muon, six views of each test image", "5.99", "1.00"],
        ["ours, cifar-94, six views of each test image", "-", "-"],
    ]


def test_names_of_lines_are_unique_within_a_section():
    for section in table.SECTIONS.values():
        for lines in (section.lines, section.quick):
            assert len({line.name for line in lines}) == len(lines)


def test_a_small_run_from_the_command_to_the_table(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(
        sys, "argv", ["benchmarks", "--quick", "--only", "data", "--rounds", "1", "--out", str(tmp_path)]
    )
    assert command.main() == 0
    shown = capsys.readouterr()
    assert "times as fast as PIL" in shown.out
    assert "100 %" in shown.err
    assert ratios.read_lines(tmp_path, "data")["128 images"]["contestants"]["ours"]["seconds"]


def test_a_race_is_timed_by_its_runners():
    commands = {
        "slow": ("-c", "print('on the way'); print('{\"seconds\": 9.0, \"epochs\": 4}')"),
        "fast": ("-c", 'print(\'{"seconds": 3.0, "epochs": 1}\')'),
        "lost": ("-c", "raise SystemExit('not at 20 % after 30 epochs')"),
    }
    line = table.Line("race", tuple(commands), "preresnet20", way="told", commands=commands)
    found = timing.measure(line, 2, lambda: None)
    assert found["slow"] == {"seconds": [9.0, 9.0], "epochs": [4, 4]}
    assert found["lost"] == {"reason": "not at 20 % after 30 epochs"}
    assert ratios.compute_ratio({"contestants": found}, "slow", "fast").median == 3
