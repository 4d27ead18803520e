"""Options that several commands have."""

from __future__ import annotations

import argparse
import dataclasses
from typing import TYPE_CHECKING, Any

from resnets.cli.parser import either, kernels_of, numbers, one_or_more
from resnets.engine import ENGINES
from resnets.spec import RESIZES, SHARES, STEMS, STRIDES, Spec
from resnets.unit_spec import KERNELS, ORDERS, SHORTCUTS, pattern_of

if TYPE_CHECKING:
    from resnets.evaluation.protocol import Protocol

NAMED = "cifar10, cifar100, fashion-mnist"  # the names of `data.sets`, which would import numpy here


def network_options(parser: argparse.ArgumentParser) -> None:
    """An option for every field of `Spec` and for `depth`; `network_changes` reads them back."""
    group = parser.add_argument_group("network", "what differs from the named network")

    def add(option: str, meaning: str, **settings: Any) -> None:
        group.add_argument(option, help=meaning.replace("%", "%%"), **settings)

    add("--num-classes", "outputs of the classifier", type=int, metavar="N")
    add("--in-channels", "channels of the images", type=int, metavar="N")
    add("--stem", f"first layers: {either(STEMS)}", metavar="STEM")
    add("--stem-activation", "BN, ReLU right after the first convolution", action=argparse.BooleanOptionalAction)
    add("--stem-width", "filters of the first convolution; 0: as the first stage", type=int, metavar="N")
    add("--depth", "weight layers, in stages of equal length", type=int, metavar="N")
    add("--blocks", "units in each stage, or one number for all: 18,18,18 or 18", type=one_or_more, metavar="N,N,N")
    add("--widths", "filters inside the units of each stage: 16,32,64", type=numbers, metavar="N,N,N")
    kernels = (f"{name} ({','.join(map(str, sizes))})" for name, sizes in KERNELS.items())
    add("--kernels", f"convolutions of F: {either(kernels)}, or other sizes", type=kernels_of, metavar="KERNELS")
    orders = (f"{name} ({order.figure})" for name, order in ORDERS.items())
    add("--order", f"where BN and ReLU stand, as in Figure 4 of v2: {either(orders)}", metavar="ORDER")
    shortcuts = (f"{pattern_of(kind)} ({kind.formula})" for kind in SHORTCUTS.values())
    add("--shortcut", f"h and how it meets r = F(x): {either(shortcuts)}", metavar="KIND")
    resizes = (f"{name} ({meaning})" for name, meaning in RESIZES.items())
    add("--resize", f"the shortcut where the dimension changes: {either(resizes)}", metavar="RESIZE")
    add("--stride-on", f"the convolution of a bottleneck that halves the map: {either(STRIDES)}", metavar="KERNEL")
    add("--share-activation", f"units that activate x for both paths: {either(SHARES)}", metavar="WHERE")
    add("--bn-eps", "added to BN's variance", type=float, metavar="X")
    add("--bn-momentum", "weight of a new batch in BN's running statistics", type=float, metavar="X")


def network_changes(args: argparse.Namespace) -> dict[str, Any]:
    """The options of `network_options` that were given, as `resnets.create` takes them."""
    names = [field.name for field in dataclasses.fields(Spec) if field.name != "name"] + ["depth"]
    return {name: value for name in names if (value := getattr(args, name)) is not None}


def data_options(
    parser: argparse.ArgumentParser, default: str | None, known: str = f"{NAMED} or synthetic[:N]"
) -> None:
    shown = default or "what it was trained on"
    parser.add_argument("--data", default=default, help=f"{known} ({shown})", metavar="DATA")
    parser.add_argument("--dir", help="a folder to look for the data in", metavar="DIR")


def bad_images_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--bad-images", default="error", help="images that cannot be decoded: error, or skip (error)", metavar="POLICY"
    )


def view_options(parser: argparse.ArgumentParser) -> None:
    views = parser.add_argument_group("protocol", "the views of a picture over which answers are averaged")
    views.add_argument("--crop", help="a centre crop and the shorter side it is from: 224@256, 320@320", metavar="N@M")
    views.add_argument("--ten-crop", action="store_true", help="centre and corners, each also mirrored")
    scales = "whole pictures with these shorter sides: 224,256,384,480,640"
    views.add_argument("--multi-scale", type=numbers, help=scales, metavar="N,N")
    views.add_argument("--average", default="softmax", help="of softmax, or of logits (softmax)", metavar="WHAT")


def protocol_of(args: argparse.Namespace) -> Protocol:
    """What `view_options` were given."""
    from resnets.evaluation.protocol import Protocol

    return Protocol(args.crop, args.ten_crop, args.multi_scale, args.average)


def training_engine_option(parser: argparse.ArgumentParser) -> None:
    engines = (f"{name} ({meaning})" for name, meaning in ENGINES.items())
    parser.add_argument("--engine", default="auto", help=f"{either(engines)}; by default auto", metavar="ENGINE")


def engine_option(parser: argparse.ArgumentParser) -> None:
    engines = "plain, frozen, onnxruntime or openvino (auto: frozen on a CPU, else plain)"
    parser.add_argument("--engine", default="auto", help=engines)


def device_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", default="auto", help="cpu, cuda, mps ... (auto: an accelerator if there is one)")
