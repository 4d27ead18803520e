"""The harness of `make torture`: every section still works, and what is broken on purpose is found."""

import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest

from resnets.cache import cache_dir
from resnets.errors import UserError
from tools.tables import pages as tables
from tools.tables import reliability
from tools.torture.__main__ import MARK, answers, environment
from tools.torture.promises import KINDS
from tools.torture.sections import GROUPS, SECTIONS, Section, chosen
from tools.torture.tally import Tally

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the harness needs Linux")


def attack(folder, name, where, numbers, limit=60.0):
    """The answers of one worker to some numbers, by number."""
    (folder / "tmp").mkdir(exist_ok=True)
    if (compiled := cache_dir() / "native").is_dir():  # compiling the kernels takes longer than most attacks
        shutil.copytree(compiled, folder / "cache" / "native", dirs_exist_ok=True)
    (folder / "cache").mkdir(exist_ok=True)
    env = environment(folder, "test")
    found = answers(name, Section(where, 1, 1, limit), iter(numbers), folder=folder, env=env, workers=1)
    return dict(found)


# --- every section ----------------------------------------------------------------------------

QUICK = [name for name in SECTIONS if name not in ("together", "bombs")]  # these two take minutes


@pytest.mark.parametrize("name", QUICK)
def test_a_section_makes_its_attacks(tmp_path, name):
    """What it finds is not asked here; an attack that fails by itself shows as a traceback of the harness."""
    count = 1 if "kills" in name else 4
    found = attack(tmp_path, name, SECTIONS[name].where, range(count))
    assert len(found) == count
    for answer in found.values():
        assert answer["tried"] > 0
        assert answer.get("kind", "crashes") in KINDS
        assert "tools/torture" not in answer.get("what", ""), answer
    assert not list(tmp_path.glob("*/attack"))


def test_bombs_are_built_small_and_explode(tmp_path):
    from tools.torture import bombs

    data = bombs.tar_bomb("a.bin", 1 << 26)
    assert len(data) < 1 << 18
    (tmp_path / "a.tgz").write_bytes(data)
    with tarfile.open(tmp_path / "a.tgz", "r|gz") as tar:
        member = tar.next()
        assert tar.extractfile(member).read() == bytes(1 << 26)
    from PIL import Image

    (tmp_path / "a.png").write_bytes(bombs.flat_png(300, 200, 3))
    assert Image.open(tmp_path / "a.png").convert("RGB").getextrema() == ((0, 0),) * 3
    assert all(hasattr(bombs.Bombs, name) for name in ("bomb_png", "bomb_words", "bomb_json", "bomb_package"))


def test_two_trainings_of_one_run(tmp_path):
    (answer,) = attack(tmp_path, "together", SECTIONS["together"].where, [0], 300).values()
    assert answer["doing"].startswith("same_run")
    assert "kind" not in answer, answer


# --- what is broken is found ------------------------------------------------------------------


@pytest.fixture(scope="module")
def faults(tmp_path_factory):
    """The hang is cut off after three seconds; the others have time enough on a busy machine."""
    found = {}
    for numbers, limit in ((range(1), 3.0), (range(1, 8), 60.0)):
        found |= attack(tmp_path_factory.mktemp("faults"), "faults", "tests.torture.broken:Faults", numbers, limit)
    return found


@pytest.mark.parametrize(
    ("number", "kind", "what"),
    [
        (0, "hangs", "longer than 3 s at torture/broken.py"),
        (1, "crashes", "SIGSEGV at torture/broken.py"),
        (2, "tracebacks", "ZeroDivisionError at torture/broken.py"),
        (3, "over memory", "more than 1 GiB in faults"),
        (4, "code executed", "the canary was written"),
        (6, "crashes", "the worker ended, exit code -9"),
    ],
)
def test_a_fault_is_found_and_named(faults, number, kind, what):
    assert faults[number]["kind"] == kind
    assert faults[number]["what"].startswith(what)


def test_what_was_skipped_is_no_fault_and_the_worker_goes_on(faults):
    assert faults[5]["skipped"] == "there is no such thing here"
    assert faults[5]["tried"] == 0
    assert "kind" not in faults[7]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("WrongReader", "tracebacks"),
        ("WrongPrinter", "unsafe output"),
        ("WrongEngine", "wrong numbers"),
        ("WrongResume", "differing bytes"),
    ],
)
def test_a_package_that_is_wrong_is_found(tmp_path, name, kind):
    count = 1 if name == "WrongResume" else 4
    found = attack(tmp_path, name, f"tests.torture.broken:{name}", range(count))
    assert kind in {answer.get("kind") for answer in found.values()}, found


def test_an_edit_changes_what_a_network_computes():
    """PyTorch sees each kind of edit at least sometimes: an edit without effect would prove nothing."""
    import random

    from tools.torture import edits

    for name, edit in edits.MORE_EDITS.items():
        if name == "older weight norm":  # it splits the weights and keeps their product
            continue
        for seed in range(20):
            plain, edited = (edits.random_net(random.Random(seed)) for _ in range(2))
            edit(edited, random.Random(seed))
            try:
                numbers = [edits.gradients(net, net)[:3] for net in (plain, edited)]
            except RuntimeError:  # maps that do not fit
                continue
            if max(edits.errors(numbers[1], numbers[0])) > 1e-6:
                break
        else:
            raise AssertionError(f"{name} changes nothing")


def test_operations_on_files_are_hit_before_after_and_in_the_middle(tmp_path):
    """Of kills at file operations some fall into a write, which is then torn."""
    import random

    from tools.torture import kills

    options = {**kills.OPTIONS, "length": "4it", "warmup": "0it", "milestones": "", "checkpoint_every": 0}
    count = kills.count_operations({**options, "out": tmp_path / "count"})
    assert count > 20
    draw, codes = random.Random(0), set()
    for number, torn in itertools.product(range(3), (False, True)):
        place = {**options, "out": tmp_path / f"{number}{torn}"}
        at, share = draw.randrange(count // 2), draw.random() if torn else None
        codes.add(kills.wait(kills.fork(lambda place=place, at=at, share=share: kills.die_at(place, at, share))))
    assert {-signal.SIGKILL, -signal.SIGXFSZ} <= codes


# --- the command ------------------------------------------------------------------------------


def test_equal_faults_are_kept_once_with_the_words_to_repeat_them():
    tally = Tally()
    bad = {"tried": 1, "kind": "hangs", "what": "somewhere", "memory": 5 << 20}
    assert [tally.add("runs", seed, bad) for seed in range(9)] == [True] + [False] * 8
    found = tally.to_dict()
    assert (found["tried"], found["hangs"], found["most memory, MiB"]) == (9, 9, 5)
    assert found["faults"][0]["replay"] == [f"runs:{seed}" for seed in range(5)]
    assert not tally.held


def test_sections_are_chosen_by_name_or_group():
    assert list(chosen([])) == list(SECTIONS)
    assert tuple(chosen(["fuzz"])) == GROUPS["fuzz"]
    assert sum(SECTIONS[name].full for name in GROUPS["fuzz"]) >= 20_000
    with pytest.raises(UserError, match="unknown section 'pixtures': did you mean pictures"):
        chosen(["pixtures"])


def torture(*words, **options):
    command = [sys.executable, "-m", "tools.torture", *map(str, words)]
    return subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **options)


def test_ctrl_c_keeps_what_was_found_and_leaves_nothing_running(tmp_path):
    out = tmp_path / "torture.json"
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    process = torture("--only", "archives", "--seed", 5, "-o", out, env=env)
    while "archives: 25 %" not in (line := process.stderr.readline()):
        assert line, "it ended before it had begun"
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    found = json.loads(out.read_text())
    assert found["complete"] is False
    assert found["seed"] == 5
    assert found["sections"]["archives"]["tried"] > 100
    assert {"command", "commit", "machine", "versions", "began", "seconds"} <= found.keys()
    assert not list(tmp_path.glob("resnets-torture-*"))
    time.sleep(0.2)
    assert not [path for path in Path("/proc").glob("[0-9]*") if tortured(path, str(tmp_path))]


def tortured(path, folder):
    try:
        words = (path / "environ").read_bytes().split(b"\0")
    except OSError:
        return False
    return any(word.startswith(MARK.encode()) for word in words) and f"TMPDIR={folder}".encode() in b"".join(words)


def test_a_word_that_names_no_attack_is_refused():
    process = torture("--replay", "nonsense")
    _, said = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "unknown section 'nonsense'" in said


# --- the page ---------------------------------------------------------------------------------


def written(folder, **broken):
    tallies = {name: Tally(tried=100).to_dict() for name in SECTIONS}
    for name, count in broken.items():
        tallies["pictures"][name.replace("_", " ")] = count
    tallies["together"]["skipped"] = {"only root on Linux can mount a small disk": 3}
    about = {"command": "python -m tools.torture", "commit": "c0ffee", "began": "2026-01-02", "seed": 7, "quick": False}
    about |= {"machine": {"cpu": "A CPU", "cores": 2}, "versions": {"torch": "2.13.0"}, "complete": True}
    (folder / "torture.json").write_text(json.dumps({**about, "sections": tallies}))


def test_the_tables_tell_what_held_and_what_did_not(tmp_path):
    assert reliability.write_promises(tmp_path) == reliability.write_attacks(tmp_path) == reliability.NOT_YET
    written(tmp_path)
    assert "| no |" not in reliability.write_promises(tmp_path)
    assert reliability.write_promises(tmp_path).count("| yes |") == len(reliability.PROMISES)
    written(tmp_path, tracebacks=3)
    (row,) = (line for line in reliability.write_promises(tmp_path).splitlines() if "| no |" in line)
    assert "no traceback" in row
    page = reliability.write_attacks(tmp_path)
    assert "| broken pictures | 100 | 0 | 0 | 0 | 3 | 0 |" in page
    assert "full disks, 3 times): only root on Linux can mount a small disk." in page
    assert "*`python -m tools.torture`, seed 7; A CPU with 2 cores; torch 2.13.0; commit c0ffee; 2026-01-02.*" in page


def test_names_of_kinds_and_sections_are_those_of_the_harness():
    assert list(reliability.BROKEN) == list(KINDS)
    assert list(reliability.ATTACKS) == list(SECTIONS)


def test_the_page_has_every_table_once_and_is_current():
    text = (ROOT / "docs" / "reliability.md").read_text()
    for name in reliability.TABLES:
        assert text.count(f"<!-- results: {name} -->") == 1
    assert tables.fill_page(text, ROOT / "results") == text, "run `make tables`"
