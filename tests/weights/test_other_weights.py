"""Other systems beside other libraries: equal scores from their weights, and refusals of what is another network."""

import os
from collections import Counter
from pathlib import Path

import pytest
import torch

import resnets
from peers import randomize
from resnets import UserError
from resnets.chain import Bn, Conv, Drop, Linear, Lrn, Mix, Pool, Relu, named_words
from resnets.weights.networks import to_peer

PEERS = [
    ("torchvision", "vgg16", {}, "vgg16"),
    ("timm", "vgg16", {}, "vgg16"),
    ("torchvision", "vgg19", {}, "vgg19"),
    ("torchvision", "inception_v3", {"aux_logits": True, "init_weights": False}, "inception_v3"),
    ("timm", "inception_v3", {}, "inception_v3"),
    ("timm", "inception_resnet_v2", {}, "inception_resnet_v2"),
    ("torchvision", "googlenet", {"aux_logits": True, "init_weights": False}, "googlenet_bn"),
]


@pytest.mark.parametrize(("library", "name", "options", "ours"), PEERS)
def test_scores_are_the_peers_and_weights_go_both_ways(build_peer, tmp_path, library, name, options, ours):
    peer = randomize(build_peer(library, name, num_classes=7, **options)).eval()
    torch.save(peer.state_dict(), tmp_path / "theirs.pth")
    net = resnets.load(tmp_path / "theirs.pth").eval()
    assert (net.spec.name, net.spec.num_classes) == (ours, 7)
    assert net.spec.aux or "aux_logits" not in options
    side = net.spec.input_size
    x = torch.randn(2, 3, side, side, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        wanted, found = peer(x), net(x)
    assert float((found - wanted).abs().max() / wanted.abs().max()) < 1e-4
    theirs, state = to_peer(net, library), peer.state_dict()
    assert set(theirs) == set(state)
    assert all(torch.equal(theirs[key], state[key]) for key in state)


def test_auxiliary_scores_are_the_peers(build_peer, tmp_path):
    for name, ours in (("inception_v3", "inception_v3"), ("googlenet", "googlenet_bn")):
        peer = randomize(build_peer("torchvision", name, aux_logits=True, init_weights=False)).train()
        torch.save(peer.state_dict(), tmp_path / "theirs.pth")
        net = resnets.load(tmp_path / "theirs.pth").train()
        assert net.spec.name == ours
        for module in (*peer.modules(), *net.modules()):
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0
        x = torch.randn(2, 3, net.spec.input_size, net.spec.input_size)
        with torch.no_grad():
            scores, heads = net(x, aux=True)
            given = peer(x)
        auxiliary = [given.aux_logits] if name == "inception_v3" else [given.aux_logits1, given.aux_logits2]
        torch.testing.assert_close(scores, given.logits, rtol=1e-3, atol=1e-3)
        for (_, found), wanted in zip(heads, auxiliary, strict=True):
            torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-3)


def test_torchvisions_googlenet_is_refused_under_the_papers_name(build_peer, tmp_path):
    peer = build_peer("torchvision", "googlenet", aux_logits=False, init_weights=False)
    torch.save(peer.state_dict(), tmp_path / "googlenet.pth")
    with pytest.raises(UserError, match=r"torchvision's googlenet, and googlenet is another network.*googlenet_bn"):
        resnets.load(tmp_path / "googlenet.pth", network="googlenet")
    with pytest.raises(UserError, match=r"torchvision's googlenet, and googlenet is another network"):
        resnets.load_weights(resnets.create("googlenet"), tmp_path / "googlenet.pth")
    assert not resnets.load(tmp_path / "googlenet.pth", network="googlenet_bn").spec.aux


@pytest.mark.parametrize(
    ("library", "name", "sentence"),
    [
        ("torchvision", "vgg11", "of 8 convolutions, which resnets does not build; it builds vgg16, vgg19"),
        ("torchvision", "vgg16_bn", "does not fit vgg16: .*unexpected"),
        ("torchvision", "alexnet", "of 5 convolutions"),
    ],
)
def test_another_network_of_the_same_names_is_refused(build_peer, tmp_path, library, name, sentence):
    with torch.device("meta"):
        shapes = build_peer(library, name).state_dict()
    torch.save({key: torch.zeros(tensor.shape) for key, tensor in shapes.items()}, tmp_path / "x.pth")
    with pytest.raises(UserError, match=sentence):
        resnets.load(tmp_path / "x.pth")


def test_weights_of_a_residual_network_are_refused(tmp_path):
    resnets.save_weights(resnets.create("resnet18", num_classes=3), tmp_path / "r.safetensors", format="torchvision")
    with pytest.raises(UserError, match="vgg16 has no residual units"):
        resnets.load_weights(resnets.create("vgg16"), tmp_path / "r.safetensors")
    resnets.save_weights(resnets.create("resnet20"), tmp_path / "ours.safetensors")
    with pytest.raises(UserError, match="holds weights of resnet20 with name='resnet20', and the net is nin"):
        resnets.load_weights(resnets.create("nin"), tmp_path / "ours.safetensors")


def test_formats_that_a_library_does_not_have_are_refused(tmp_path):
    for network, format in (("nin", "torchvision"), ("vgg16", "micronet"), ("resnet20", "micronet")):
        with pytest.raises(UserError, match=f"{format} has no {network}"):
            resnets.save_weights(resnets.create(network), tmp_path / "x.safetensors", format=format)
    assert not list(tmp_path.iterdir())


# --- files of ours ----------------------------------------------------------------------------


def test_a_file_of_ours_describes_the_network(tmp_path):
    net = resnets.create("highway19", num_classes=4, seed=1)
    resnets.save_weights(net, tmp_path / "h.safetensors")
    again = resnets.load(tmp_path / "h.safetensors")
    assert again.spec == net.spec
    assert all(torch.equal(a, b) for a, b in zip(net.state_dict().values(), again.state_dict().values(), strict=True))
    other = resnets.load(tmp_path / "h.safetensors", num_classes=9, seed=2)
    assert other(torch.zeros(1, 3, 32, 32)).shape == (1, 9)
    assert torch.equal(other.rows.stage1.conv1.weight, net.rows.stage1.conv1.weight)


def test_pools_with_the_same_tensors_are_another_function(tmp_path):
    """NIN with an average in the place of its second maximum has the same names and shapes."""
    rows = [
        row.replace("cccp4: conv:192:1 relu pool:max", "cccp4: conv:192:1 relu pool:avg")
        for row in resnets.spec_of("nin").rows
    ]
    net = resnets.nn.build(resnets.spec_of("nin", rows=rows), seed=0)
    resnets.save_weights(net, tmp_path / "x.safetensors")
    with pytest.raises(UserError, match="with rows="):
        resnets.load_weights(resnets.create("nin"), tmp_path / "x.safetensors")
    resnets.load_weights(net, tmp_path / "x.safetensors")


def test_a_changed_net_is_not_written(tmp_path):
    net = resnets.create("nin")
    net.rows.cccp4.pool1.ceil_mode = False
    with pytest.raises(UserError, match=r"no longer the nin that net\.spec describes"):
        resnets.save_weights(net, tmp_path / "x.safetensors")


# --- real weights -----------------------------------------------------------------------------


def test_micronets_nin_has_the_accuracy_of_its_own_record(shared_weights):
    """86.93 % is what the file itself says (`best_acc`); all 10,000 test images."""
    path = shared_weights("micronet_nin_bn.pth")
    try:
        images = resnets.open_data("cifar10")
    except UserError as error:
        pytest.skip(f"no CIFAR-10 here: {error}")
    score = resnets.evaluate(path, images)
    assert score.models[0].spec.name == "nin_bn"
    assert (score.images, score.wrong) == (10_000, 1307)
    with pytest.raises(UserError, match="nin is another network"):
        resnets.load(path, network="nin")


# --- ONNX graphs of others, which have structure and no weights ---------------------------------


def onnx_layers(name):
    """Convolutions, pools, normalizations ... of a graph, each with its numbers, in order."""
    onnx = pytest.importorskip("onnx")
    path = Path(onnx.__file__).parent / "backend/test/data/light" / f"{name}.onnx"
    if not path.exists():
        pytest.skip(f"this version of onnx has no {os.fspath(path)}")
    graph = onnx.load(path).graph
    shapes = {}
    values = {c.name: onnx.numpy_helper.to_array(c) for c in graph.initializer}
    for node in graph.node:
        if node.op_type == "ConstantOfShape":
            shapes[node.output[0]] = tuple(int(n) for n in values[node.input[0]])
        elif node.op_type == "Reshape" and node.input[0] in shapes:
            shapes[node.output[0]] = tuple(int(n) for n in values[node.input[1]])
    shapes.update({name: value.shape for name, value in values.items()})
    found = []
    for node in graph.node:
        known = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        match node.op_type:
            case "Conv":
                out, into, high, wide = shapes[node.input[1]]
                found.append(("conv", out, into, (high, wide), tuple(known.get("strides", (1, 1)))))
            case "MaxPool" | "AveragePool":
                kind = "max" if node.op_type == "MaxPool" else "avg"
                found.append(("pool", kind, tuple(known["kernel_shape"]), tuple(known["strides"])))
            case "LRN":
                found.append(("lrn", known["size"], round(known["alpha"], 8), known["beta"]))
            case "Gemm":
                found.append(("linear", shapes[node.input[1]]))
            case "Concat" | "BatchNormalization" | "Relu":
                found.append((node.op_type,))
            case "Dropout":
                found.append(("drop", round(known["ratio"], 6)))
    return found


def our_layers(name):
    spec = resnets.spec_of(name, aux=False)
    net = resnets.nn.build(spec, device="meta")
    found = []
    for place, word in named_words(spec):
        match word:
            case Conv():
                weight = net.get_submodule(place).weight
                found.append(("conv", weight.shape[0], weight.shape[1], word.kernel, word.stride))
            case Pool():
                found.append(("pool", word.by, word.kernel or (7, 7), word.stride))
            case Lrn():
                found.append(("lrn", word.size, word.alpha, word.beta))
            case Linear():
                found.append(("linear", tuple(net.get_submodule(place).weight.shape)))
            case Mix():
                found.append(("Concat",))
            case Bn():
                found.append(("BatchNormalization",))
            case Relu():
                found.append(("Relu",))
            case Drop():
                found.append(("drop", word.p))
    return found


@pytest.mark.parametrize(
    ("name", "graph"),
    [("googlenet", "light_inception_v1"), ("bninception", "light_inception_v2"), ("vgg19", "light_vgg19")],
)
def test_the_structure_is_that_of_an_independent_graph(name, graph):
    theirs, ours = onnx_layers(graph), our_layers(name)
    assert Counter(theirs) == Counter(ours)
    kinds = ("conv", "linear", "lrn")  # in order, but branches may be listed in another order
    if name == "vgg19":
        assert [layer for layer in theirs if layer[0] in kinds] == [layer for layer in ours if layer[0] in kinds]
    first = [layer for layer in theirs if layer[0] == "conv"][:3]
    assert first == [layer for layer in ours if layer[0] == "conv"][:3]
