"""Ctrl-C before a command has begun its work, and memory that runs out: a sentence, an exit code, no traceback."""

import signal
import subprocess
import sys

import pytest
import torch

from resnets import errors
from resnets.cli import main

CTRL_C_AT_IMPORT = """
import os, signal, sys

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == sys.argv[1]:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)
sys.meta_path.insert(0, Finder())
from resnets.cli import main
sys.exit(main(sys.argv[2:]))
"""
TRAIN = ["train", "preresnet20", "--data", "synthetic:64", "--length", "1it"]


@pytest.mark.parametrize(
    "module", ["argparse", "resnets.errors", "resnets.spec", "resnets.cli.weights", "numpy", "torch", "torch.nn"]
)
def test_ctrl_c_during_an_import_ends_with_one_sentence(tmp_path, module):
    words = [sys.executable, "-c", CTRL_C_AT_IMPORT, module, *TRAIN, "--out", str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "resnets: stopped by Ctrl-C.\n")
    assert not list(tmp_path.iterdir())


def test_next_to_nothing_is_imported_before_ctrl_c_is_caught():
    code = "import os, sys; before = set(sys.modules); import resnets.interrupt; print(*set(sys.modules) - before)"
    found = subprocess.check_output([sys.executable, "-c", code], text=True).split()
    assert set(found) <= {"__future__", "resnets", "resnets.interrupt", "resnets.version"}


def test_ctrl_c_in_the_work_is_told_and_the_handler_is_given_back(monkeypatch, capsys):
    def interrupted(*args):
        assert signal.getsignal(signal.SIGINT) is not before
        signal.raise_signal(signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    monkeypatch.setattr("resnets.data.fetch.fetch", interrupted)
    assert main(["data", "fetch", "cifar10"]) == 130
    assert capsys.readouterr().err == "resnets: stopped by Ctrl-C.\n"
    assert signal.getsignal(signal.SIGINT) is before


def test_who_ignores_ctrl_c_is_left_alone(monkeypatch):
    seen = []
    monkeypatch.setattr("resnets.cli.data._fetch", lambda *args: seen.append(signal.getsignal(signal.SIGINT)))
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        assert main(["data", "fetch", "cifar10"]) == 0
    finally:
        signal.signal(signal.SIGINT, before)
    assert seen == [signal.SIG_IGN]


# --- memory -----------------------------------------------------------------------------------

ADVICE = "to train in less, give a smaller --batch or --micro-batch, or --memory min.\n"
FAILURES = {
    "Python's": (MemoryError(), ""),
    "C++'s": (MemoryError("std::bad_alloc"), ""),
    "C++'s through torch": (RuntimeError("std::bad_alloc"), ""),
    "torch's": (
        RuntimeError("[enforce fail at alloc_cpu.cpp:1] data. DefaultCPUAllocator: can't allocate memory: you tried to "
                     "allocate 268435456 bytes. Error code 12 (Cannot allocate memory)"),
        " when 256 MiB more were needed",
    ),
    "a GPU's": (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), ""),
    "the system's": (OSError(12, "Cannot allocate memory"), ""),
    "the loader's": (ImportError("libtorch.so: failed to map segment from shared object"), ""),
}  # fmt: skip


@pytest.mark.parametrize("failure", FAILURES)
def test_memory_that_runs_out_is_told_in_one_sentence(monkeypatch, capsys, failure):
    error, asked = FAILURES[failure]

    def fail(*args):
        raise error

    monkeypatch.setattr("resnets.data.fetch.fetch", fail)
    assert main(["data", "fetch", "cifar10"]) == 2
    assert capsys.readouterr().err == f"resnets: memory ran out{asked}; {ADVICE}"


def test_other_failures_are_still_bugs(monkeypatch):
    def fail(*args):
        raise RuntimeError("something else")

    monkeypatch.setattr("resnets.data.fetch.fetch", fail)
    with pytest.raises(RuntimeError, match="something else"):
        main(["data", "fetch", "cifar10"])
    assert not errors.is_out_of_memory(RuntimeError("something else"))


LIMITED = """
import resource, sys
from pathlib import Path
import resnets.training.session
from resnets.cli import main
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (200 << 20),) * 2)
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads how much memory is used from /proc")
@pytest.mark.parametrize("engine", ["auto", "plain"])
def test_a_training_without_enough_memory_says_what_to_do(tmp_path, engine):
    words = ["train", "preresnet20", "--data", "synthetic:2048", "--batch", "2048", "--engine", engine, "--quiet"]
    words += ["--out", str(tmp_path)]
    done = subprocess.run([sys.executable, "-c", LIMITED, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    last = done.stderr.splitlines(keepends=True)[-1]
    assert last.startswith("resnets: memory ran out")
    assert last.endswith(ADVICE)
    assert "Traceback" not in done.stderr
