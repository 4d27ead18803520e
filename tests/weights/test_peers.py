"""The same weights give the same numbers as in other libraries, in both directions."""

import pytest
import torch

import peers
import resnets
from resnets.weights.layouts import AKAMASTER, LAYOUTS, TIMM_V2, TORCHVISION, layout_of, recognise
from resnets.weights.networks import to_peer

TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-10}
NETS = {  # library, its name -> ours
    ("timm", "resnet18"): ("resnet18", {}),
    ("timm", "resnet50"): ("resnet50", {}),
    ("timm", "resnetv2_18"): ("preresnet18", {"stem_activation": False}),
    ("timm", "resnetv2_50"): ("preresnet50", {"stem_activation": False}),
    ("torchvision", "resnet34"): ("resnet34", {}),
}


def close(ours, theirs):
    return (ours - theirs).abs().max() <= TOLERANCE[ours.dtype] * theirs.abs().max()


def images(dtype):
    return torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(1)).to(dtype)


@pytest.fixture(scope="module", params=NETS, ids="-".join)
def pair(request, build_peer, tmp_path_factory):
    """Their net, ours filled from its file, and that file; both are changed by the tests, and refilled."""
    name, changes = NETS[request.param]
    theirs = peers.randomize(build_peer(*request.param, num_classes=7))
    ours = resnets.create(name, num_classes=7, **changes)
    path = tmp_path_factory.mktemp("peer") / "weights.pth"
    torch.save(theirs.state_dict(), path)
    yield request.param[0], theirs, ours, path
    path.unlink()


@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("direction", ["theirs into ours", "ours into theirs"])
def test_same_weights_same_numbers(pair, direction, dtype, training):
    """Outputs; in training also the statistics after the step and, in float64, the gradients."""
    library, theirs, ours, path = pair
    theirs.to(dtype).train(training).zero_grad()
    ours.to(dtype).train(training).zero_grad()
    if direction == "theirs into ours":
        theirs.load_state_dict(torch.load(path, weights_only=True))
        report = resnets.load_weights(ours, path, source=library)
        assert (report.source, report.tensors) == (library, len(theirs.state_dict()))
    else:
        peers.randomize(ours, seed=2)
        theirs.load_state_dict(to_peer(ours, library), strict=True)
    out, expected = ours(images(dtype)), theirs(images(dtype))
    assert close(out, expected)
    after, expected_after = to_peer(ours, library), theirs.state_dict()
    assert after.keys() == expected_after.keys()
    for name, tensor in after.items():
        if name.endswith("num_batches_tracked"):
            assert torch.equal(tensor, expected_after[name])
        else:
            assert close(tensor, expected_after[name]), name
    if training and dtype == torch.float64:
        direction_of_loss = torch.randn(out.shape, generator=torch.Generator().manual_seed(3), dtype=dtype)
        (out * direction_of_loss).sum().backward()
        (expected * direction_of_loss).sum().backward()
        names = layout_of(library, ours.spec).names(ours.spec, [name for name, _ in ours.named_parameters()])
        gradients = {name: p.grad for name, p in theirs.named_parameters()}
        assert set(names.values()) == gradients.keys()
        for name, p in ours.named_parameters():
            assert close(p.grad, gradients[names[name]].reshape(p.shape)), name


@pytest.mark.parametrize(("name", "tensors"), [("resnet20-12fca82f", 97), ("resnet56-4bfd9763", 277)])
def test_real_akamaster_files(shared_weights, name, tensors):
    path = shared_weights(f"akamaster_{name}.th")
    net = resnets.create(name.partition("-")[0], resize="pad_both", dtype=torch.float64)
    report = resnets.load_weights(net, path)
    assert (report.source, report.tensors) == ("akamaster", tensors)
    assert (report.wrapper, report.prefix) == ("state_dict", "module.")
    assert str(report) == (
        f"Loaded {tensors} tensors named as in akamaster from under 'state_dict', the prefix 'module.' taken off."
    )
    weights = torch.load(path, weights_only=True, map_location="cpu")["state_dict"]
    weights = {key.removeprefix("module."): tensor.double() for key, tensor in weights.items()}
    x = images(torch.float64)[:, :, :32, :32]
    with torch.no_grad():
        assert close(net.eval()(x), peers.akamaster(weights, x))
    assert all(int(t) == 0 for n, t in net.state_dict().items() if n.endswith("num_batches_tracked"))


@pytest.mark.parametrize("name", ["resnet20-12fca82f", "resnet56-4bfd9763"])
def test_real_akamaster_files_do_not_mean_zeros_after(shared_weights, name):
    path = shared_weights(f"akamaster_{name}.th")
    net = resnets.create(name.partition("-")[0], seed=0)
    before = net.classifier.weight.clone()
    with pytest.raises(resnets.UserError, match=r"means resize='pad_both', and the net has resize='pad'"):
        resnets.load_weights(net, path)
    assert torch.equal(net.classifier.weight, before)


def test_akamaster_weights_of_a_random_net_mean_the_same():
    net = peers.randomize(resnets.create("resnet32", resize="pad_both", dtype=torch.float64)).eval()
    x = images(torch.float64)[:, :, :32, :32]
    with torch.no_grad():
        assert close(net(x), peers.akamaster(to_peer(net, "akamaster"), x))


NAMED = [
    (TORCHVISION, "resnet", (18, 34, 50, 101, 152, 200), {}),
    (TIMM_V2, "preresnet", (18, 34, 50, 101, 152, 200), {"stem_activation": False}),
    (AKAMASTER, "resnet", (20, 32, 44, 56, 110), {"resize": "pad_both"}),
]


@pytest.mark.parametrize(
    ("layout", "name", "changes"),
    [
        pytest.param(layout, f"{family}{depth}", changes, id=f"{family}{depth}")
        for layout, family, depths, changes in NAMED
        for depth in depths
    ],
)
def test_every_tensor_has_one_name_and_the_names_tell_whose_they_are(layout, name, changes):
    net = resnets.create(name, device="meta", **changes)
    layout.require(net.spec, "")
    tensors = net.state_dict()
    names = layout.names(net.spec, tensors)
    assert list(names) == list(tensors)
    assert len(set(names.values())) == len(tensors)
    assert recognise({names[ours]: tensor for ours, tensor in tensors.items()}) is layout
    assert recognise(tensors) is LAYOUTS[0]


@pytest.mark.parametrize(
    ("library", "name", "ours", "changes"),
    [
        ("torchvision", "resnet152", "resnet152", {}),
        ("timm", "resnetv2_101", "preresnet101", {"stem_activation": False}),
    ],
)
def test_deep_nets_have_the_peers_names_and_shapes(build_peer, library, name, ours, changes):
    with torch.device("meta"):
        theirs = build_peer(library, name).state_dict()
    net = resnets.create(ours, device="meta", **changes)
    layout = layout_of(library, net.spec)
    state = net.state_dict()
    names = layout.names(net.spec, state)
    assert {names[n]: layout.shape(n, t.shape) for n, t in state.items()} == {n: t.shape for n, t in theirs.items()}
