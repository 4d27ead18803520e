"""`resnets doctor` says what is here, what is not, and what to do."""

import json
import os
import platform

import pytest
import torch

from resnets import doctor
from resnets.cli import main
from resnets.data import jpeg
from resnets.detection import operators
from resnets.engine.native import build, network


@pytest.fixture(autouse=True)
def _load_again():
    """The libraries are loaded again, by each test here and by the tests that follow."""
    loaders = (build.load, network.load, jpeg.load, operators.load)
    for load in loaders:
        load.cache_clear()
    yield
    for load in loaders:
        load.cache_clear()


def find(findings, group, what):
    (found,) = [found for found in findings if (found.group, found.what) == (group, what)]
    return found


def test_everything_is_named_once(monkeypatch):
    monkeypatch.setenv("RESNETS_NATIVE", "0")  # the kernels have a test of their own
    findings = doctor.examine()
    assert len({(found.group, found.what) for found in findings}) == len(findings)
    groups = ["versions", "cpu", "kernels", "threads", "devices", "cache", "data", "weights", "extras"]
    assert list(dict.fromkeys(found.group for found in findings)) == groups
    assert find(findings, "versions", "python").value == platform.python_version()
    assert find(findings, "versions", "torch").value == torch.__version__
    assert find(findings, "threads", "cores").value == f"{len(os.sched_getaffinity(0))} of {os.cpu_count()}"
    assert all(found.advice for found in findings if found.state != "ok")


def test_kernels_that_are_switched_off(monkeypatch):
    monkeypatch.setenv("RESNETS_NATIVE", "0")
    found = find(doctor.examine(), "kernels", "training")
    assert (found.state, found.value, found.advice) == ("note", "switched off", "unset RESNETS_NATIVE to use them")


def test_no_compiler_and_no_cache(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("RESNETS_CACHE", "/proc/nothing")  # where even root cannot write
    assert main(["doctor", "--json"]) == 1
    rows = {(row["group"], row["what"]): row for row in json.loads(capsys.readouterr().out)}
    assert rows["kernels", "compiler"]["state"] == "problem"
    assert rows["kernels", "compiler"]["advice"].startswith("install a C++ compiler")
    assert rows["kernels", "training"]["value"] == "no C++ compiler was found"
    assert rows["cache", "folder"]["value"] == "/proc/nothing"
    assert rows["data", "cifar10"]["advice"] == "resnets data fetch cifar10"


def test_a_cache_that_others_can_write_is_not_trusted(monkeypatch, tmp_path):
    monkeypatch.setenv("RESNETS_NATIVE", "0")
    monkeypatch.setenv("RESNETS_CACHE", str(tmp_path))
    (tmp_path / "native").mkdir(0o700)
    assert find(doctor.examine(), "cache", "trust").state == "ok"
    (tmp_path / "native").chmod(0o777)
    found = find(doctor.examine(), "cache", "trust")
    assert found.state == "problem"
    assert "is writable by other users" in found.value


def test_sizes_of_the_cache_are_those_of_its_files(tmp_path):
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights" / "a").write_bytes(bytes(3 << 20))
    (tmp_path / "cifar10.npy").write_bytes(bytes(1 << 20))
    assert doctor._measure(tmp_path) == {"weights": 3 << 20, "cifar10.npy": 1 << 20}


def test_missing_extras_and_other_versions(monkeypatch, capsys):
    monkeypatch.setenv("RESNETS_NATIVE", "0")
    versions = {"matplotlib": None, "torch": "2.4.0"}
    known = doctor.find_version
    monkeypatch.setattr(doctor, "find_version", lambda name: versions[name] if name in versions else known(name))
    findings = doctor.examine()
    plot = find(findings, "extras", "plot")
    assert (plot.value, plot.state, plot.advice) == ("matplotlib missing", "note", "pip install 'resnets[plot]'")
    assert find(findings, "versions", "torch").advice == "the tests run with 2.13; others may work"
    versions["numpy"] = None
    assert main(["doctor"]) == 1
    out = capsys.readouterr().out
    assert "pip install numpy" in out
    assert "! 1 that do not work" in out
