"""Fashion-MNIST: 28x28 grey pictures of ten kinds of clothes, another set to carry a trained network over to.

As rows it looks like CIFAR: the grey in all three channels, and two more pixels of the black background on each side.
"""

from __future__ import annotations

from resnets.data.dataset_spec import DatasetSpec, Layout


def _layout(suffix: str, md5s: tuple[str, ...] = ()) -> Layout:
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
        _layout(
            ".gz",
            (
                "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
                "bef4ecab320f06d8554ea6380940ec79",
                "25c81989df183df01b3e8a0aad5dffbe",
                "bb300cfdad3c16e7a12a480ee83cd310",
            ),
        ),
        _layout(""),
    ),
    download="http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
)  # fmt: skip
