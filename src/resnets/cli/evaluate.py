"""`resnets eval`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from resnets.cli.options import Command
from resnets.cli.results import trace_weights, write_result
from resnets.errors import UserError
from resnets.evaluation.options import EvaluateOptions
from resnets.text import print_json, print_lines, print_table, say
from resnets.zoo import NetworkOptions

if TYPE_CHECKING:
    from resnets.cli.parser import Commands
    from resnets.evaluation.score import Score

_NAMED = 20  # mistakes
_WRITTEN = 100  # classes whose confusion matrix is in the JSON
_COMMON = ("data", "data_dir", "crop", "ten_crop", "multi_scale", "mirror", "shift", "device", "engine", "threads")


def evaluate(commands: Commands) -> None:
    command = Command(
        commands,
        "eval",
        EvaluateOptions,
        NetworkOptions,
        help="measure the test error of a run or of weights, or the mAP of a detector",
        description="Measure the test error of trained weights: a pretrained name, a file of ours or of another "
        "library, a run. Several of them are an ensemble, whose answers are averaged. Pictures are seen as the file "
        "says, or by one of the papers' protocols. Of a detector, mean average precision with its interval.",
        usage="%(prog)s [options] WEIGHTS ...",
    )
    command.add("models", nargs="+", help="a pretrained name, a file of weights, or a run's folder", metavar="WEIGHTS")
    command.add("--per-class", action="store_true", help="print the error of each class")
    command.add("--confusion", help="draw the confusion matrix: .png, .svg or .pdf", metavar="FILE")
    command.add("--mistakes", action="store_true", help="print which images are wrong, and what they are taken for")
    command.add("--compare", help="a second detector: the difference of both, with its interval", metavar="WEIGHTS")
    command.add("-o", "--out", help="write the result as JSON, with its provenance", metavar="FILE")
    command.add("--json", action="store_true", help="print JSON")
    command.add_options(common=_COMMON)

    def run(args: argparse.Namespace) -> None:
        from resnets.cli.detection_output import evaluate_detectors

        given, changes = command.read(args)
        options = EvaluateOptions(**given)
        from resnets.report.confusion import draw_confusion, require_picture

        if args.confusion is not None:
            require_picture(Path(args.confusion))
        from resnets.evaluation.evaluate import evaluate
        from resnets.progress import Console
        from resnets.weights.detectors import is_detector

        if any(map(is_detector, args.models)):
            if args.confusion is not None:
                raise UserError("--confusion is for classifiers; a detector's objects also lie in the background.")
            return evaluate_detectors(args, options, changes, _warn)
        if args.compare is not None:
            raise UserError("--compare is for detectors; `resnets compare RUN RUN` compares runs of classifiers.")
        score = evaluate(args.models, options=options, changes=changes, progress=Console(), warn=_warn)
        if args.out:
            weights = trace_weights(args.models, score.models)
            write_result(Path(args.out), {**_to_dict(score), "weights": weights})
        if args.confusion is not None:
            draw_confusion(score, Path(args.confusion))
        if args.json:
            return print_json(_to_dict(score))
        _print(score)
        if args.per_class:
            _print_classes(score)
        if args.mistakes:
            _print_mistakes(score)
        if args.confusion is not None:
            print_lines(f"confusion matrix: {args.confusion}")

    command.run(run)


def _warn(sentence: str) -> None:
    say(f"warning: {sentence}")


def _to_dict(score: Score) -> dict[str, Any]:
    classes = [{"name": c.name, "images": c.images, "wrong": c.wrong} for c in score.per_class]
    confusion = [] if score.confusion is None else score.confusion.tolist()
    return {**score.context, **score.to_dict(), "classes": classes, **_keep_small(confusion)}


def _keep_small(confusion: list[list[int]]) -> dict[str, Any]:
    """The matrix of few classes; a thousand would be a million numbers, mostly zeros."""
    return {"confusion": confusion} if len(confusion) <= _WRITTEN else {}


def _print(score: Score) -> None:
    for net in score.models:
        print_lines(net.metadata.origin)
    names = " and ".join(net.spec.name for net in score.models)
    error, *more = score.describe()
    print_lines(f"{names} on {score.context['data']}, {score.context['views']}: {error}")
    if skipped := score.context.get("skipped"):
        print_lines(f"{skipped} of {skipped + score.images} pictures could not be decoded and were skipped")
    print_lines(*more)


def _print_classes(score: Score) -> None:
    rows = [(c.name, f"{c.images:,}", f"{c.wrong:,}", f"{c.error:.2f}") for c in score.per_class if c.images]
    print_lines()
    print_table(("class", "images", "wrong", "error %"), rows, right=("images", "wrong", "error %"))


def _print_mistakes(score: Score) -> None:
    names = score.classes or tuple(map(str, range(len(score.per_class))))
    rows = [(str(m.image), names[m.label], names[m.found]) for m in score.mistakes[:_NAMED]]
    print_lines()
    print_table(("image", "is", "taken for"), rows)
    if len(score.mistakes) > _NAMED:
        print_lines(f"and {len(score.mistakes) - _NAMED:,} more")
