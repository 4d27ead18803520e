"""Check the files that `make dist` builds, and use the wheel in an empty environment.

`python -m tools.check_dist DIST` compares the wheel with the source tree, installs it into a new environment with the
versions of constraints.txt, and runs commands there, outside of the tree and with an empty cache.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

from resnets.errors import UserError
from resnets.text import print_lines

ROOT = Path(__file__).parents[1]
PICTURE = "import sys; from PIL import Image; Image.radial_gradient('L').convert('RGB').save(sys.argv[1])"
TRAIN = ("train", "preresnet20", "--data", "synthetic:64", "--steps", "4", "--batch", "8", "--quiet")


def list_package(source: Path) -> set[str]:
    """The files of the package in a source tree."""
    found = (path for path in (source / "resnets").rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {str(path.relative_to(source)) for path in found}


def compare_wheel(wheel: Path, source: Path) -> list[str]:
    """What a wheel lacks of the package, and what it has beside it, in words."""
    with zipfile.ZipFile(wheel) as archive:
        inside = {name for name in archive.namelist() if ".dist-info/" not in name and not name.endswith("/")}
    here = list_package(source)
    lacks = [f"{wheel.name} lacks {name}" for name in sorted(here - inside)]
    return lacks + [f"{wheel.name} has {name}, which is not in the package" for name in sorted(inside - here)]


def compare_sdist(sdist: Path, source: Path) -> list[str]:
    """What an sdist lacks of the package and of the files beside it, in words."""
    with tarfile.open(sdist) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    beside = {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "constraints.txt", "hubconf.py"}
    wanted = {*beside, *(f"src/{name}" for name in list_package(source))}
    return [f"{sdist.name} lacks {name}" for name in sorted(wanted - inside)]


def find_one(folder: Path, pattern: str) -> Path:
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        raise UserError(f"{folder} must have one file {pattern}, not {len(found)}; run make dist.")
    return found[0]


def use_wheel(wheel: Path, folder: Path) -> None:
    """Install a wheel into a new environment in `folder`, and run info, doctor, predict and a short training."""
    venv.create(folder / "venv", with_pip=True)
    programs, work = folder / "venv" / "bin", folder / "work"
    work.mkdir()
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    env = {**kept, "RESNETS_CACHE": str(folder / "cache"), "HOME": str(folder)}

    def run(*words: str | Path) -> str:
        print_lines(" ".join(map(str, words)), flush=True)
        return subprocess.run(words, cwd=work, env=env, check=True, stdout=subprocess.PIPE, text=True).stdout

    run(programs / "pip", "install", "--quiet", "-c", ROOT / "constraints.txt", wheel)
    resnets, python = programs / "resnets", programs / "python"
    where = run(python, "-c", "import resnets; print(resnets.__file__)")
    if str(folder) not in where:
        raise UserError(f"the environment uses {where.strip()} instead of the wheel.")
    if "20 layers" not in run(resnets, "info", "preresnet20"):
        raise UserError("resnets info does not describe preresnet20.")
    states = {(row["group"], row["what"]): row for row in json.loads(run(resnets, "doctor", "--json"))}
    for row in states.values():
        if row["group"] == "kernels" and row["state"] == "problem":
            raise UserError(f"{row['what']}: {row['value']}; the C++ sources of the wheel do not work.")
    run(python, "-c", PICTURE, work / "picture.png")
    (found,) = json.loads(run(resnets, "predict", "picture.png", "--json"))
    if len(found["classes"]) != 5:
        raise UserError(f"resnets predict gives {found}.")
    run(resnets, *TRAIN)
    if len([*work.glob("runs/*/final.safetensors")]) != 1:
        raise UserError("resnets train did not leave a trained network.")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.check_dist", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("dist", type=Path, help="folder with a wheel and an sdist", metavar="DIST")
    folder = parser.parse_args(argv).dist
    try:
        wheel, sdist = find_one(folder, "*.whl").resolve(), find_one(folder, "*.tar.gz")
        if faults := [*compare_wheel(wheel, ROOT / "src"), *compare_sdist(sdist, ROOT / "src")]:
            raise UserError(f"{len(faults)} files are wrong: {'; '.join(faults[:5])}.")
        with tempfile.TemporaryDirectory(prefix="resnets-dist-") as temporary:
            use_wheel(wheel, Path(temporary))
    except (UserError, subprocess.CalledProcessError) as error:
        print_lines(f"check_dist: {error}", file=sys.stderr)
        return 2
    print_lines(f"{wheel.name} and {sdist.name} are whole, and the wheel works in an empty environment")
    return 0


if __name__ == "__main__":
    sys.exit(main())
