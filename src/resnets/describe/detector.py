"""What `resnets info` says about a detector."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from resnets.detection.complexity import count_multiply_adds, count_step, count_test
from resnets.detection.detector import build_detector, estimate_head
from resnets.detector_spec import DetectorSpec, VggSpec
from resnets.recipe import RECIPES

SIZE = 600, 800  # of v1's pictures, the height and width of most
_RECIPE = RECIPES["voc-paper"]


@dataclass(frozen=True)
class DetectorDescription:
    """A detector part by part: (part, what, multiply-adds)."""

    spec: DetectorSpec
    parameters: int
    parts: tuple[tuple[str, str, int], ...]
    step: int  # multiply-adds of a training step by voc-paper
    test: int  # of a test with 300 proposals
    head: int  # bytes that the regions of a step keep in memory mode fast

    def to_dict(self) -> dict[str, Any]:
        return {
            "detector": self.spec.to_dict(),
            "parameters": self.parameters,
            "size": list(SIZE),
            "parts": [{"part": part, "what": what, "multiply_adds": cost} for part, what, cost in self.parts],
            "multiply_adds": {"training step": self.step, "test": self.test},
            "region_memory": self.head,
        }


def describe_detector(spec: DetectorSpec) -> DetectorDescription:
    """Cost for a picture of 600x800 and v1's numbers of regions."""
    parameters = sum(p.numel() for p in build_detector(spec).parameters())
    cost = count_multiply_adds(spec, *SIZE)
    vgg = isinstance(spec.backbone, VggSpec)
    names = [f"conv{i + 2}" if vgg else f"conv{i + 2}_x" for i in range(len(cost.shared))]
    names[0] = f"conv1 and {names[0]}"
    parts = [
        (name, f"shared, stride {2 ** (i + 2)}", mults)
        for i, (name, mults) in enumerate(zip(names, cost.shared, strict=True))
    ]
    sizes = ", ".join(map(str, spec.anchor_sizes))
    pooling = "RoI pooling" if spec.pool == "max" else "RoI align"
    parts += [
        (
            "proposals",
            f"{spec.anchors} anchors at each place: {sizes} pixels; {spec.rpn_width} filters",
            cost.proposals,
        ),
        ("one region", f"{pooling} to {spec.pool_size}x{spec.pool_size}, last stage, average, two layers", cost.region),
    ]
    regions = _RECIPE.roi_batch
    return DetectorDescription(
        spec,
        parameters,
        tuple(parts),
        count_step(spec, *SIZE, regions, _RECIPE.freeze),
        count_test(spec, *SIZE),
        estimate_head(spec, regions),
    )
