"""The fields that `cifar-quick` and `cifar-94` brought: whitened first filters, scores of mirrored and moved images."""

import numpy as np
import pytest
import tiny
import torch
from autoencoder import Redraw
from torch import nn

import resnets
from resnets.cli import main
from resnets.data.augment import Normalize
from resnets.errors import UserError
from resnets.nn.whitening import whiten
from resnets.recipe import recipe_of


def correlated(n: int = 60, side: int = 12) -> torch.Tensor:
    """Images whose neighbouring pixels and channels are alike, and not of mean 0."""
    noise = torch.randn(n, 3, side, side, generator=torch.Generator().manual_seed(0))
    return nn.functional.avg_pool2d(noise, 3, 1, 1) + noise.mean(1, keepdim=True) + 0.1 * noise + 0.5


def patches_of(x: torch.Tensor, size: int) -> np.ndarray:
    """All patches, one after the other, as rows."""
    rows = [
        x[:, :, i : i + size, j : j + size].flatten(1)
        for i in range(x.shape[2] - size + 1)
        for j in range(x.shape[3] - size + 1)
    ]
    return torch.cat(rows).double().numpy()


@pytest.mark.parametrize(("width", "size"), [(16, 3), (54, 3), (7, 3), (60, 3), (24, 5)])
def test_what_the_filters_see_is_uncorrelated_and_of_variance_1(width, size):
    x = correlated()
    conv = nn.Conv2d(3, width, size, padding=size // 2, bias=False)
    before = conv.weight.detach().clone()
    whiten(conv, x.split(25))
    half = min(width // 2, 3 * size**2)
    filters = conv.weight.detach().flatten(1).double().numpy()
    seen = patches_of(x, size) @ filters[:half].T
    assert np.allclose(seen.T @ seen / len(seen), np.eye(half), atol=0.05)
    assert np.array_equal(filters[half : 2 * half], -filters[:half])
    assert torch.equal(conv.weight[2 * half :], before[2 * half :])
    assert not conv.weight.requires_grad


def test_the_directions_of_largest_variance_come_first():
    x = correlated()
    conv = nn.Conv2d(3, 16, 3, padding=1, bias=False)
    whiten(conv, [x])
    patches = patches_of(x, 3)
    variances = np.linalg.eigvalsh(patches.T @ patches / len(patches))[::-1]
    lengths = conv.weight.detach().flatten(1).norm(dim=1).double().numpy()[:8]
    assert np.allclose(lengths, 1 / np.sqrt(variances[:8] + 5e-4), rtol=1e-4)


def test_the_order_of_images_at_once_and_threads_change_nothing_that_counts():
    x, found = correlated(), []
    for at_once, threads in ((60, 1), (10, 1), (10, 2)):
        conv, kept = nn.Conv2d(3, 16, 3, bias=False), torch.get_num_threads()
        torch.set_num_threads(threads)
        whiten(conv, x.split(at_once))
        torch.set_num_threads(kept)
        found.append(conv.weight)
    assert torch.allclose(found[0], found[1], atol=1e-5)
    assert torch.equal(found[1], found[2])


def test_a_training_keeps_the_filters_and_trains_the_rest(tmp_path):
    run = tiny.train_tiny(tmp_path / "whitened", whiten=True)
    data = resnets.data.load(tiny.OPTIONS["data"], None)
    trainer = tiny.trainer_of(run.identity.network, data, run.identity.recipe, run.identity.seed)
    first, last = trainer.net.state_dict(), tiny.weights(run)
    changed = {name for name, tensor in last.items() if not torch.equal(tensor, first[name].cpu())}
    assert "stem.conv.weight" not in changed
    trained = {name for name, parameter in trainer.net.named_parameters() if parameter.requires_grad}
    assert trained <= changed
    usual = tiny.weights(tiny.train_tiny(tmp_path / "usual"))
    assert not torch.equal(last["stem.conv.weight"], usual["stem.conv.weight"])


def test_only_new_networks_are_whitened(tmp_path):
    run = tiny.train_tiny(tmp_path / "first")
    with pytest.raises(UserError, match=r"recipe .* computes the first filters .* whiten=False or --no-whiten"):
        tiny.train_tiny(tmp_path / "second", weights=str(run.path), whiten=True)
    with pytest.raises(UserError, match="computes the first filters of a new network"):
        resnets.train(run.model, data="synthetic:64", recipe="cifar-paper", whiten=True, out=tmp_path / "second")
    with pytest.raises(UserError, match="computes the first filters of a new network"):
        resnets.train(Redraw(), recipe="cifar-paper", whiten=True, out=tmp_path / "second")
    assert not (tmp_path / "second").exists()


def test_a_training_prints_both_numbers_and_says_which_is_which(tmp_path, capsys):
    words = "train preresnet20 --blocks 1 --widths 4,8,8 --data synthetic:64 --length 2it --batch 8"
    assert main([*words.split(), "--quiet", "--mirror", "--shift", "1", "--out", str(tmp_path)]) == 0
    one, mirrored, shifted, *_ = capsys.readouterr().out.splitlines()
    assert "2 iterations: test error" in one
    assert mirrored.startswith("the mean of each image and its mirror image: test error ")
    assert shifted.startswith("with these also moved both ways: test error ")


def test_eval_measures_the_mirrored_score_again(tmp_path, capsys):
    run = tiny.train_tiny(tmp_path, mirror=True)
    expected, score = run.result["test"], resnets.evaluate(run.path, mirror=True)
    assert (score.wrong, score.images) == (expected["mirrored"]["wrong"], expected["images"])
    assert score.loss == pytest.approx(expected["mirrored"]["loss"], rel=1e-4)
    assert score.context["views"] == "whole images and their mirror images"
    assert resnets.evaluate(run.path).wrong == expected["wrong"]
    with pytest.raises(UserError, match="--mirror goes with one network and whole images"):
        resnets.evaluate([run.path, run.path], mirror=True)


@pytest.mark.parametrize("mirror", [False, True])
def test_scores_of_images_that_are_moved(tmp_path, mirror):
    run = tiny.train_tiny(tmp_path, mirror=mirror, shift=2)
    expected, score = run.result["test"]["shifted"], resnets.evaluate(run.path, mirror=mirror, shift=2)
    assert score.wrong == expected["wrong"]
    assert score.loss == pytest.approx(expected["loss"], rel=1e-4)
    assert score.context["views"].endswith(", in place and moved by 2 pixels both ways")
    data = resnets.data.load(tiny.OPTIONS["data"], None)
    net = resnets.load(run.path).eval()
    x = Normalize.of(data)(torch.from_numpy(data.test_images)).numpy()
    rim = np.pad(x, ((0, 0), (0, 0), (2, 2), (2, 2)), mode="reflect")
    out = torch.zeros(len(x), data.num_classes)
    for weight, (top, left) in ((0.5, (2, 2)), (0.25, (0, 0)), (0.25, (4, 4))):
        view = rim[:, :, top : top + x.shape[2], left : left + x.shape[3]]
        for each in (view, view[:, :, :, ::-1]) if mirror else (view,):
            with torch.no_grad():
                out += weight / (1 + mirror) * net(torch.from_numpy(each.copy()))
    labels = torch.from_numpy(data.test_labels)
    assert expected["loss"] == pytest.approx(float(torch.nn.functional.cross_entropy(out, labels)), rel=1e-4)


def test_images_cannot_be_moved_out_of_sight(tmp_path):
    with pytest.raises(UserError, match="a shift of 32 would move images of 32 pixels out of sight: give less than 32"):
        tiny.train_tiny(tmp_path, shift=32)
    run = tiny.train_tiny(tmp_path)
    with pytest.raises(UserError, match="give less than 32"):
        resnets.evaluate(run.path, shift=40)
    with pytest.raises(UserError, match="--shift goes with one network and whole images"):
        resnets.evaluate([run.path, run.path], shift=1)


def test_recipes_without_them_keep_their_names():
    assert not {"whiten", "mirror", "shift"} & set(recipe_of("cifar-paper").to_dict())
    assert recipe_of("cifar-paper", whiten=True).to_dict()["whiten"] is True
