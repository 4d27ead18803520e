"""Optimizers of torch.optim by name: the same steps as torch's own, and bit-exact resumption."""

import pytest
import tiny
import torch

from resnets.errors import UserError
from resnets.nn import build
from resnets.recipe import Recipe, recipe_of
from resnets.training.optimizers import _classes, resolve_optimizer
from resnets.zoo import spec_of

SPEC = spec_of("preresnet20", blocks=1, widths=(4, 8, 8))
PLAIN = Recipe("test", length="30it", batch=40, lr=0.01, schedule="constant", milestones="", warmup="0it")


@pytest.mark.parametrize("name", sorted(_classes()))
def test_every_optimizer_resumes_bit_by_bit(images, name):
    decay = 0.0 if name == "Rprop" else 1e-3
    recipe = resolve_optimizer(recipe_of(PLAIN, optimizer=name, weight_decay=decay, decay_on="weights"))
    first, second = (tiny.trainer_of(SPEC, images, recipe, 0) for _ in range(2))
    for step in range(3):
        first.step(step)
    state = first.state()
    assert second.fits(state)
    second.load(state)
    for step in range(3, 6):
        for trainer in (first, second):
            trainer.step(step)
    one, other = first.state(), second.state()
    assert one.keys() == other.keys()
    for key in one:
        assert torch.equal(one[key], other[key]), key
    began = build(SPEC, seed=0).state_dict()
    assert not torch.equal(one["net.classifier.weight"], began["classifier.weight"])


def test_adamw_takes_its_options_rates_and_groups(images):
    options = {"optimizer": "adamw", "optimizer_options": {"betas": (0.8, 0.95), "eps": 1e-6, "amsgrad": True}}
    recipe = resolve_optimizer(recipe_of(PLAIN, **options, weight_decay=0.1, decay_on="weights"))
    assert (recipe.optimizer, recipe.optimizer_options) == ("AdamW", "betas=0.8,0.95,eps=1e-06,amsgrad=true")
    trainer = tiny.trainer_of(SPEC, images, recipe, 0)
    assert isinstance(trainer.optimizer, torch.optim.AdamW)
    decayed, free = trainer.optimizer.param_groups
    assert (decayed["weight_decay"], free["weight_decay"]) == (0.1, 0.0)
    assert {group["betas"] for group in (decayed, free)} == {(0.8, 0.95)}
    assert (free["eps"], free["amsgrad"]) == (1e-6, True)
    assert min(p.dim() for p in decayed["params"]) > 1 >= max(p.dim() for p in free["params"])

    net = build(SPEC, seed=0).to(memory_format=torch.channels_last).train()
    groups = [[p for p in net.parameters() if (p.dim() > 1) is many] for many in (True, False)]
    own = torch.optim.AdamW(
        [{"params": groups[0], "weight_decay": 0.1}, {"params": groups[1], "weight_decay": 0.0}],
        lr=0.01, betas=(0.8, 0.95), eps=1e-6, amsgrad=True,
    )  # fmt: skip
    plain = tiny.trainer_of(SPEC, images, recipe, 0, engine="plain")
    for step in range(3):
        plain.step(step)
        x, y = plain.task.batch(step)
        own.zero_grad()
        torch.nn.functional.cross_entropy(net(x), y).backward()
        own.step()
    for now, expected in zip(plain.net.parameters(), net.parameters(), strict=True):
        assert torch.equal(now, expected)


REFUSED = {
    "unknown optimizer 'AdmW': did you mean AdamW": {"optimizer": "AdmW"},
    "unknown optimizer 'LBFGS'": {"optimizer": "LBFGS"},
    "unknown option of AdamW 'beta': did you mean betas": {"optimizer": "AdamW", "optimizer_options": "beta=0.9"},
    "unknown option of AdamW 'lr'": {"optimizer": "AdamW", "optimizer_options": "lr=0.9"},
    "Rprop has no weight decay": {"optimizer": "Rprop"},
    r"AdamW refuses its options \(Invalid beta parameter at index 0: 2.0\)": {
        "optimizer": "AdamW",
        "optimizer_options": "betas=2.0,0.9",
    },
}


@pytest.mark.parametrize("words", REFUSED)
def test_mistakes_are_refused_and_leave_nothing_behind(tmp_path, words):
    with pytest.raises(UserError, match=words):
        tiny.train_tiny(tmp_path, **REFUSED[words])
    assert not list(tmp_path.glob("*/config.json"))


def test_a_run_with_adamw_that_is_cut_ends_with_the_same_bytes(tmp_path, monkeypatch):
    options = {"optimizer": "AdamW", "lr": 0.01, "optimizer_options": "betas=0.9,0.95", "checkpoint_every": 0}
    with monkeypatch.context() as patch:
        step = tiny.Trainer.step

        def cut(self, i):
            if i == 7:
                raise ZeroDivisionError
            step(self, i)

        patch.setattr(tiny.Trainer, "step", cut)
        with pytest.raises(ZeroDivisionError):
            tiny.train_tiny(tmp_path / "cut", **options)
    tiny.assert_same(tiny.train_tiny(tmp_path / "cut", **options), tiny.train_tiny(tmp_path / "whole", **options))
