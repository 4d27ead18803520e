"""Pieces from workers are those from this process, in order, whatever the number of workers."""

import os
import subprocess
import sys
import time

import numpy as np
import pytest

from pictures import tree
from resnets.data.decode_workers import Views, decode_ahead, pieces
from resnets.data.folder import open_folder
from resnets.data.random_crops import View

VIEW = View("scale", 16, (18, 30), "random")
EPOCHS = [(0, np.arange(35)), (1, np.array([5, 3, 1]))]


@pytest.fixture
def files(tmp_path):
    return open_folder(tree(tmp_path, each=12)).train


@pytest.mark.filterwarnings("ignore:This DataLoader will create 2 worker processes")  # torch's, where one core is free
@pytest.mark.parametrize("workers", [0, 2])
def test_pieces_are_those_of_a_plain_loop(files, workers):
    with decode_ahead(Views(VIEW, 3), pieces(files, EPOCHS), workers) as stream:
        found = list(stream)
    assert [(p.request.epoch, len(p.request.index)) for p in found] == [(0, 16), (0, 16), (0, 3), (1, 3)]
    at = 0
    for epoch, index in EPOCHS:
        numbers, mirrored = VIEW.numbers(3, epoch, index)
        pixels = np.concatenate([p.pixels for p in found if p.request.epoch == epoch])
        for i, (u, flip) in enumerate(zip(numbers, mirrored, strict=True)):
            with open(files.path(int(index[i])), "rb") as file:
                assert np.array_equal(pixels[i], VIEW(file.read(), u, bool(flip)))
            at += 1
    assert at == 38


def test_workers_end_when_nobody_wants_more(files):
    with decode_ahead(Views(VIEW, 3), pieces(files, EPOCHS * 50), 1) as stream:
        next(stream)
        pids = [worker.pid for worker in stream._workers]
    assert _ended(pids)


def _ended(pids):
    """Whether processes end, within half a minute."""
    deadline = time.monotonic() + 30
    while any(map(_runs, pids)) and time.monotonic() < deadline:
        time.sleep(0.01)
    return not any(map(_runs, pids))


def _runs(pid):
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True


def test_a_bad_image_is_told_by_place(files):
    broken, gone = files.path(1), files.path(4)
    with open(broken, "wb"):
        pass
    os.unlink(gone)
    (piece,) = [Views(VIEW, 0)[wanted] for wanted in pieces(files, [(0, np.arange(6))])]
    assert piece.faults == {1: "is empty", 4: "cannot be read (No such file or directory)"}
    assert not piece.pixels[[1, 4]].any()
    assert piece.pixels[[0, 2, 3, 5]].any((1, 2, 3)).all()


def test_workers_end_with_a_process_that_is_killed(tmp_path):
    """What a worker has looked at is too large for a pipe that nobody reads: it must not wait for that."""
    tree(tmp_path, each=12)
    code = f"""
import numpy as np
from resnets.data.folder import open_folder
from resnets.data.decode_workers import Views, decode_ahead, pieces
from resnets.data.random_crops import View
files = open_folder({str(tmp_path)!r}).train
views = Views(View("scale", 128, (140, 150), "random"), 0)
with decode_ahead(views, pieces(files, [(0, np.arange(36))] * 50), 1) as stream:
    next(stream)
    print(stream._workers[0].pid, flush=True)
    input()
"""
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as run:
        worker = int(run.stdout.readline())
        time.sleep(1)
        run.kill()
    assert _ended([worker])
