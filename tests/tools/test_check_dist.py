"""What `tools.check_dist` finds in wheels and sdists; `make dist` itself takes minutes and is no test."""

import tarfile
import zipfile
from pathlib import Path

import pytest
import tomllib

from resnets.errors import UserError
from resnets.version import __version__
from tools import check_dist

ROOT = Path(__file__).parents[2]


@pytest.fixture
def source(tmp_path):
    package = tmp_path / "src" / "resnets"
    (package / "nn" / "__pycache__").mkdir(parents=True)
    for name in ("py.typed", "nn/unit.py", "nn/kernels.cpp", "nn/__pycache__/unit.pyc"):
        (package / name).write_text("")
    return tmp_path / "src"


def wheel(path, names):
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(name, "")
    return path


WHOLE = ("resnets/py.typed", "resnets/nn/unit.py", "resnets/nn/kernels.cpp", "resnets-0.1.dist-info/METADATA")


def test_a_whole_wheel_has_no_faults(source, tmp_path):
    assert check_dist.compare_wheel(wheel(tmp_path / "a.whl", WHOLE), source) == []


def test_what_a_wheel_lacks_and_what_is_too_much(source, tmp_path):
    names = [name for name in WHOLE if not name.endswith("cpp")]
    assert check_dist.compare_wheel(wheel(tmp_path / "a.whl", [*names, "tests/test_a.py"]), source) == [
        "a.whl lacks resnets/nn/kernels.cpp",
        "a.whl has tests/test_a.py, which is not in the package",
    ]


def test_what_an_sdist_lacks(source, tmp_path):
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as archive:
        for name in ("pyproject.toml", "LICENSE", "CHANGELOG.md", "constraints.txt", "hubconf.py"):
            archive.add(ROOT / name, f"resnets-0.1/{name}")
        archive.add(source, "resnets-0.1/src")
    assert check_dist.compare_sdist(tmp_path / "a.tar.gz", source) == ["a.tar.gz lacks README.md"]


def test_one_of_each_is_needed(tmp_path):
    with pytest.raises(UserError, match=r"must have one file \*\.whl, not 0"):
        check_dist.find_one(tmp_path, "*.whl")


def test_the_project_says_what_is_tested():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == __version__
    versions = [line.rpartition(" ")[2] for line in project["classifiers"] if ":: Python :: 3." in line]
    assert versions == ["3.11"]
    pinned = {line.partition("==")[0] for line in (ROOT / "constraints.txt").read_text().splitlines()}
    for extra, names in project["optional-dependencies"].items():
        for name in names:
            assert name.partition(">=")[0] in pinned, f"{name} of {extra} is not pinned"
