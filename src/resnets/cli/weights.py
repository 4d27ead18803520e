"""What trained networks are used for: `eval`, `predict`, `import` and `export`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from resnets.cli.network_options import (
    NAMED,
    bad_images_option,
    data_options,
    device_option,
    engine_option,
    network_changes,
    network_options,
    protocol_of,
    view_options,
)
from resnets.cli.parser import positive, reals
from resnets.weights.pretrained import DEFAULT

if TYPE_CHECKING:
    from resnets.cli.parser import Commands


def evaluate(commands: Commands) -> None:
    parser = commands.add_parser(
        "eval",
        help="the test error of a run or of a file of weights",
        description="The test error of a run, of a weights file of ours, or of another library's with --network; of "
        "several of them as an ensemble, whose answers are averaged. Pictures are seen as the file says, or by one of "
        "the papers' protocols.",
        usage="%(prog)s [options] RUN_OR_WEIGHTS ...",
    )
    parser.add_argument("paths", nargs="+", help="the folder of a run, or a file of weights", metavar="RUN_OR_WEIGHTS")
    data_options(parser, None, f"{NAMED}, synthetic[:N] or a folder of class folders")
    bad_images_option(parser)
    view_options(parser)
    parser.add_argument("--network", help="the network in another library's file: resnet20", metavar="NAME")
    parser.add_argument("--source", default="auto", help="whose weights the file must hold", metavar="LIBRARY")
    parser.add_argument(
        "--normalize", help="channel or pixel statistics of the data instead of the file's", metavar="HOW"
    )
    parser.add_argument(
        "--precise-bn", type=positive, default=0, help="take BN's statistics anew from N training images", metavar="N"
    )
    device_option(parser)
    engine_option(parser)
    parser.add_argument("-o", "--out", help="write the result as JSON, with where it came from", metavar="FILE")
    parser.add_argument("--json", action="store_true", help="print JSON")
    network_options(parser)

    def run(args: argparse.Namespace) -> None:
        from resnets.cli.commands.evaluate import eval_command

        eval_command(
            args.paths,
            data=args.data,
            data_dir=args.dir,
            network=args.network,
            changes=network_changes(args),
            source=args.source,
            per=args.normalize,
            precise=args.precise_bn,
            protocol=protocol_of(args),
            device=args.device,
            engine=args.engine,
            out=args.out,
            as_json=args.json,
            bad_images=args.bad_images,
        )

    parser.set_defaults(run=run)


def predict(commands: Commands) -> None:
    parser = commands.add_parser(
        "predict",
        help="recognise pictures",
        description="Recognise pictures, and all pictures in folders: the likeliest classes with their probabilities. "
        "Pictures that cannot be read are listed at the end, and the exit code is then 1.",
        usage="%(prog)s [options] PICTURE_OR_FOLDER ...",
    )
    parser.add_argument("paths", nargs="+", help="pictures, and folders of pictures", metavar="PICTURE_OR_FOLDER")
    parser.add_argument(
        "--weights", help=f"a file of weights that says all about itself, or a run ({DEFAULT})", metavar="FILE"
    )
    parser.add_argument("--top", type=positive, default=5, help="so many classes of each (5)", metavar="N")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", dest="form", action="store_const", const="json", default="table", help="print JSON")
    form.add_argument("--csv", dest="form", action="store_const", const="csv", help="print CSV")
    parser.add_argument("--cam", help="draw where the evidence for the first class lies: .png or .jpg", metavar="FILE")
    device_option(parser)
    engine_option(parser)
    view_options(parser)

    def run(args: argparse.Namespace) -> int:
        from resnets.cli.commands.predict import predict_command

        given = {name: getattr(args, name) for name in ("weights", "top", "form", "cam", "device", "engine")}
        return predict_command(args.paths, protocol=protocol_of(args), **given)

    parser.set_defaults(run=run)


def bring_in(commands: Commands) -> None:
    parser = commands.add_parser(
        "import",
        help="turn another library's weights into a file that says all about itself",
        description="Turn another library's weights into a safetensors file with the network, the classes' names, the "
        "preprocessing and the origin inside, so that eval, predict and export need no further words. Weights of "
        "torchvision, timm and akamaster, and Keras's ResNet-50 of 2015 as a package of TensorFlow.js.",
        usage="%(prog)s [options] SOURCE -o FILE",
    )
    parser.add_argument("source", help="a file of weights; a package's folder, .tgz or model.json", metavar="SOURCE")
    parser.add_argument("-o", "--out", required=True, help="the file to write", metavar="FILE")
    parser.add_argument("--network", help="the network in another library's file: resnet50", metavar="NAME")
    parser.add_argument("--source", dest="library", default="auto", help="whose weights it must be", metavar="LIBRARY")
    parser.add_argument(
        "--classes", help='JSON with the classes\' names: a list, or {"0": [FOLDER, NAME], ...}', metavar="FILE"
    )
    parser.add_argument(
        "--mean", type=reals, help="of R, G, B in 0 to 1, as trained: 0.485,0.456,0.406", metavar="X,X,X"
    )
    parser.add_argument("--std", type=reals, help="of R, G, B, as trained: 0.229,0.224,0.225", metavar="X,X,X")
    parser.add_argument("--crop", help="the crop and the shorter side to test with: 224@256", metavar="N@M")
    network_options(parser)

    def run(args: argparse.Namespace) -> None:
        from resnets.weights.convert import import_command

        given = {name: getattr(args, name) for name in ("network", "library", "classes", "mean", "std", "crop")}
        import_command(args.source, args.out, changes=network_changes(args), **given)

    parser.set_defaults(run=run)


def export(commands: Commands) -> None:
    parser = commands.add_parser(
        "export",
        help="write a network for other programs: ONNX, torch.export",
        description="Write a network for other programs, with batch and image size left open, and classes and "
        "preprocessing told in the file. It is written only if its scores are PyTorch's.",
        usage="%(prog)s [options] NETWORK_OR_WEIGHTS",
    )
    parser.add_argument("what", help="a file of weights, a run, or a network's name", metavar="NETWORK_OR_WEIGHTS")
    parser.add_argument("--format", default="onnx", help="onnx or torch-export (onnx)")
    parser.add_argument("-o", "--out", help="the file to write (NETWORK.onnx or NETWORK.pt2)", metavar="FILE")
    parser.add_argument("--fold", action="store_true", help="fold BN into the convolutions: smaller and faster")
    network_options(parser)

    def run(args: argparse.Namespace) -> None:
        from resnets.weights.exporters import export_command

        given = {name: getattr(args, name) for name in ("format", "out", "fold")}
        export_command(args.what, changes=network_changes(args), **given)

    parser.set_defaults(run=run)
