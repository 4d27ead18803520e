"""The detector: its backbones, fixed BN, torchvision's code as oracle, memory modes, and tests with v1's switches."""

import copy

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from benchmarks.detectors import build_torchvision, describe
from benchmarks.peers import import_torchvision
from resnets.detection import testing as tests
from resnets.detection.backbone import VggBackbone, build_backbone
from resnets.detection.detector import (
    AT_ONCE,
    LOSSES,
    Example,
    FasterRCNN,
    Sampling,
    Scaling,
    build_detector,
    estimate_head,
)
from resnets.detection.proposals import Objects
from resnets.detection.testing import Look, Testing, detect, select, vote
from resnets.detector_spec import DETECTORS, DetectorSpec, VggSpec, detector_of, is_detector
from resnets.engine.arena import Arena
from resnets.engine.feature_map import FrozenMap
from resnets.engine.native import kernels
from resnets.engine.native.build import load
from resnets.engine.threads import Threads
from resnets.errors import UserError
from resnets.nn import build
from resnets.zoo import spec_of
from tests.peers import randomize

WIDTHS = (16, 16, 24, 32)
NONE = torch.zeros(0, 4)
KINDS = ("resnet18", "resnet50", "preresnet18", "preresnet50", "plain18")


def small(name: str, **fields: object) -> DetectorSpec:
    network = {} if name == "vgg16" else {"widths": WIDTHS, "blocks": 1}
    given = {"num_classes": 3, "rpn_width": 16, "anchor_sizes": (32, 64), "pool_size": 4, **fields}
    spec = detector_of(f"faster_rcnn_{name}", network=network, **given)
    if name == "vgg16":
        stages = ((8, 8), (8, 8), (16,), (16,), (24, 24))
        return DetectorSpec(**{**vars(spec), "backbone": VggSpec(stages=stages)})
    return spec


def make(name: str = "resnet18", *, seed: int = 0, **fields: object) -> FasterRCNN:
    """A detector whose weights and statistics are all at random, and whose scores differ."""
    net = build_detector(small(name, **fields), seed=seed)
    randomize(net.backbone, seed)
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for layer, size in ((net.classifier, 0.5), (net.regressor, 0.1), (net.rpn.score, 0.3), (net.rpn.shift, 0.1)):
            layer.weight.normal_(0, size, generator=draw)
    net.metadata = type(net.metadata)(classes=("a", "b", "c")[: net.spec.num_classes])
    net.scaling = Scaling(side=128, longest=256)
    return net.to(memory_format=torch.channels_last)


def picture(seed: int = 0, size: tuple[int, int] = (128, 160)) -> np.ndarray:
    random = np.random.default_rng(seed)
    coarse = torch.from_numpy(random.random((1, 3, 9, 11)))
    return (
        (nn.functional.interpolate(coarse, size, mode="bicubic")[0].clamp(0, 1) * 255).byte().permute(1, 2, 0).numpy()
    )


def example(seed: int = 0, key: int = 5) -> Example:
    image = torch.from_numpy(picture(seed).copy()).permute(2, 0, 1).float() / 128 - 1
    boxes = torch.tensor([[10.0, 10, 60, 70], [80, 20, 150, 100]])
    return Example(image, Objects(boxes, torch.tensor([0, 2]), NONE, NONE), key, "picture.png")


# --- specs ------------------------------------------------------------------------------------


def test_every_imagenet_network_has_a_detector():
    assert {"resnet18", "resnet200", "preresnet152", "plain34", "vgg16"} <= set(DETECTORS.values())
    for name in DETECTORS:
        spec = detector_of(name, num_classes=7)
        assert (spec.stride, spec.num_classes, is_detector(name)) == (16, 7, True)
        assert DetectorSpec.from_dict(spec.to_dict()) == spec


def test_v1_counts_91_convolutions_below_the_regions():
    units = detector_of("faster_rcnn_resnet101").backbone.units()
    assert 1 + sum(len(unit.convs) for unit in units if unit.stage < 3) == 91


@pytest.mark.parametrize(
    ("name", "fields", "words"),
    [
        ("faster_rcnn_resnet20", {}, "is made for small images"),
        ("faster_rcnn_resnet51", {}, "unknown detector"),
        ("faster_rcnn_resnet50", {"pool": "mean"}, "unknown pool"),
        ("faster_rcnn_resnet50", {"num_classes": 0}, "num_classes must be"),
        ("faster_rcnn_resnet50", {"anchor_sizes": ()}, "anchor_sizes must be"),
        ("faster_rcnn_resnet50", {"anchor_ratios": (0.0,)}, "anchor_ratios must be"),
        ("faster_rcnn_vgg16", {"network": {"order": "original"}}, "VGG-16 has no order"),
    ],
)
def test_wrong_detectors_are_refused(name, fields, words):
    with pytest.raises(UserError, match=words):
        detector_of(name, **fields)


def test_wrong_descriptions_are_refused():
    good = small("resnet18").to_dict()
    for changes, words in (
        ({"backbone": 5}, "with a backbone"),
        ({"strange": 1}, "has no field strange"),
        ({"backbone": {"name": "vgg16", "vgg": [[8], ["x"]]}}, "lists of whole numbers"),
        ({"backbone": {"name": "a"}}, "lacks"),
    ):
        with pytest.raises(UserError, match=words):
            DetectorSpec.from_dict({**good, **changes})


# --- backbones --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("engine", ["plain", "auto"])
def test_a_backbone_computes_what_the_classifier_does(name, engine):
    """Both parts one after the other are the last map of the network, in training and in testing."""
    spec = spec_of(name, widths=WIDTHS, blocks=1)
    net = randomize(build(spec, seed=0)).eval()
    backbone = build_backbone(spec, torch.Generator().manual_seed(1))
    backbone.load_state_dict({k: v for k, v in net.state_dict().items() if not k.startswith("classifier.")})
    x = torch.randn(1, 3, 96, 80, generator=torch.Generator().manual_seed(2))
    wanted = net.forward_features(x).mean((2, 3)).detach()
    backbone.prepare(engine, "fast")
    for mode in (True, False):
        backbone.train(mode)
        found = backbone.run_tail(backbone.run_shared(x)).detach()
        assert (found - wanted).abs().max() <= 1e-4 * wanted.abs().max()
    assert backbone.run_shared(x).shape[2:] == (6, 5)


def test_vgg_is_torchvisions():
    torchvision = import_torchvision()
    theirs = torchvision.models.vgg16(weights=None).features.eval()
    ours = VggBackbone(VggSpec())
    ours.load_state_dict({f"features.{k}": v for k, v in theirs.state_dict().items()})
    x = torch.randn(1, 3, 64, 48, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        pool4, conv5 = theirs[:24](x), theirs[:30](x)
        for engine in ("plain", "auto"):
            ours.prepare(engine, "fast")
            ours.eval()
            found = ours.run_shared(x)
            assert (found - pool4).abs().max() <= 1e-4 * pool4.abs().max()
            tail = ours.run_tail(found)
            assert (tail - conv5.mean((2, 3))).abs().max() <= 1e-4 * tail.abs().max()


def test_a_preactivation_network_closes_behind_the_region():
    """The last BN-ReLU is part of what each region passes; the proposals read the map as the next unit does."""
    net = make("preresnet18")
    backbone = net.backbone
    assert backbone.tail[-1] is backbone.last
    assert [type(layer).__name__ for layer in backbone.last] == ["BatchNorm2d", "ReLU"]
    x = backbone.run_shared(example().image[None])
    assert (x < 0).any(), "the shared map is a sum without activation"
    assert (backbone.read_for_proposals(x) >= 0).all()
    plain = make("resnet18").backbone
    y = plain.run_shared(example().image[None])
    assert torch.equal(plain.read_for_proposals(y), y)


@pytest.mark.parametrize("name", KINDS)
def test_the_frozen_map_is_near_to_float64(name):
    """Of pictures of several sizes, one after another, and with the same bytes on any number of threads."""
    fields = {"widths": (24, 64, 136, 40), "blocks": 2}  # channels of each kind of 3x3, also such as fill no vector
    net = randomize(build(spec_of(name, **fields), seed=0)).eval()
    parts = [net.stem, *(unit for stage in net.stages[:3] for unit in stage)]
    exact, frozen = copy.deepcopy(nn.Sequential(*parts)).double(), FrozenMap(parts)
    draw = torch.Generator().manual_seed(0)
    for size in ((1, 3, 90, 71), (3, 3, 64, 64), (1, 3, 33, 120), (1, 3, 90, 71)):
        x = torch.randn(size, generator=draw)
        with torch.no_grad():
            wanted = exact(x.double())
        found = []
        for threads in (1, 2, 4):
            with Threads(threads):
                found.append(frozen(x))
        assert torch.equal(found[0], found[1])
        assert torch.equal(found[0], found[2])
        assert (found[0] - wanted).norm() <= 2e-6 * wanted.norm()


def test_the_frozen_map_falls_back_where_the_library_cannot():
    net = randomize(build(spec_of("resnet18", widths=WIDTHS, blocks=1), seed=0)).eval()
    parts = [net.stem, *net.units[:3]]
    frozen = FrozenMap(parts)
    x = torch.randn(2, 3, 64, 50, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        wanted = nn.Sequential(*parts)(x)
    for found in (frozen(x), frozen.run_layers(x), frozen(x.double().float())):
        assert (found - wanted).abs().max() <= 1e-4 * wanted.abs().max()


# --- the oracle: torchvision's code -----------------------------------------------------------


@pytest.mark.parametrize("name", ["resnet18", "resnet50"])
def test_a_detector_finds_what_torchvisions_code_finds(name):
    spec = describe(f"faster_rcnn_{name}", pool_size=7)
    net = build_detector(spec, seed=0)
    draw = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for key, tensor in net.state_dict().items():
            if key.endswith("running_var"):
                tensor.uniform_(2, 4, generator=draw)
        net.classifier.weight.normal_(0, 0.4, generator=draw)
        net.regressor.weight.normal_(0, 0.05, generator=draw)
        net.rpn.score.weight.normal_(0, 0.1, generator=draw)
        net.rpn.shift.weight.normal_(0, 0.02, generator=draw)
    testing = Testing(proposals=60)
    net.scaling = Scaling(side=128, longest=256)
    theirs = build_torchvision(net, 128, testing).eval()
    net.eval().prepare("auto", "fast")
    pixels = picture(size=(128, 160))
    with torch.no_grad():
        (wanted,) = theirs([torch.from_numpy(pixels.copy()).permute(2, 0, 1).float() / 255])
    found = detect([net], pixels, testing)
    assert len(found.scores) == len(wanted["scores"]) > 10
    assert np.abs(found.scores - wanted["scores"].numpy()).max() < 1e-4
    assert (found.labels + 1 == wanted["labels"].numpy()).all()  # their background is class 0
    assert np.abs(found.boxes - wanted["boxes"].numpy()).max() < 0.05


# --- training ---------------------------------------------------------------------------------


def measure(net: FasterRCNN, engine: str = "auto", memory: str = "fast") -> tuple[dict[str, float], dict[str, Tensor]]:
    net.prepare(engine, memory).train()
    net.zero_grad()
    losses = net([example()])
    torch.stack(list(losses.values())).sum().backward()
    grads = {name: p.grad.clone() for name, p in net.named_parameters() if p.grad is not None}
    return {name: loss.item() for name, loss in losses.items()}, grads


@pytest.mark.parametrize("name", [*KINDS, "vgg16"])
def test_engine_and_memory_change_no_loss_and_no_gradient(name):
    net = make(name)
    net.sampling = Sampling(64, 48, 0.25)
    wanted, grads = measure(net, "plain")
    assert list(wanted) == list(LOSSES)
    for engine, memory in (("auto", "fast"), ("auto", "lean"), ("auto", "min")):
        losses, found = measure(net, engine, memory)
        assert losses == pytest.approx(wanted, rel=1e-3)
        assert found.keys() == grads.keys()
        for key, gradient in found.items():
            difference = (gradient - grads[key]).norm() / grads[key].norm().clamp(min=1e-6)
            assert difference < 2e-2, key  # ReLUs near 0 may switch


def test_a_step_has_the_same_bytes_on_any_number_of_threads():
    net = make("resnet50")
    assert net.prepare("plain", "fast").find_thread_dependence() == "PyTorch alone computes it"
    assert net.prepare("auto", "fast").find_thread_dependence() == "PyTorch runs the stem"
    net.backbone.freeze_stages(1)
    assert net.find_thread_dependence() is None
    net.sampling = Sampling(64, 48, 0.25)
    found = []
    for threads in (1, 2, 4):
        with Threads(threads):
            found.append(measure(net))
    for losses, grads in found[1:]:
        assert losses == found[0][0]
        assert all(torch.equal(gradient, found[0][1][key]) for key, gradient in grads.items())


@pytest.mark.skipif(load().kernels is None, reason="no kernels here, whose maps are counted")
def test_each_memory_mode_takes_less_than_the_one_before(monkeypatch):
    """The largest memory of all maps at any moment of a step, forward and backward."""
    net = make("resnet50", pool_size=14)
    net.sampling = Sampling(64, 128, 0.25)
    peaks = {}
    for memory in AT_ONCE:
        arena, taken = Arena(), [0]

        def count(shape, arena=arena, taken=taken):
            made = arena.empty(shape)
            free = sum(size for _, size in (*arena.free, *arena.returned))
            taken.append(sum(region.size for region in arena.regions) - free)
            return made

        monkeypatch.setattr(kernels, "empty_map", count)
        measure(net, "auto", memory)
        peaks[memory] = max(taken)
    assert peaks["min"] < peaks["lean"] < peaks["fast"] / 2
    # The estimate also counts what is pooled.
    assert 0.5 * estimate_head(net.spec, 128) < peaks["fast"] < 1.5 * estimate_head(net.spec, 128)


def test_memory_of_the_head_is_bounded():
    spec = detector_of("faster_rcnn_resnet50", num_classes=20)
    assert estimate_head(spec, 8) < estimate_head(spec, 32) < estimate_head(spec, 128)
    assert 0.3e9 < estimate_head(spec, 128) < 2e9


def test_bn_is_fixed_and_frozen_stages_stay():
    net = make("resnet18")
    frozen = net.backbone.freeze_stages(1)
    before = {k: v.clone() for k, v in net.state_dict().items()}
    trained = [p for p in net.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(trained, 0.01)
    for _ in range(2):
        net.prepare("auto", "fast").train()
        optimizer.zero_grad()
        torch.stack(list(net([example()]).values())).sum().backward()
        optimizer.step()
    assert len(frozen) == 2  # the stem and one unit
    for name, tensor in net.state_dict().items():
        is_bn = ".bn." in name
        is_first = name.startswith(("backbone.stem.", "backbone.units.0."))
        assert torch.equal(tensor, before[name]) == (is_bn or is_first), name
    with pytest.raises(UserError, match="freeze must be from 0 to 3"):
        net.backbone.freeze_stages(4)


def test_samples_follow_from_the_key():
    net = make()
    net.sampling = Sampling(16, 8, 0.25)
    net.train()
    first, again, other = (net([example(key=key)])["class"] for key in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_pictures_without_objects_and_without_area_to_propose_train():
    net = make()
    net.train()
    empty = example()._replace(objects=Objects(NONE, torch.zeros(0, dtype=torch.long), NONE, NONE))
    losses = net([empty, example()])
    assert all(loss.isfinite() for loss in losses.values())
    torch.stack(list(losses.values())).sum().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in net.parameters())


def test_the_mean_over_pictures():
    net = make()
    net.train()
    one, two = net([example(0)]), net([example(1)])
    both = net([example(0), example(1)])
    for name in LOSSES:
        assert both[name].item() == pytest.approx((one[name].item() + two[name].item()) / 2, rel=1e-5)


def test_wrong_pictures_are_refused():
    net = make()
    for image in (torch.zeros(1, 64, 64), torch.zeros(3, 8, 64)):
        with pytest.raises(UserError, match="reads pictures"):
            net.look(image)
    with pytest.raises(UserError, match="must be uint8"):
        detect([net], np.zeros((4, 4), np.uint8))


# --- context ----------------------------------------------------------------------------------


def test_context_joins_the_whole_picture():
    net = make(context=True)
    assert net.classifier.in_features == 2 * net.spec.tail_channels
    x = net.look(example().image)
    regions = torch.tensor([[0.0, 0, 40, 40], [20, 20, 100, 100]])
    features = net.describe_in_context(x, regions, (128, 160))
    whole = net.describe(x, torch.tensor([[0.0, 0, 160, 128]]))
    assert torch.allclose(features[:, : net.spec.tail_channels], net.describe(x, regions), atol=1e-5)
    assert torch.allclose(features[:, net.spec.tail_channels :], whole.expand(2, -1), atol=1e-5)
    losses = net.train()([example()])
    assert all(loss.isfinite() for loss in losses.values())


# --- tests ------------------------------------------------------------------------------------


def same(one: object, other: object, tolerance: float = 1e-3) -> bool:
    scores, boxes = np.abs(one.scores - other.scores), np.abs(one.boxes - other.boxes)
    return bool((one.labels == other.labels).all() and scores.max() < tolerance and boxes.max() < 100 * tolerance)


TEST = Testing(proposals=40, score=0.1)


@pytest.mark.parametrize("fields", [{}, {"context": True}, {"pool": "align"}])
def test_engines_find_the_same(fields):
    net = make(**fields).eval()
    plain = detect([net.prepare("plain", "fast")], picture(), TEST)
    assert len(plain.scores) > 5
    assert same(plain, detect([net.prepare("auto", "fast")], picture(), TEST))


def test_scores_fall_and_boxes_lie_inside():
    found = detect([make().eval()], picture(), TEST)
    assert (np.diff(found.scores) <= 0).all()
    assert (found.boxes[:, :2] >= 0).all()
    assert (found.boxes[:, 2] <= 160).all()
    assert (found.boxes[:, 3] <= 128).all()
    assert len(detect([make().eval()], picture(), Testing(proposals=40, score=0.1, most=3)).scores) == 3


def test_boxes_are_in_pixels_of_the_picture_at_any_scale():
    """A picture of half the size has boxes of half the size: the detector sees both at its own side."""
    net = make().eval()
    large = picture(size=(128, 160))
    net.scaling = Scaling(side=64, longest=128)
    small_ones = detect([net], large, TEST).boxes
    assert small_ones[:, 2].max() > 100


def test_one_side_given_is_that_side():
    net = make().eval()
    assert same(
        detect([net], picture(), TEST), detect([net], picture(), Testing(proposals=40, score=0.1, sides=(128,)))
    )


def test_equal_scales_merge_to_themselves():
    """The maximum of a feature and itself is the feature."""
    for fields in ({}, {"context": True}):
        net = make(**fields).eval()
        one, two = Look(net, picture(), (128,), False), Look(net, picture(), (128, 128), False)
        regions = torch.tensor([[0.0, 0, 40, 40], [20, 20, 100, 100]])
        for a, b in zip(one.judge(regions), two.judge(regions), strict=True):
            assert torch.allclose(a, b, atol=1e-3)


@pytest.mark.parametrize(
    ("pool_size", "expected"),
    [
        # 90 pixels are 180 at a shorter side of 200 and 360 at 400; 30 and 60 pixels stay below 224 longest.
        (14, [(13, 3), (25, 3)]),
        # 90 and 60 pixels pass 112 between 100 and 200, and 30 between 200 and 400.
        (7, [(7, 2), (13, 1), (13, 2), (25, 1)]),
    ],
)
def test_regions_are_pooled_from_the_scales_at_which_they_have_as_many_places_as_are_pooled(pool_size, expected):
    net = make(pool_size=pool_size).eval()
    look = Look(net, picture(size=(100, 100)), (100, 200, 400), False)
    seen = []

    def pool(x: Tensor, regions: Tensor) -> Tensor:
        seen.append((x.shape[2], len(regions)))
        return FasterRCNN.pool(net, x, regions)

    net.pool = pool
    look.judge(torch.tensor([[0.0, 0, 90, 90], [0, 0, 30, 30], [0, 0, 60, 60]]))
    assert sorted(seen) == expected


def test_mirror_averages_both_views():
    """A detector of a symmetric picture sees the same from both sides."""
    net = make().eval()
    half = picture()[:, :80]
    whole = np.concatenate([half, half[:, ::-1]], 1)
    found = detect([net], whole, Testing(proposals=60, score=0.2, mirror=True))
    mirrored = detect([net], np.ascontiguousarray(whole[:, ::-1]), Testing(proposals=60, score=0.2, mirror=True))
    assert same(found, mirrored, 1e-2)
    look, other = (Look(net, whole, (), flip) for flip in (False, True))
    regions = torch.tensor([[8.0, 8, 72, 88]])
    opposite = torch.tensor([[160 - 72.0, 8, 160 - 8, 88]])
    a, b = look.judge(regions), other.judge(opposite)
    assert torch.allclose(a[0], b[0], atol=1e-4)
    assert torch.allclose(a[1][..., 0], 160 - b[1][..., 2], atol=1e-2)


def test_an_ensemble_of_equals_is_one_of_them():
    net = make().eval()
    assert same(detect([net], picture(), TEST), detect([net, copy.deepcopy(net)], picture(), TEST))
    other = make(seed=3).eval()
    looks = [Look(each, picture(), (), False) for each in (net, other)]
    regions = torch.tensor([[8.0, 8, 72, 88]])
    together = tests.judge_together(looks, regions)
    each = [look.judge(regions) for look in looks]
    assert torch.allclose(together[0], (each[0][0] + each[1][0]) / 2)


def test_refinement_joins_both_sets_and_votes(monkeypatch):
    net = make().eval()
    sets = []
    judge = tests.judge_together

    def watch(looks, regions):
        sets.append(regions)
        return judge(looks, regions)

    monkeypatch.setattr(tests, "judge_together", watch)
    detect([net], picture(), Testing(proposals=40, score=0.1, refine=True))
    assert [len(regions) for regions in sets] == [40, 40]
    assert not torch.equal(*sets)


def test_box_voting_is_a_mean_weighted_by_score():
    chosen = torch.tensor([[0.0, 0, 10, 10]])
    candidates = torch.tensor([[0.0, 0, 10, 10], [2, 0, 10, 10], [50, 50, 60, 60]])
    found = vote(chosen, candidates, torch.tensor([0.9, 0.3, 0.8]))
    assert found[0].tolist() == pytest.approx([(0.9 * 0 + 0.3 * 2) / 1.2, 0, 10, 10])


def test_selection_keeps_classes_apart():
    boxes = torch.tensor([[0.0, 0, 10, 10], [1, 0, 10, 10]])[:, None].expand(2, 2, 4)
    probabilities = torch.tensor([[0.6, 0.3, 0.1], [0.2, 0.7, 0.1]])
    found = select(probabilities, boxes, Testing(score=0.25))
    assert found.labels.tolist() == [1, 0]
    assert found.scores.tolist() == pytest.approx([0.7, 0.6])
    assert found.boxes[:, 0].tolist() == [1, 0]


def test_the_background_is_no_class():
    boxes = torch.zeros(1, 2, 4) + torch.tensor([0.0, 0, 9, 9])
    assert len(select(torch.tensor([[0.02, 0.03, 0.95]]), boxes, Testing()).scores) == 0


def test_a_picture_in_which_nothing_is_proposed():
    net = make().eval()
    with torch.no_grad():
        net.rpn.shift.bias[::4] = 1e6  # every box lies outside
    assert len(detect([net], picture(), Testing(refine=True)).scores) == 0
