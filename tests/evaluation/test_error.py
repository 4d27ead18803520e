"""The error and its interval against published values and a naive loop."""

import math

import pytest
import torch
from torch.nn import functional

import resnets
from resnets.data.augment import Normalize
from resnets.data.synthetic import synthetic
from resnets.evaluation.score import Score
from resnets.evaluation.score import score_images as evaluate

# Newcombe, Statistics in Medicine 17 (1998), table I, method 3: wrong, of, the ends of the interval.
NEWCOMBE = [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)]


@pytest.mark.parametrize(("wrong", "images", "low", "high"), NEWCOMBE)
def test_the_interval_is_wilsons(wrong, images, low, high):
    assert Score(images, wrong, 0.0).interval == pytest.approx((100 * low, 100 * high), abs=0.005)


@pytest.mark.parametrize(("wrong", "images"), [(1, 2), (827, 10_000), (661, 10_000), (9_999, 10_000)])
def test_the_ends_of_the_interval_are_just_not_rejected(wrong, images):
    """At each end the observed share lies z standard errors away, the standard error being that end's own."""
    for end in Score(images, wrong, 0.0).interval:
        p = end / 100
        assert abs(wrong / images - p) == pytest.approx(1.959963984540054 * math.sqrt(p * (1 - p) / images))


def test_all_right_and_all_wrong_end_at_the_ends():
    assert Score(50, 0, 0.0).interval[0] == 0
    assert Score(50, 50, 0.0).interval[1] == 100


def test_a_score_tells_its_error_in_words_and_as_data():
    score = Score(10_000, 827, 0.31)
    assert score.error == pytest.approx(8.27)
    assert str(score) == "error 8.27 % (95 % interval 7.75 to 8.83, 827 of 10000 wrong)"
    assert score.to_dict() == {
        "images": 10_000, "wrong": 827, "loss": 0.31, "error": score.error, "interval": list(score.interval),
    }  # fmt: skip


@pytest.fixture(scope="module")
def trained():
    """A net with BN statistics that are not the initial ones, and 100 images."""
    data = synthetic(400)
    net = resnets.create("preresnet20", blocks=1, widths=(4, 8, 8), seed=0)
    images, labels = torch.from_numpy(data.test_images), torch.from_numpy(data.test_labels)
    normalize = Normalize.of(data)
    with torch.no_grad():
        net.train()(normalize(images))
    return net, images, labels, normalize


@pytest.mark.parametrize("batch", [1, 7, 100, 500])
def test_evaluate_equals_a_loop_over_single_images(trained, batch):
    net, images, labels, normalize = trained
    wrong, loss = 0, 0.0
    net.eval()
    with torch.no_grad():
        for image, label in zip(images, labels, strict=True):
            scores = net(normalize(image[None])).double()[0]
            wrong += int(scores.argmax() != label)
            loss -= float(torch.log(scores.exp() / scores.exp().sum())[label])
    score = evaluate(net, images, labels, normalize, batch=batch)
    assert (score.images, score.wrong) == (100, wrong)
    assert score.loss == pytest.approx(loss / 100, rel=1e-5)
    assert score.confusion.sum() == 100
    assert score.confusion.trace() == 100 - wrong
    assert len(score.mistakes) == wrong
    assert sum(c.wrong for c in score.per_class) == wrong


@pytest.mark.parametrize("training", [True, False])
def test_evaluate_leaves_the_net_as_it_was(trained, training):
    net, images, labels, normalize = trained
    net.train(training)
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    evaluate(net, images, labels, normalize)
    assert all(module.training is training for module in net.modules())
    assert all(torch.equal(before[name], tensor) for name, tensor in net.state_dict().items())
    assert all(parameter.grad is None for parameter in net.parameters())


def test_evaluate_restores_the_mode_after_a_failure(trained):
    net, images, labels, normalize = trained
    net.train()
    with pytest.raises(ValueError, match="batch_size"):
        evaluate(net, images, labels[:10], normalize)
    assert net.training


def test_evaluate_of_a_net_that_knows_the_answers_is_without_error(trained):
    _, images, labels, normalize = trained

    class Oracle(torch.nn.Module):
        def forward(self, x):
            return functional.one_hot(labels[: len(x)], 10) * 100.0

    score = evaluate(Oracle(), images, labels, normalize)
    assert (score.wrong, score.error) == (0, 0.0)
    assert score.loss == pytest.approx(0, abs=1e-6)
