"""Steps of the trainer against the same training written out slowly in float64."""

import dataclasses
import math

import numpy as np
import pytest
import tiny
import torch

from resnets.counter_rng import order
from resnets.data import load
from resnets.data.augment import Augment, Normalize
from resnets.data.synthetic import synthetic
from resnets.errors import UserError
from resnets.nn import build
from resnets.recipe import Recipe, recipe_of
from resnets.training.distributed import Workers
from resnets.training.loop import NotFiniteError, Part
from resnets.zoo import spec_of

SPEC = spec_of("preresnet20", blocks=1, widths=(4, 8, 8))
PLAIN = Recipe("test", length="30it", batch=40, lr=0.05, schedule="constant", milestones="", warmup="0it")
SEED = 3


def recipe(**changes):
    return dataclasses.replace(PLAIN, **changes)


class Reference:
    """Image by image, micro-batch by micro-batch, the update by its formula; nothing but autograd is borrowed."""

    def __init__(self, spec, data, recipe, seed):
        self.data, self.recipe, self.seed = data, recipe, seed
        self.net = build(spec, seed=seed).double().train()
        self.velocity = {}
        self.augment = Augment(Normalize.of(data, recipe.normalize), seed, recipe.pad, recipe.flip)

    def batch(self, step):
        n = len(self.data.train_labels)
        images, labels = [], []
        for place in range(step * self.recipe.batch, (step + 1) * self.recipe.batch):
            epoch, within = divmod(place, n)
            index = torch.tensor([order(n, self.seed, epoch)[within]])
            image = torch.from_numpy(self.data.train_images[index.numpy()])
            images.append(self.augment(image, index, epoch).double())
            labels.append(int(self.data.train_labels[index]))
        return torch.cat(images), torch.tensor(labels)

    def loss(self, scores, labels):
        logs = scores - scores.logsumexp(1, keepdim=True)
        smooth = self.recipe.label_smoothing
        right = logs[torch.arange(len(labels)), labels]
        return -((1 - smooth) * right + smooth * logs.mean(1))

    def step(self, step):
        images, labels = self.batch(step)
        size = self.recipe.micro_batch or self.recipe.batch
        grads = {name: torch.zeros_like(p) for name, p in self.net.named_parameters()}
        total, wrong = 0.0, 0
        for start in range(0, len(labels), size):
            y = labels[start : start + size]
            scores = self.net(images[start : start + size])
            loss = self.loss(scores, y).sum() / self.recipe.batch
            parts = torch.autograd.grad(loss, list(self.net.parameters()))
            grads = {name: grad + part for (name, grad), part in zip(grads.items(), parts, strict=True)}
            total += loss.item()
            wrong += int((scores.argmax(1) != y).sum())
        with torch.no_grad():
            for name, parameter in self.net.named_parameters():
                self.update(name, parameter, grads[name])
        return total, wrong / len(labels)

    def update(self, name, parameter, grad):
        r = self.recipe
        if r.decay_on == "all" or parameter.dim() > 1:
            grad = grad + r.weight_decay * parameter
        v = self.velocity[name] = r.momentum * self.velocity.get(name, 0) + grad
        parameter -= r.lr * (grad + r.momentum * v if r.nesterov else v)


def double(trainer):
    """The trainer in float64 too, where no rounding moves an activation over the kink of a ReLU."""
    trainer.net.double()
    batch = trainer.task.batch

    def doubled(step):
        x, y = batch(step)
        return x.double(), y

    trainer.task.batch = doubled
    return trainer


def distance(trainer, reference, spec=SPEC):
    """How far the weights and BN's statistics are from the reference's, as a share of the way they went."""

    def flat(net):
        return torch.cat([tensor.double().flatten() for tensor in net.state_dict().values()])

    now, expected, began = (flat(net) for net in (trainer.net, reference.net, build(spec, seed=SEED)))
    return float((now - expected).norm() / (expected - began).norm())


CASES = {
    "momentum": {},
    "no momentum": {"momentum": 0.0},
    "Nesterov": {"nesterov": True},
    "much decay on all": {"weight_decay": 0.1},
    "much decay on weights": {"weight_decay": 0.1, "decay_on": "weights"},
    "label smoothing": {"label_smoothing": 0.2},
    "micro-batches of 16, 16 and 8": {"micro_batch": 16},
    "micro-batches with smoothing and Nesterov": {"micro_batch": 10, "label_smoothing": 0.1, "nesterov": True},
    "mean image, alternate flips, no crops": {"normalize": "pixel", "flip": "alternate", "pad": 0},
    "contiguous layout": {"channels_last": False},
    "batches over the end of the epoch": {"batch": 100},
}


@pytest.mark.parametrize("changes", CASES.values(), ids=CASES.keys())
def test_steps_equal_the_slow_reference(images, changes):
    chosen = recipe(**changes)
    trainer, reference = double(tiny.trainer_of(SPEC, images, chosen, SEED)), Reference(SPEC, images, chosen, SEED)
    for step in range(3):
        trainer.step(step)
        loss, wrong = reference.step(step)
        means = trainer.means(step, step)
        assert means["loss"] == pytest.approx(loss, rel=1e-6)
        assert means["error"] == pytest.approx(100 * wrong)
    assert distance(trainer, reference) < 1e-8


@pytest.mark.parametrize("channels_last", [True, False])
def test_steps_in_float32_equal_the_slow_reference_to_within_rounding(images, channels_last):
    chosen = recipe(channels_last=channels_last)
    trainer, reference = tiny.trainer_of(SPEC, images, chosen, SEED), Reference(SPEC, images, chosen, SEED)
    for step in range(3):
        trainer.step(step)
        reference.step(step)
    assert distance(trainer, reference) < 0.02


def test_batches_of_more_than_an_epoch_equal_the_slow_reference():
    few, chosen = synthetic(40), recipe(batch=100)
    trainer, reference = double(tiny.trainer_of(SPEC, few, chosen, SEED)), Reference(SPEC, few, chosen, SEED)
    for step in range(2):
        trainer.step(step)
        assert trainer.means(step, step)["loss"] == pytest.approx(reference.step(step)[0], rel=1e-6)
    assert distance(trainer, reference) < 1e-8


@pytest.mark.parametrize("network", ["resnet20", "plain20"])
def test_other_networks_equal_the_slow_reference_too(images, network):
    spec = spec_of(network, blocks=1, widths=(4, 8, 8))
    trainer, reference = double(tiny.trainer_of(spec, images, PLAIN, SEED)), Reference(spec, images, PLAIN, SEED)
    for step in range(2):
        trainer.step(step)
        reference.step(step)
    assert distance(trainer, reference, spec) < 1e-8


def test_the_rate_of_a_step_is_the_schedules(images):
    chosen = recipe(schedule="multistep", warmup="1it", warmup_lr=0.01, milestones="2it")
    trainer, reference = double(tiny.trainer_of(SPEC, images, chosen, SEED)), Reference(SPEC, images, chosen, SEED)
    for step, lr in enumerate((0.01, 0.05, 0.005)):
        trainer.step(step)
        reference.recipe = dataclasses.replace(chosen, lr=lr)
        reference.step(step)
    assert distance(trainer, reference) < 1e-8


def test_sizes_scale_the_images_of_their_steps(images):
    trainer = tiny.trainer_of(SPEC, images, recipe(length="4it", sizes="16@0,24@0.5"), SEED)
    sides = [trainer.task.batch(step)[0].shape[-1] for step in range(4)]
    assert sides == [16, 16, 24, 24]


def test_the_average_is_that_of_weights_and_statistics_with_fewer_steps_at_the_start(images):
    trainer = tiny.trainer_of(SPEC, images, recipe(ema=0.3), SEED)
    expected = {name: tensor.double() for name, tensor in build(SPEC, seed=SEED).state_dict().items()}
    for step in range(5):
        trainer.step(step)
        decay = min(0.3, (1 + step) / (10 + step))
        for name, now in trainer.net.state_dict().items():
            expected[name] = decay * expected[name] + (1 - decay) * now.double()
            if name.endswith("num_batches_tracked"):
                expected[name] = now.double()
    assert [min(0.3, (1 + s) / (10 + s)) for s in range(5)] == pytest.approx([0.1, 2 / 11, 3 / 12, 0.3, 0.3], abs=0.01)
    for name, tensor in trainer.average.state_dict().items():
        torch.testing.assert_close(tensor.double(), expected[name], rtol=1e-5, atol=1e-6)
    assert trainer.final_net is trainer.average


def test_the_average_does_not_touch_the_training(images):
    with_average, without = (tiny.trainer_of(SPEC, images, recipe(ema=ema), SEED) for ema in (0.9, 0.0))
    for step in range(3):
        with_average.step(step)
        without.step(step)
    one, other = with_average.net.state_dict(), without.net.state_dict()
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert without.final_net is without.net


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_a_step_in_half_precision_is_near_the_one_in_float32(images, precision):
    half, full = (tiny.trainer_of(SPEC, images, recipe(precision=p), SEED) for p in (precision, "float32"))
    seen = []
    half.net.stem.conv.register_forward_hook(lambda module, inputs, out: seen.append(out.dtype))
    for trainer in (half, full):
        trainer.step(0)
    assert seen == [torch.bfloat16 if precision == "bf16" else torch.float16]
    assert {p.dtype for p in half.net.parameters()} == {torch.float32}
    assert half.means(0, 0)["loss"] == pytest.approx(full.means(0, 0)["loss"], rel=0.02)
    moved = math.dist(*(torch.cat([p.detach().flatten() for p in t.net.parameters()]) for t in (half, full)))
    start = build(SPEC, seed=SEED)
    whole = math.dist(*(torch.cat([p.detach().flatten() for p in n.parameters()]) for n in (start, full.net)))
    assert moved < 0.1 * whole


def test_the_noise_of_a_dropout_shortcut_depends_on_seed_step_and_part_alone(images):
    spec = spec_of("resnet20", blocks=1, widths=(4, 8, 8), shortcut="dropout")

    def after(seed, disturb):
        trainer = tiny.trainer_of(spec, images, recipe(micro_batch=20), seed)
        torch.manual_seed(disturb)
        trainer.step(0)
        return trainer.net.classifier.weight.detach().clone()

    assert torch.equal(after(0, disturb=1), after(0, disturb=2))
    assert not torch.equal(after(0, disturb=1), after(1, disturb=1))
    trainer = tiny.trainer_of(spec, images, PLAIN, 0)
    assert len({trainer._noise(step, Part(0, i, 8)) for step in range(10) for i in range(10)}) == 100


def test_processes_draw_noise_of_their_own(images):
    trainer = tiny.trainer_of(SPEC, images, PLAIN, 0)
    noises = {trainer._noise(s, Part(rank, i, 8)) for rank in range(4) for s in range(5) for i in range(3)}
    assert len(noises) == 4 * 5 * 3


# --- what is kept -----------------------------------------------------------------------------

KEPT = {
    "plain": {},
    "average": {"ema": 0.9},
    "no momentum": {"momentum": 0.0},
    "scaled gradients": {"precision": "fp16"},
    "contiguous": {"channels_last": False},
}


@pytest.mark.parametrize("changes", KEPT.values(), ids=KEPT.keys())
def test_a_new_trainer_goes_on_from_the_state_bit_by_bit(images, changes):
    first = tiny.trainer_of(SPEC, images, recipe(**changes), SEED)
    for step in range(3):
        first.step(step)
    second = tiny.trainer_of(SPEC, images, recipe(**changes), SEED)
    second.load(first.state())
    for step in range(3, 6):
        for trainer in (first, second):
            trainer.step(step)
    one, other = first.state(), second.state()
    assert one.keys() == other.keys()
    for name in one:
        assert torch.equal(one[name], other[name]), name


def test_the_state_does_not_change_with_later_steps(images):
    trainer = tiny.trainer_of(SPEC, images, PLAIN, SEED)
    trainer.step(0)
    kept = trainer.state()
    copies = {name: tensor.clone() for name, tensor in kept.items()}
    trainer.step(1)
    assert all(torch.equal(kept[name], copies[name]) for name in kept)


# --- means, scores, precise BN ----------------------------------------------------------------


def test_means_are_over_the_steps_of_one_epoch(images):
    trainer = tiny.trainer_of(SPEC, images, PLAIN, SEED)  # 6.4 batches an epoch
    single = []
    for step in range(10):
        trainer.step(step)
        single.append(trainer.means(step, step))
    assert trainer.stream.first(1) == 7
    assert trainer.means(7, 9)["loss"] == pytest.approx(np.mean([m["loss"] for m in single[7:10]]))
    assert trainer.means(7, 9)["error"] == pytest.approx(np.mean([m["error"] for m in single[7:10]]))


def test_a_loss_that_is_not_finite_is_named_with_its_step_and_rate(images):
    trainer = tiny.trainer_of(SPEC, images, PLAIN, SEED)
    for step in range(3):
        trainer.step(step)
    trainer.record[1, 0] = math.nan
    with pytest.raises(NotFiniteError, match=r"the loss is not finite in step 1 \(learning rate 0\.05\)"):
        trainer.means(0, 2)
    assert math.isfinite(trainer.means(2, 2)["loss"])
    with pytest.raises(NotFiniteError, match="step 1"):
        trainer.check(2)


@pytest.mark.parametrize("name", ["stem.act.bn.running_var", "units.1.residual.conv1.weight", "classifier.bias"])
def test_weights_and_statistics_that_are_not_finite_are_found_too(images, name):
    trainer = tiny.trainer_of(SPEC, images, PLAIN, SEED)
    trainer.step(0)
    trainer.check(0)
    state = trainer.net.state_dict()
    assert name in state, sorted(state)
    state[name].fill_(math.inf)
    with pytest.raises(NotFiniteError, match=rf"{name} is not finite in step 0"):
        trainer.check(0)


@pytest.mark.parametrize(("asked", "seen"), [(10, 10), (40, 40), (100, 80), (10_000, 240)])
def test_precise_bn_sees_as_many_images_as_asked_in_whole_batches(images, monkeypatch, asked, seen):
    trainer = tiny.trainer_of(SPEC, images, recipe(precise_bn=asked), SEED)
    given = []
    monkeypatch.setattr("resnets.training.classification.precise_bn", lambda net, batches: given.extend(batches))
    trainer.finish()
    assert sum(map(len, given)) == seen
    expected = Normalize.of(images)(torch.from_numpy(images.train_images[:seen]))
    torch.testing.assert_close(torch.cat(given), expected)


def test_the_validation_images_are_never_trained_on(images):
    trainer = tiny.trainer_of(SPEC, images, recipe(validation=56), SEED)
    held = {image.tobytes() for image in trainer.task.feed.splits["validation"][0]}
    trained = {image.numpy().tobytes() for image in trainer.task.feed.images}
    assert (len(held), len(trained)) == (56, 200)
    assert not held & trained
    again = tiny.trainer_of(SPEC, images, recipe(validation=56), SEED + 1)
    assert np.array_equal(again.task.feed.held, trainer.task.feed.held)  # one set for all seeds


def test_a_batch_smaller_than_the_processes_is_refused(images):
    with pytest.raises(UserError, match=r"a batch of 2 cannot be split over 3 processes\."):
        tiny.trainer_of(SPEC, images, recipe(batch=2), SEED, workers=Workers(0, 3))


def test_mirrored_scores_are_the_mean_of_each_image_and_its_mirror_image(tmp_path):
    """As a second number: the first stays what it is without."""
    spec, data = spec_of("preresnet20", **tiny.NETWORK), load("synthetic:64", None)
    found = {}
    for mirror in (False, True):
        trainer = tiny.trainer_of(spec, data, recipe_of("cifar-paper", mirror=mirror), 0)
        found[mirror] = trainer.score("test")
    mirrored = found[True].pop("mirrored")
    assert found[True] == found[False]
    x = Normalize.of(data)(torch.from_numpy(data.test_images))
    net = trainer.net.eval()
    with torch.no_grad():
        out = (net(x) + net(x.flip(3))) / 2
    labels = torch.from_numpy(data.test_labels)
    assert mirrored["wrong"] == int((out.argmax(1) != labels).sum())
    assert mirrored["loss"] == pytest.approx(float(torch.nn.functional.cross_entropy(out, labels)), rel=1e-4)
    assert mirrored["images"] == len(labels)
