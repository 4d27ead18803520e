"""What other systems need in training: preprocessing, losses, first weights, limits, rates, a teacher."""

import dataclasses
import json
import math

import numpy as np
import pytest
import torch
from tiny import assert_same
from torch import nn

import resnets
from resnets import UserError
from resnets.chain import Chain
from resnets.data import contrast, load
from resnets.data.batches import MemoryBatches, normalize_of
from resnets.data.resized import resize
from resnets.nn import build
from resnets.nn.chain import Aux
from resnets.nn.initialization import initialize_by, list_layers
from resnets.other_systems import SYSTEMS
from resnets.recipe import RECIPES, Recipe, default_recipe, recipe_of
from resnets.training.callbacks import Callback
from resnets.training.hints import forward_to
from resnets.training.losses import Loss, soften, squared_hinge
from resnets.training.max_norm import apply_limits, pair_limits
from resnets.training.optimizers import decay_groups
from resnets.training.schedule import Schedule
from resnets.weights.files import read

ROWS = (
    "a: drop:0.2 conv:8:3:s2 aux:0.5(linear:K) relu drop:0.5:unscaled",
    "b: highway:3:-2 conv:12:2 maxout:2 pool:max:3:s2:ceil",
    "linear:K",
)
SMALL = Chain("small", ROWS, input_size=8)
SHORT = {"iterations": 6, "batch": 16, "milestones": "", "quiet": True, "log_every": 1}


@pytest.fixture(scope="module")
def images():
    return resize(load("synthetic:128"), 8)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("RESNETS_CACHE", str(tmp_path_factory.mktemp("cache")))


def draw(*shape):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


# --- preprocessing ----------------------------------------------------------------------------


def test_contrast_and_whitening_are_the_formulas_in_float64(images):
    x = images.train_images.astype(np.float64).reshape(len(images.train_images), -1)
    x -= x.mean(1, keepdims=True)
    x *= 55 / np.sqrt((x**2).sum(1, keepdims=True))
    mean = x.mean(0)
    variances, directions = np.linalg.eigh((x - mean).T @ (x - mean) / len(x) + 0.1 * np.eye(x.shape[1]))
    whitened = (x - mean) @ (directions / np.sqrt(variances)) @ directions.T
    for kind, wanted in (("gcn", x - mean), ("gcn-zca", whitened)):
        found = normalize_of(images, Recipe(normalize=kind))(torch.from_numpy(images.train_images))
        np.testing.assert_allclose(found.flatten(1).numpy(), wanted, rtol=2e-3, atol=2e-3)


def test_images_of_one_colour_stay_finite(images):
    normalize = normalize_of(images, Recipe(normalize="gcn-zca"))
    assert normalize(torch.full((1, 3, 8, 8), 7, dtype=torch.uint8)).isfinite().all()


def test_statistics_are_of_the_training_images_alone(images):
    held = Recipe(normalize="gcn", validation=40)
    one, two = normalize_of(images, Recipe(normalize="gcn")), normalize_of(images, held)
    assert one.digest != two.digest
    assert not torch.equal(one.mean, two.mean)
    trained = images.split(40, 0)[0]
    part = contrast.scale_contrast(torch.from_numpy(images.train_images[trained])).mean(0)
    torch.testing.assert_close(two.mean, part)


def test_whitening_is_kept_in_the_cache_and_a_damaged_file_is_made_again(images):
    one = normalize_of(images, Recipe(normalize="gcn-zca"))
    (path,) = contrast.cache_dir().glob("statistics/*")
    path.write_bytes(path.read_bytes()[:100])
    two = normalize_of(images, Recipe(normalize="gcn-zca"))
    assert torch.equal(one.whitening, two.whitening)
    threads = torch.get_num_threads()
    path.unlink()
    torch.set_num_threads(1)
    try:
        assert torch.equal(normalize_of(images, Recipe(normalize="gcn-zca")).whitening, one.whitening)
    finally:
        torch.set_num_threads(threads)


def test_other_images_than_those_that_were_whitened_are_refused(images):
    normalize = normalize_of(images, Recipe(normalize="gcn-zca"))
    with pytest.raises(UserError, match=r"trained on images of 3x8x8 less their mean image, not on 3x9x8"):
        normalize(torch.zeros(1, 3, 9, 8, dtype=torch.uint8))
    with pytest.raises(UserError, match="must be uint8"):
        normalize(torch.zeros(1, 3, 8, 8))


def test_files_of_weights_keep_the_statistics(tmp_path, images):
    run = resnets.train(SMALL, images, "nin-paper", out=tmp_path, **SHORT)
    net = run.model
    assert net.metadata.preprocessing.normalize == "gcn-zca"
    x = torch.from_numpy(images.test_images[:3])
    wanted = normalize_of(images, run.identity.recipe)(x)
    torch.testing.assert_close(torch.stack([net.transform(image) for image in x]), wanted)
    assert resnets.evaluate(run, images).error == pytest.approx(run.result["test"]["error"])
    resnets.save_weights(net, tmp_path / "again.safetensors")  # also when it is written again
    again = resnets.load(tmp_path / "again.safetensors")
    assert torch.equal(again.metadata.arrays["whitening"], net.metadata.arrays["whitening"])
    assert resnets.predict(again, [resnets.data.transform.to_picture(images.test_images[0])], top=1)[0].labels


@pytest.mark.parametrize(
    ("name", "change"), [("mean", None), ("whitening", None), ("whitening", math.nan), ("mean", 0)]
)
def test_a_file_without_its_statistics_is_refused(tmp_path, images, name, change):
    run = resnets.train(SMALL, images, "nin-paper", out=tmp_path, **SHORT)
    net = run.model
    arrays = dict(net.metadata.arrays)
    if change is None:
        del arrays[name]
    elif change == 0:
        arrays[name] = arrays[name][:, :5]
    else:
        arrays[name] = torch.full_like(arrays[name], change)
    resnets.save_weights(net, tmp_path / "x.safetensors", arrays=arrays)
    with pytest.raises(UserError, match=f"was trained with gcn-zca and lacks its {name} of"):
        resnets.evaluate(tmp_path / "x.safetensors", images)


# --- losses -----------------------------------------------------------------------------------


def test_squared_hinge_is_its_formula():
    scores, labels = draw(5, 4).requires_grad_(), torch.tensor([0, 3, 1, 1, 2])

    def formula(z):
        total = 0.0
        for row, label in zip(z, labels.tolist(), strict=True):
            total += sum(max(0.0, 1 - (1 if j == label else -1) * float(v)) ** 2 for j, v in enumerate(row))
        return total / len(z)

    found = squared_hinge(scores, labels)
    assert found.item() == pytest.approx(formula(scores.detach()))
    found.backward()
    direction, step = draw(5, 4).flip(0), 1e-6
    slope = (formula(scores.detach() + step * direction) - formula(scores.detach() - step * direction)) / (2 * step)
    assert float((scores.grad * direction).sum()) == pytest.approx(slope, rel=1e-5)


def test_distillation_is_its_formula():
    scores, teacher = draw(5, 4).requires_grad_(), draw(5, 4).flip(1)

    def formula(z):
        p, q = (np.exp(v.numpy() / 3) for v in (teacher, z))
        p, q = p / p.sum(1, keepdims=True), q / q.sum(1, keepdims=True)
        return -(p * np.log(q)).sum(1).mean()

    found = soften(scores, teacher, 3.0)
    assert found.item() == pytest.approx(formula(scores.detach()))
    found.backward()
    direction, step = draw(5, 4).flip(0), 1e-6
    slope = (formula(scores.detach() + step * direction) - formula(scores.detach() - step * direction)) / (2 * step)
    assert float((scores.grad * direction).sum()) == pytest.approx(slope, rel=1e-5)


def test_auxiliary_losses_are_added_by_network_and_recipe_together():
    net = build(dataclasses.replace(SMALL, bn_eps=1e-3), seed=0).eval()
    x, labels = torch.randn(4, 3, 8, 8), torch.tensor([0, 1, 2, 3])
    scores, ((_, head),) = net(x, aux=True)
    recipe = recipe_of("dsn-paper", aux_weight=2.0, aux_length="5it")
    loss = Loss(recipe, Schedule(recipe, 100), heads=1)
    wanted = squared_hinge(scores, labels) + 0.5 * 2 * squared_hinge(head, labels)
    torch.testing.assert_close(loss(net, x, labels, step=4)[0], wanted)
    torch.testing.assert_close(loss(net, x, labels, step=5)[0], squared_hinge(scores, labels))


# --- first weights and limits -----------------------------------------------------------------


def test_first_weights_have_the_deviation_that_the_recipe_says():
    net = build(resnets.spec_of("nin"), seed=0)
    for how, wanted in (("gaussian:0.05", 0.05), ("uniform:0.005", 0.005 / 3**0.5), ("xavier", 75**-0.5)):
        initialize_by(net, how, torch.Generator().manual_seed(0))
        assert net.rows.conv1.conv1.weight.std().item() == pytest.approx(wanted, rel=0.05)
    dsn = build(resnets.spec_of("dsn"), seed=0)
    initialize_by(dsn, "gaussian:0.05", torch.Generator().manual_seed(0))
    head = next(m for m in dsn.modules() if isinstance(m, Aux)).head.linear1
    assert head.weight.std().item() == pytest.approx((192 * 32 * 32) ** -0.5, rel=0.05)


def test_lsuv_gives_every_layer_unit_variance_from_orthonormal_filters():
    net = build(resnets.spec_of("fitnet4", input_size=16).thin(4), seed=0)
    x = torch.randn(16, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    initialize_by(net, "lsuv", torch.Generator().manual_seed(0), x)
    found = []
    for layer in list_layers(net):
        layer.register_forward_hook(lambda module, inputs, output: found.append(float(output.var())))
    with torch.no_grad():
        net.eval()(x)
    assert len(found) == 19
    assert all(abs(variance - 1) <= 0.02 for variance in found)
    weight = net.rows.conv2.conv1.weight.detach().flatten(1)
    square = weight @ weight.T
    torch.testing.assert_close(square, torch.eye(len(square)) * square[0, 0], atol=1e-4, rtol=1e-4)


def test_max_norm_scales_only_filters_that_are_too_long():
    net = build(SMALL, seed=0)
    before = [layer.weight.detach().clone() for layer in list_layers(net)]
    apply_limits(pair_limits(net, (0.5, 100.0)))
    norms = list_layers(net)[0].weight.flatten(1).norm(dim=1)
    lengths = before[0].flatten(1).norm(dim=1)
    torch.testing.assert_close(norms, lengths.clamp_max(0.5), atol=1e-6, rtol=1e-5)
    for layer, old in list(zip(list_layers(net), before, strict=True))[2:]:
        assert torch.equal(layer.weight, old)
    with pytest.raises(UserError, match="max_norm has 9 numbers, and the network only 6 layers"):
        pair_limits(net, (1.0,) * 9)
    assert len(pair_limits(net, (0.9,))) == 6  # with those of auxiliary heads


# --- rates ------------------------------------------------------------------------------------


def test_rates_and_decays_by_the_kind_of_a_parameter():
    net = build(SMALL, seed=0)
    recipe = recipe_of(
        "highway-paper", lr=1.0, conv_lr=0.1, classifier_lr=0.5, aux_lr=0.01, aux_fade=1e-4, weight_decay=1e-3
    )
    found = {
        name: (round(group["rate"], 6), group["weight_decay"], group.get("fades", False))
        for group in decay_groups(net, recipe)
        for parameter in group["params"]
        for name in [next(n for n, p in net.named_parameters() if p is parameter)]
    }
    assert found["rows.a.conv1.weight"] == (0.1, 1e-3, False)
    assert found["rows.a.conv1.bias"] == (0.2, 0.0, False)
    assert found["rows.row3.linear1.weight"] == (0.5, 1e-2, False)
    assert found["rows.a.aux1.head.linear1.weight"] == (0.01, 1e-2, True)
    assert found["rows.a.aux1.head.linear1.bias"] == (0.02, 0.0, True)
    assert set(found) == {name for name, _ in net.named_parameters()}


def test_schedules_of_other_authors():
    maxout = Schedule(RECIPES["maxout-paper"], 50_000)
    epoch = 50_000 / 128
    assert maxout.lr(round(250 * epoch)) == pytest.approx(0.17 * (1 - 0.99 * 250 / 500), rel=1e-3)
    assert maxout.momentum(0) == 0.5
    assert maxout.momentum(round(125 * epoch)) == pytest.approx(0.575, rel=1e-3)
    assert maxout.momentum(10**6) == pytest.approx(0.65)
    dsn = Schedule(RECIPES["dsn-paper"], 50_000)
    assert [round(dsn.lr(step), 7) for step in (150_000, 150_001, 170_001)] == [0.025, 0.00125, 0.0001]
    assert dsn.fade(10_000) == pytest.approx(2**-0.75)
    fitnet = Schedule(RECIPES["fitnet-paper"], 50_000)
    assert fitnet.distill_weight(0) == 4.0
    assert fitnet.distill_weight(round(250 * epoch)) == pytest.approx(2.5, rel=1e-3)


def test_momentum_and_limits_reach_the_steps(tmp_path, images):
    seen = []

    class Watch(Callback):
        def on_step(self, training):
            seen.append(training.trainer.optimizer.param_groups[0]["momentum"])

    changes = {**SHORT, "max_norm": "0.3", "momentum_ramp": "0.9@4it", "clip_norm": 0.01}
    run = resnets.train(SMALL, images, "maxout-paper", out=tmp_path, callbacks=[Watch()], **changes)
    assert seen == pytest.approx([0.5, 0.6, 0.7, 0.8, 0.9, 0.9])
    for layer in list_layers(run.model):
        assert layer.weight.flatten(1).norm(dim=1).max().item() <= 0.3 + 1e-6


# --- recipes ----------------------------------------------------------------------------------


def test_every_system_has_its_authors_recipe_by_default():
    for name, system in SYSTEMS.items():
        assert system.recipe in RECIPES
        assert default_recipe("cifar10", not system.chain.is_small, False, name)[0] == system.recipe
        assert default_recipe("cifar10", False, True, name)[0] == "finetune"
    assert default_recipe("cifar10", False, False, "resnet20")[0] == "cifar-paper"
    assert default_recipe("pictures", True, False, "nin")[0] == "scratch"


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"init": "gauss:1"}, "init must be gaussian:STD"),
        ({"init": "gaussian"}, "init must be gaussian:STD"),
        ({"init": "xavier:3"}, "init must be gaussian:STD"),
        ({"max_norm": "a"}, "max_norm must look like 0.9,1.9"),
        ({"max_norm": "0"}, "max_norm must look like 0.9,1.9"),
        ({"momentum_ramp": "2@5ep"}, "momentum_ramp must look like 0.65@250ep"),
        ({"momentum_ramp": "0.5@5x"}, "a span of training is written as"),
        ({"momentum_ramp": "0.5@5ep", "optimizer": "Adam"}, "is for sgd"),
        ({"distill": "4-1"}, "distill must look like 4-1@500ep"),
        ({"distill": "4-1@9"}, "a span of training is written as"),
        ({"hint": "a"}, "hint must look like hidden2:conv11"),
        ({"milestones": "5it:x"}, "milestones must look like"),
        ({"milestones": "5it:-1"}, "milestones must look like"),
        ({"aux_length": "5"}, "a span of training is written as"),
        ({"temperature": 0}, "temperature must be above 0"),
        ({"loss": "hnge"}, "did you mean hinge"),
        ({"normalize": "gcnzca"}, "did you mean gcn"),
    ],
)
def test_odd_fields_are_one_sentence(changes, sentence):
    with pytest.raises(UserError) as error:
        recipe_of("cifar-paper", **changes)
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("model", "recipe", "changes", "sentence"),
    [
        (SMALL, "cifar-quick", {}, "muon is for the filters of residual units, and small has none"),
        (SMALL, "cifar-paper", {"whiten": True}, "whiten computes the first filters of residual networks"),
        (SMALL, "cifar-paper", {"memory": "lean"}, "memory lean runs residual units again, and small has none"),
        (SMALL, "cifar-paper", {"engine": "compiled"}, "engine compiled compiles residual units, and small has none"),
        (SMALL, "cifar-paper", {"freeze": 1}, "freeze counts the stages of a residual network, and small has none"),
        (SMALL, "cifar-paper", {"signal_every": 2}, "signal_every measures residual units, and small has none"),
        (SMALL, "cifar-paper", {"teacher": "x"}, "recipe cifar-paper does not learn from a teacher"),
        (SMALL, "fitnet-hints", {}, "recipe fitnet-hints learns from a teacher: name it by --teacher"),
        (SMALL, "fitnet-paper", {}, "recipe fitnet-paper fine-tunes given weights"),
        (SMALL, "maxout-paper", {"max_norm": "1,1,1,1,1,1,1"}, "max_norm has 7 numbers"),
    ],
)
def test_what_only_residual_networks_have_is_refused(tmp_path, images, model, recipe, changes, sentence):
    with pytest.raises(UserError, match=sentence):
        resnets.train(model, images, recipe, out=tmp_path, **{**SHORT, **changes})
    assert not list(tmp_path.glob("*/final.safetensors"))


def test_a_plan_says_that_pytorch_computes_it(tmp_path, images):
    plans = []

    class Watch(Callback):
        def on_start(self, training, plan):
            plans.append(plan)

    resnets.train(SMALL, images, "allcnn-paper", out=tmp_path, callbacks=[Watch()], **SHORT)
    assert "PyTorch alone computes small, as it has no residual units." in plans[0].notices


# --- a teacher --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def teacher(tmp_path_factory, images):
    rows = ("hidden1: conv:8:3 maxout:2 pool:max:2:s2", "hidden2: conv:12:3 maxout:2 pool:max:2:s2:ceil", "linear:K")
    out = tmp_path_factory.mktemp("teacher")
    return resnets.train(
        Chain("teacher", rows, input_size=8), images, "maxout-paper", out=out, max_norm="", init="xavier", **SHORT
    )


STUDENT = Chain(
    "student",
    ("one: conv:8:3 maxout:2", "two: conv:8:3 maxout:2 pool:max:2:s2", "three: conv:8:3 relu", "linear:K"),
    input_size=8,
)
HINTS = {"hint": "hidden2:two", "max_norm": "", "init": "xavier", **SHORT, "iterations": 40}


def test_a_student_learns_in_two_stages(tmp_path, images, teacher):
    hints = resnets.train(STUDENT, images, "fitnet-hints", out=tmp_path, teacher=str(teacher.path), lr=0.05, **HINTS)
    losses = [line["loss"] for line in hints.metrics() if line["kind"] == "train"]
    assert losses[-1] < losses[0]
    student = hints.model
    begins = build(STUDENT, seed=0)
    initialize_by(begins, "xavier", torch.Generator().manual_seed(0))
    assert torch.equal(student.rows.three.conv1.weight, begins.rows.three.conv1.weight)  # behind the hint
    assert not torch.equal(student.rows.two.conv1.weight, begins.rows.two.conv1.weight)
    second = {"teacher": str(teacher.path), "weights": str(hints.path), "max_norm": "", **SHORT}
    run = resnets.train(STUDENT, images, "fitnet-paper", out=tmp_path, **second)
    assert run.identity.teacher and run.identity.weights  # noqa: PT018
    assert run.result["test"]["error"] <= 100


def test_the_hint_is_half_the_squared_distance(tmp_path, images, teacher):
    from resnets.training.classification import Teacher
    from resnets.training.hints import Hints
    from resnets.training.loop import Trainer

    recipe = recipe_of("fitnet-hints", hint="hidden2:two", max_norm="", iterations=3, batch=4)
    net = teacher.model
    trainer = Trainer(Hints(STUDENT, images, teacher=Teacher(net, "x")), recipe, 0)
    x = torch.randn(4, 3, 8, 8)
    with torch.no_grad():
        loss, _ = trainer.task.loss(trainer.net, (x, None))
        wanted = forward_to(net.eval(), "hidden2", x)
        regressor = trainer.net.regressor
        found = regressor(forward_to(trainer.net.student, "two", x))
    assert wanted.shape == found.shape
    assert float(loss) == pytest.approx(float(((found - wanted) ** 2).sum() / 2 / 4), rel=1e-5)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"hint": "hidden9:two"}, "unknown row of teacher 'hidden9'"),
        ({"hint": "hidden2:six"}, "unknown row of student 'six'"),
        ({"hint": "hidden1:row4"}, "smaller than the teacher's"),
        ({"normalize": "gcn"}, r"images normalised by gcn-zca; recipe fitnet-hints needs 10 classes and gcn"),
        ({"teacher": "nowhere.safetensors"}, "there is no file nowhere.safetensors"),
        ({"teacher": "nin"}, "nin is a network without weights"),
    ],
)
def test_a_wrong_teacher_is_refused(tmp_path, images, teacher, changes, sentence):
    given = {**HINTS, "teacher": str(teacher.path), **changes}
    with pytest.raises(UserError, match=sentence):
        resnets.train(STUDENT, images, "fitnet-hints", out=tmp_path, **given)


# --- runs that are stopped --------------------------------------------------------------------


class Stop(Callback):
    def __init__(self, at):
        self.at = at

    def on_checkpoint(self, training, path):
        if training.step >= self.at:
            raise RuntimeError("stopped")


JOBS = {
    "whitened images, hinge, companions, Caffe's dropout": ("dsn-paper", {"normalize": "gcn-zca", "aux_length": "4it"}),
    "momentum ramp and limits": ("maxout-paper", {"max_norm": "0.5", "momentum_ramp": "0.9@5it"}),
    "RMSProp, LSUV": ("lsuv-rmsprop", {"ema": 0.9, "validation": 20}),
    "clipped gradients": ("inception-paper", {"augment": "pad", "jitter": 0.0, "micro_batch": 8, "clip_norm": 0.1}),
}


@pytest.mark.parametrize("name", JOBS)
def test_a_run_that_is_stopped_ends_with_the_same_bytes(tmp_path, images, name):
    recipe, changes = JOBS[name]
    given = {**SHORT, "iterations": 9, "checkpoint_every": 0, **changes}
    whole = resnets.train(SMALL, images, recipe, out=tmp_path / "whole", **given)
    for at in (2, 5):
        with pytest.raises(RuntimeError, match="stopped"):
            resnets.train(SMALL, images, recipe, out=tmp_path / "cut", callbacks=[Stop(at)], **given)
    cut = resnets.train(SMALL, images, recipe, out=tmp_path / "cut", **given)
    assert_same(whole, cut)


def test_hints_that_are_stopped_end_with_the_same_bytes(tmp_path, images, teacher):
    given = {**HINTS, "iterations": 6, "checkpoint_every": 0, "teacher": str(teacher.path)}
    whole = resnets.train(STUDENT, images, "fitnet-hints", out=tmp_path / "whole", **given)
    with pytest.raises(RuntimeError, match="stopped"):
        resnets.train(STUDENT, images, "fitnet-hints", out=tmp_path / "cut", callbacks=[Stop(3)], **given)
    cut = resnets.train(STUDENT, images, "fitnet-hints", out=tmp_path / "cut", **given)
    assert read(whole.weights).tensors.keys() == read(cut.weights).tensors.keys()
    assert_same(whole, cut)


def test_a_run_of_another_teacher_is_another_run(tmp_path, images, teacher):
    one = resnets.train(STUDENT, images, "fitnet-hints", out=tmp_path, teacher=str(teacher.path), **HINTS)
    config = json.loads(one.config_path.read_text())
    assert len(config["run"]["teacher"]) == 64
    assert config["run"]["network"]["kind"] == "chain"


def test_batches_are_whitened_before_they_are_cropped(images):
    recipe = recipe_of("nin-paper", batch=8)
    feed = MemoryBatches(images, recipe, 0, torch.device("cpu"), slice(0, 8))
    x, _ = feed.batch(0)
    assert (x == 0).any()  # the padding, which is zero after whitening
    assert isinstance(feed.normalize, contrast.Contrast)
    assert isinstance(build(SMALL), nn.Module)
