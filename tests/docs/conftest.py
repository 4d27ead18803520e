"""A folder in which code of the pages runs, and the site."""

import os
import shutil
import subprocess
import sys

import pytest

from resnets.unit_spec import ORDERS, SHORTCUTS
from tests.docs.pages import ROOT
from tests.docs.stand_ins import make_files


@pytest.fixture(scope="session")
def made_files(tmp_path_factory):
    root = tmp_path_factory.mktemp("files")
    make_files(root)
    return root


@pytest.fixture
def scratch(made_files, tmp_path, monkeypatch):
    """A new folder with the files that pages name, as the working directory; what is registered in it is forgotten."""
    folder = tmp_path / "scratch"
    shutil.copytree(made_files, folder, copy_function=os.link)  # commands replace files and change none
    monkeypatch.chdir(folder)
    known = [(registry, dict(registry)) for registry in (ORDERS, SHORTCUTS)]
    yield folder
    for registry, before in known:
        registry.clear()
        registry.update(before)


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    """The folder of the site."""
    pytest.importorskip("material", reason="the site needs the extra: pip install 'resnets[docs]'")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-W", "ignore", "-m", "mkdocs", "build", "--strict", "--quiet", "-d", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return folder
