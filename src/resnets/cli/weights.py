"""`resnets import` and `resnets export`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from resnets.cli.options import NETWORK_FIELDS, Command
from resnets.options import fields_of
from resnets.text import print_lines
from resnets.weights.options import ConvertOptions, ExportOptions
from resnets.zoo import NetworkOptions

if TYPE_CHECKING:
    from resnets.cli.parser import Commands


def convert(commands: Commands) -> None:
    command = Command(
        commands,
        "import",
        ConvertOptions,
        NetworkOptions,
        help="convert another library's weights into a file that describes itself",
        description="Convert another library's weights into a safetensors file with the network, the names of the "
        "classes, the preprocessing and the origin inside, so that eval, predict and export need no further options. "
        "Weights of torchvision, timm, akamaster, chenyaofo and micronet, and Keras's ResNet-50 of 2015 as a package "
        "of TensorFlow.js.",
        usage="%(prog)s [options] SOURCE -o FILE",
    )
    command.add("from", help="a file of weights; a package's folder, .tgz or model.json", metavar="SOURCE")
    command.add("-o", "--out", required=True, help="the file to write", metavar="FILE")
    command.add_options(common=(*fields_of(ConvertOptions), *NETWORK_FIELDS))

    def run(args: argparse.Namespace) -> None:
        given, changes = command.read(args)
        options = ConvertOptions(**given)
        from resnets.weights.convert import convert

        net = convert(getattr(args, "from"), args.out, options=options, changes=changes)
        read = net.metadata.preprocessing
        names = ", ".join(net.classes[:3]) + " ..." if net.classes else "without names; --classes FILE gives some"
        print_lines(net.metadata.origin, f"{net.spec.num_classes} classes: {names}")
        if read:
            mean, std = (", ".join(f"{value:.4g}" for value in values) for values in (read.mean, read.std))
            print_lines(f"reads RGB, shorter side {read.resize}, crop {read.crop}, mean {mean}, std {std}")
        print_lines(args.out)

    command.run(run)


def export(commands: Commands) -> None:
    command = Command(
        commands,
        "export",
        ExportOptions,
        NetworkOptions,
        help="write a network for other programs: ONNX, torch.export",
        description="Write a network for other programs, with batch and image size left open, and classes and "
        "preprocessing described in the file. It is written only if its scores are PyTorch's.",
        usage="%(prog)s [options] NETWORK_OR_WEIGHTS",
    )
    command.add("model", help="a pretrained name, a file of weights, a run, a network", metavar="NETWORK_OR_WEIGHTS")
    command.add("-o", "--out", help="the file to write (NETWORK.onnx or NETWORK.pt2)", metavar="FILE")
    command.add_options(common=(*fields_of(ExportOptions), *NETWORK_FIELDS))

    def run(args: argparse.Namespace) -> None:
        given, changes = command.read(args)
        options = ExportOptions(**given)
        from resnets.detection import onnx as detector_onnx
        from resnets.detector_spec import DetectorSpec
        from resnets.weights.export import describe_use, export

        done = export(args.model, args.out, options=options, changes=changes)
        spec = done.net.spec
        if isinstance(spec, DetectorSpec):
            print_lines(done.net.metadata.origin, detector_onnx.describe_use(done.net))
            print_lines(f"compared with PyTorch on three shapes: detections differ by at most {done.difference:.1e}")
            return print_lines(done.path)
        sides = "H, W" if done.open_size else f"{spec.input_size}, {spec.input_size}"
        print_lines(done.net.metadata.origin)
        use = describe_use(done.net, done.open_size)
        print_lines(f"images (N, {spec.in_channels}, {sides}) to scores (N, {spec.num_classes}); {use}")
        print_lines(
            f"compared with PyTorch on three shapes: scores differ by at most {done.difference:.1e} of the largest"
        )
        print_lines(done.path)

    command.run(run)
