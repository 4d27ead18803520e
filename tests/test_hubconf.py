"""`torch.hub` finds the networks of hubconf.py, without a network connection."""

import subprocess
import sys
from pathlib import Path

import torch

import hubconf
import resnets

ROOT = Path(__file__).parents[1]


def test_every_network_is_an_entry():
    for name in (*resnets.list_models("*"), "load"):
        assert callable(getattr(hubconf, name))
    assert hubconf.resnet50.__doc__.startswith("resnet50; the keywords are those of `resnets.create`")


def test_entries_are_what_create_and_load_give():
    x = torch.randn(1, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    new = torch.hub.load(str(ROOT), "resnet20", source="local", num_classes=7, seed=3).eval()
    assert torch.equal(new(x), resnets.create("resnet20", num_classes=7, seed=3).eval()(x))
    trained = torch.hub.load(str(ROOT), "preresnet20", source="local", pretrained=True).eval()
    expected = resnets.load("preresnet20.cifar10").eval()(x)
    assert torch.equal(trained(x), expected)
    by_name = torch.hub.load(str(ROOT), "load", "preresnet20.cifar10", source="local").eval()
    assert torch.equal(by_name(x), expected)
    chain = torch.hub.load(str(ROOT), "nin", source="local", seed=0).eval()
    assert torch.equal(chain(x), resnets.create("nin", seed=0).eval()(x))


def test_a_clone_that_is_not_installed_works(tmp_path):
    """Without site-packages' link to the package: the entry finds `src` beside it."""
    code = (
        "import sys; sys.meta_path = [f for f in sys.meta_path if 'editable' not in repr(f)];"
        f"sys.path = [p for p in sys.path if not p.endswith('src')]; sys.path.insert(0, {str(ROOT)!r});"
        "import hubconf; print(hubconf.resnet20().spec.name)"
    )
    found = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "resnet20"
