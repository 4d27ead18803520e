"""Without a compiler, a cache or luck, everything runs in PyTorch, and one line says why."""

import os
import platform
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

COMPILER = next(filter(None, map(shutil.which, ("c++", "g++", "clang++"))), None)
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="there is no C++ compiler")
KERNELS = "from resnets.engine.native.build import load; made = load(); print(made.kernels is not None, made.how)"
# Built in the same way, in a fifth of the time: for tests that build it.
INFERENCE = "from resnets.engine.native.network import load; made = load(); print(made.library is not None, made.how)"


def start(cache: Path, code: str, **env: str) -> "subprocess.Popen[str]":
    whole = {**os.environ, "RESNETS_CACHE": str(cache), **env}
    return subprocess.Popen(
        [sys.executable, "-c", code], env=whole, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def run(cache: Path, code: str = KERNELS, **env: str) -> tuple[str, list[str]]:
    process = start(cache, code, **env)
    out, err = process.communicate(timeout=600)
    assert process.returncode == 0, err
    return out.strip(), err.splitlines()


def script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


@needs_compiler
@pytest.mark.skipif(sys.platform == "win32", reason="needs a shell")
def test_built_once_by_two_processes_then_found_and_made_anew_when_cut_short(tmp_path):
    both = [start(tmp_path, INFERENCE), start(tmp_path, INFERENCE)]
    for process in both:
        out, err = process.communicate(timeout=600)
        assert out.startswith("True"), err
    [made] = (tmp_path / "native").iterdir()  # nothing is left beside it
    whole = made.read_bytes()
    out, err = run(tmp_path, INFERENCE, CXX=COMPILER)
    assert (out, err) == (f"True {made}", [])
    made.write_bytes(whole[: len(whole) // 2])
    out, err = run(tmp_path, INFERENCE, CXX=COMPILER)
    assert out.startswith("True")
    assert len(err) == 1
    assert "compiling" in err[0]


def test_switched_off(tmp_path):
    assert run(tmp_path, RESNETS_NATIVE="0") == ("False switched off by RESNETS_NATIVE=0", [])


@pytest.mark.skipif(sys.platform == "win32", reason="needs a shell")
def test_no_compiler(tmp_path):
    out, err = run(tmp_path, PATH=str(tmp_path), CXX="")
    assert out == "False no C++ compiler was found"
    assert len(err) == 1
    assert "PyTorch computes without" in err[0]
    assert list((tmp_path).glob("native/*")) == []


@needs_compiler
@pytest.mark.skipif(sys.platform == "win32", reason="needs a shell")
def test_a_compiler_that_fails(tmp_path):
    broken = script(tmp_path / "cxx", '[ "$1" = --version ] && exit 0; echo "out of luck" >&2; exit 1')
    out, err = run(tmp_path / "cache", CXX=broken)
    assert out.startswith("False")
    assert len([line for line in err if "out of luck" in line]) == 1


@needs_compiler
@pytest.mark.skipif(sys.platform == "win32", reason="needs a shell")
@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="other CPUs have no AVX2")
@pytest.mark.parametrize(("native", "reason"), [("exit 1", "no message"), (f'exec {COMPILER} "$@" -mno-avx2', "AVX2")])
def test_a_compiler_that_does_not_know_this_cpu_and_a_cpu_without_avx2(tmp_path, native, reason):
    picky = script(tmp_path / "cxx", f'case "$*" in *march=native*) {native};; esac; exec {COMPILER} "$@"')
    out, err = run(tmp_path / "cache", CXX=picky)
    assert out.startswith("False")
    compiled, said = err
    assert "compiling kernels" in compiled
    assert "PyTorch computes without" in said
    assert reason in said
    assert list((tmp_path / "cache").glob("native/*")) == []


@needs_compiler
def test_a_cache_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("in the way")
    out, err = run(tmp_path / "file", INFERENCE)
    assert out == "True compiled for this process; the cache cannot be written"
    assert len(err) == 1
