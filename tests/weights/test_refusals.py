"""Weights that do not fit are refused in one sentence that names what is wrong, and the net stays as it was."""

import json
import os
import pickle
import random

import pytest
import torch
from safetensors.torch import save_file

import peers
import resnets
from resnets.weights.networks import read_spec, to_peer

NARROW = (4, 8, 8, 8)


def cifar(**changes):
    return resnets.create("resnet20", seed=0, **{"blocks": 1, "resize": "pad_both", **changes})


def imagenet(name="resnet50", **changes):
    return resnets.create(name, seed=0, **{"blocks": 1, "widths": NARROW, "num_classes": 6, **changes})


def refusal(net, path, source="auto"):
    """The sentence with which a file is refused, after which the net has its old values."""
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    with pytest.raises(resnets.UserError) as caught:
        resnets.load_weights(net, path, source)
    for name, tensor in net.state_dict().items():
        assert torch.equal(tensor, before[name])
    message = str(caught.value)
    assert message.endswith(".")
    assert "\n" not in message
    return message


@pytest.fixture
def stored(tmp_path):
    """Writes a state dict, or anything else, as torch does."""

    def store(content, name="weights.pth"):
        torch.save(content, tmp_path / name)
        return tmp_path / name

    return store


def akamaster_weights():
    return to_peer(peers.randomize(cifar()), "akamaster")


# --- tensors that do not fit ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda w: w.pop("layer2.0.bn1.running_var"), "1 tensor missing (layer2.0.bn1.running_var)."),
        (lambda w: w.update(extra=torch.zeros(2)), "1 tensor unexpected (extra)."),
        (
            lambda w: w.update({"conv1.weight": torch.zeros(16, 3, 5, 5)}),
            "1 tensor misshaped (conv1.weight is 16x3x5x5 and not 16x3x3x3).",
        ),
        (
            lambda w: w.update({"bn1.num_batches_tracked": torch.zeros(1, dtype=torch.int64)}),
            "1 tensor misshaped (bn1.num_batches_tracked is 1 and not one number).",
        ),
        (
            lambda w: w.update({"bn1.bias": torch.zeros(16, dtype=torch.int64)}),
            "1 tensor mistyped (bn1.bias is int64 and not float32).",
        ),
        (
            lambda w: w.update({"bn1.bias": torch.zeros(16, dtype=torch.complex64)}),
            "1 tensor mistyped (bn1.bias is complex64 and not float32).",
        ),
        (
            lambda w: w.update({"bn1.num_batches_tracked": torch.tensor(1.0)}),
            "1 tensor mistyped (bn1.num_batches_tracked is float32 and not int64).",
        ),
        (lambda w: w["bn1.bias"].fill_(float("nan")), "1 tensor not finite in float32 (bn1.bias)."),
        (lambda w: w["linear.weight"][3].fill_(-float("inf")), "1 tensor not finite in float32 (linear.weight)."),
        (
            lambda w: w.update({"bn1.bias": torch.full((16,), 1e300, dtype=torch.float64)}),
            "1 tensor not finite in float32 (bn1.bias).",
        ),
        (
            lambda w: w.update({"bn1.bias": torch.zeros(16, device="meta")}),
            "1 tensor not stored in full (bn1.bias).",
        ),
        (
            lambda w: w.update({"linear.weight": torch.zeros(10, 64).to_sparse()}),
            "1 tensor not stored in full (linear.weight).",
        ),
        (
            lambda w: [w.pop(k) for k in list(w) if k.startswith("layer3.0.bn")],
            "8 tensors missing (layer3.0.bn1.weight, layer3.0.bn1.bias, layer3.0.bn1.running_mean and 5 more).",
        ),
    ],
)
def test_the_tensors_at_fault_are_named(stored, change, told):
    weights = {name: tensor.clone() for name, tensor in akamaster_weights().items()}
    change(weights)
    message = refusal(cifar(), stored(weights))
    assert "weights.pth does not fit resnet20: " in message
    assert told in message


def test_all_faults_are_told_at_once(stored):
    weights = akamaster_weights()
    weights["stray"] = weights.pop("conv1.weight")
    weights["bn1.bias"] = torch.full((16,), float("inf"))
    message = refusal(cifar(), stored(weights))
    assert "1 tensor missing (conv1.weight); 1 tensor unexpected (stray); 1 tensor not finite" in message


@pytest.mark.parametrize("dtype", [torch.float16, torch.float8_e4m3fn], ids=str)
def test_values_must_survive_a_narrow_net_and_may_come_from_a_narrow_file(stored, dtype):
    weights = akamaster_weights()
    narrow = {name: t.to(dtype) if t.is_floating_point() else t for name, t in weights.items()}
    net = cifar()
    resnets.load_weights(net, stored(narrow))
    assert torch.equal(net.stem.conv.weight, narrow["conv1.weight"].float())
    weights["linear.bias"] = torch.full((10,), 1e6)
    message = refusal(cifar(dtype=torch.float16), stored(weights))
    assert "1 tensor not finite in float16 (linear.bias)" in message


def test_another_number_of_classes_is_advised(stored):
    message = refusal(cifar(num_classes=100), stored(akamaster_weights()))
    assert "linear.weight is 10x64 and not 100x64" in message
    assert message.endswith("; build the net with num_classes=10.")


def test_another_depth_is_refused(stored):
    path = stored(to_peer(imagenet(), "torchvision"))
    assert "layer1.1.conv1.weight" in refusal(imagenet(blocks=2), path)
    assert "tensors unexpected (layer1.0.conv3.weight" in refusal(imagenet("resnet18"), path)


def test_counters_of_batches_alone_may_be_absent(stored):
    weights = {n: t for n, t in akamaster_weights().items() if not n.endswith("num_batches_tracked")}
    net = peers.randomize(cifar())
    assert resnets.load_weights(net, stored(weights)).tensors == len(weights)
    assert int(net.stem.act.bn.num_batches_tracked) == 0
    own = {n: t for n, t in net.state_dict().items() if not n.endswith("num_batches_tracked")}
    assert "stem.act.bn.num_batches_tracked" in refusal(net, stored(own))


def test_a_net_without_memory_is_not_filled(stored):
    path = stored(akamaster_weights())
    with pytest.raises(resnets.UserError, match="meta device"):
        resnets.load_weights(resnets.create("resnet20", device="meta", resize="pad_both", blocks=1), path)


# --- conventions that differ although the shapes may fit --------------------------------------


@pytest.mark.parametrize(
    ("layout", "changes", "told"),
    [
        ("torchvision", {"stride_on": "1x1"}, "stride_on='3x3'"),
        ("torchvision", {"order": "relu_before_add"}, "order='original'"),
        ("torchvision", {"shortcut": "scale:0.5:1"}, "shortcut='identity'"),
        ("torchvision", {"shortcut": "dropout"}, "shortcut='identity'"),
        ("torchvision", {"stem": "cifar"}, "stem='imagenet'"),
        ("torchvision", {"resize": "pad"}, "resize='project'"),
        ("torchvision", {"bn_eps": 1e-3}, "bn_eps=1e-05"),
        ("torchvision", {"order": "full_preact", "stem_activation": False}, "order='original', stem_activation=True"),
        ("timm", {"stem_activation": True}, "stem_activation=False"),
        ("timm", {"stride_on": "1x1"}, "stride_on='3x3'"),
        ("timm", {"resize": "pad"}, "resize='project'"),
        ("timm", {"order": "relu_preact"}, "order='full_preact'"),
        ("akamaster", {"resize": "pad"}, "resize='pad_both'"),
        ("akamaster", {"resize": "pad_pool"}, "resize='pad_both'"),
        ("akamaster", {"order": "relu_before_add"}, "order='original'"),
        ("akamaster", {"kernels": "bottleneck", "resize": "project"}, "kernels=(3, 3), resize='pad_both'"),
        ("akamaster", {"stem": "imagenet"}, "stem='cifar'"),
        ("akamaster", {"shortcut": "plain"}, "shortcut='identity'"),
    ],
)
def test_other_conventions_are_refused_with_what_to_pass_to_create(stored, layout, changes, told):
    fits = {
        "torchvision": imagenet,
        "timm": lambda **c: imagenet("preresnet50", **{"stem_activation": False, **c}),
        "akamaster": cifar,
    }[layout]
    path = stored(to_peer(fits(), layout))
    message = refusal(fits(**changes), path)
    asked, advice = message.split(": build it with resnets.create(")
    assert f"which means {told}, and the net has " in asked
    # Following the advice to the letter makes the net that fits.
    advised = eval(f"resnets.create({advice.removesuffix('.')}", {"resnets": resnets})
    assert resnets.load_weights(advised, path).source == layout
    if layout != "timm" or "order" not in changes:  # timm also has nets of the original order
        with pytest.raises(resnets.UserError, match="cannot be written as weights of"):
            to_peer(fits(**changes), layout)


def test_units_that_no_peer_has_are_refused(stored):
    path = stored(to_peer(imagenet("resnet18"), "torchvision"))
    net = imagenet("resnet18", kernels="one_layer")
    assert "which means kernels=(3, 3), and the net has kernels=(3,): " in refusal(net, path)
    with pytest.raises(resnets.UserError, match="cannot be written as weights of torchvision's resnet"):
        to_peer(net, "torchvision")


def test_the_stride_of_a_two_layer_unit_is_no_convention(stored):
    """Both words name its first convolution."""
    path = stored(to_peer(imagenet("resnet18"), "torchvision"))
    net = imagenet("resnet18", stride_on="1x1")
    assert resnets.load_weights(net, path).source == "torchvision"


def test_the_source_that_is_asked_for_must_be_the_files(stored):
    path = stored(akamaster_weights())
    for source in ("torchvision", "timm", "resnets"):
        assert f"akamaster's CIFAR nets, not of {source}" in refusal(cifar(), path, source)
    assert "unknown source 'torchvison': did you mean torchvision?" in _sentence(
        resnets.load_weights, cifar(), path, "torchvison"
    )
    assert "unknown format 'keras'" in _sentence(to_peer, cifar(), "keras")
    message = refusal(cifar(), stored({"block1/conv/kernel": torch.zeros(2), "a": torch.zeros(1)}))
    assert "names that no known library gives (block1/conv/kernel, a)" in message


def _sentence(function, *arguments):
    with pytest.raises(resnets.UserError) as caught:
        function(*arguments)
    return str(caught.value)


# --- our own files for another net ------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "fields"),
    [
        ({"num_classes": 100}, ["num_classes=10", "num_classes=100"]),
        ({"blocks": 2}, ["blocks=(1, 1, 1)", "blocks=(2, 2, 2)"]),
        ({"resize": "pad"}, ["resize='pad_both'", "resize='pad'"]),
        ({"order": "bn_after_add"}, ["order='original'", "order='bn_after_add'"]),
        ({"shortcut": "scale:0.5:1"}, ["shortcut='identity'", "shortcut='scale:0.5:1'"]),
        ({"bn_eps": 1e-3, "in_channels": 1}, ["in_channels=3, bn_eps=1e-05", "in_channels=1, bn_eps=0.001"]),
    ],
)
def test_our_file_is_for_its_own_network(tmp_path, changes, fields):
    path = tmp_path / "net.safetensors"
    resnets.save_weights(cifar(), path)
    message = refusal(cifar(**changes), path)
    held, wanted = message.split(", and the net is resnet20 with ")
    assert held == f"{path} holds weights of resnet20 with {fields[0]}"
    assert wanted.startswith(fields[1] + ": use resnets.load(path), or build the net with resnets.create('resnet20'")
    advised = eval(message.partition("build the net with ")[2].removesuffix("."), {"resnets": resnets})
    assert resnets.load_weights(advised, path).source == "resnets"


@pytest.mark.parametrize(
    ("saved", "loaded"),
    [
        (("resnet20", {"depth": 32}), ("resnet32", {})),
        (("resnet20", {"stride_on": "3x3"}), ("resnet20", {})),
        (("resnet20", {"bn_momentum": 0.01}), ("resnet20", {})),
        (("resnet20", {"shortcut": "exclusive_gate:-3"}), ("resnet20", {"shortcut": "exclusive_gate:-6"})),
        (("plain20", {"resize": "project"}), ("plain20", {})),
        (("resnet20", {"share_activation": "resize"}), ("resnet20", {})),
    ],
)
def test_fields_that_do_not_change_the_function_do_not_stand_in_the_way(tmp_path, saved, loaded):
    name, changes = saved
    net = peers.randomize(resnets.create(name, **changes)).eval()
    resnets.save_weights(net, tmp_path / "net")
    name, changes = loaded
    other = resnets.create(name, **changes).eval()
    resnets.load_weights(other, tmp_path / "net")
    x = torch.randn(2, 3, 16, 16)
    with torch.no_grad():
        assert torch.equal(other(x), net(x))


def test_our_names_without_a_spec_are_taken_by_shape_and_not_rebuilt(stored):
    net = peers.randomize(cifar())
    path = stored({"model": {f"_orig_mod.module.{name}": t for name, t in net.state_dict().items()}, "epoch": 3})
    other = cifar()
    report = resnets.load_weights(other, path)
    assert (report.source, report.wrapper, report.prefix) == ("resnets", "model", "_orig_mod.module.")
    assert torch.equal(other.classifier.weight, net.classifier.weight)
    with pytest.raises(resnets.UserError, match=r"resnets\.create\(name\) .* resnets\.load_weights\(net, path\)"):
        read_spec(path)
    with pytest.raises(resnets.UserError, match="does not say which network it holds; name it with --network"):
        resnets.load(path)


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ("{", "cannot be read"),
        ("[1]", "must be a JSON object"),
        ('{"name": "x"}', "lacks blocks, stem, widths"),
        ({"colour": "red"}, "no field colour"),
        ({"order": {}}, "cannot be read"),
        ({"bn_eps": "small"}, "bn_eps"),
        ({"blocks": [10**9] * 3}, "describes 6000000002 layers of weights and holds 44 tensors"),
        ({"num_classes": 10**30}, "num_classes must be at most 2,147,483,647"),
        ({"num_classes": 10**9}, "classifier.weight is 10x64 and not 1000000000x64"),
        ({"blocks": [1, 1, 2]}, "12 tensors missing"),
    ],
)
def test_a_false_description_is_refused(tmp_path, spec, told):
    net = cifar()
    if isinstance(spec, dict):
        spec = json.dumps(net.spec.to_dict() | spec)
    save_file(net.state_dict(), tmp_path / "net", metadata={"resnets.spec": spec})
    with pytest.raises(resnets.UserError) as caught:
        resnets.load(tmp_path / "net")
    assert str(caught.value).startswith(str(tmp_path / "net"))
    assert told in str(caught.value)


# --- files that hold no weights ---------------------------------------------------------------


@pytest.fixture(scope="module")
def sound():
    """The bytes of one small net in each of the three kinds of file."""
    net = resnets.create("resnet20", seed=0, blocks=1, widths=(2, 2, 2), resize="pad_both")
    return net, to_peer(net, "akamaster")


def written(kind, weights, path):
    if kind == "safetensors":
        save_file(weights, path)
    else:
        torch.save(weights, path, _use_new_zipfile_serialization=kind == "zip")
    return path


@pytest.mark.parametrize("kind", ["safetensors", "zip", "legacy"])
def test_every_kind_of_file_is_read_whatever_its_name(tmp_path, sound, kind):
    net, weights = sound
    path = written(kind, weights, tmp_path / "weights.bin")
    assert resnets.load_weights(net, path).tensors == len(weights)


@pytest.mark.parametrize("kind", ["safetensors", "zip", "legacy"])
def test_a_file_that_is_cut_short_is_refused(tmp_path, sound, kind):
    net, weights = sound
    path = written(kind, weights, tmp_path / "weights.bin")
    whole = path.read_bytes()
    for kept in (0, 1, 8, 9, 100, len(whole) // 2, len(whole) - 1000, len(whole) - 1):
        path.write_bytes(whole[:kept])
        message = refusal(net, path)
        assert str(path) in message
        assert "is empty" in message if kept == 0 else "damaged" in message


@pytest.mark.parametrize("kind", ["safetensors", "zip", "legacy"])
def test_damaged_bytes_are_refused_or_harmless(tmp_path, sound, kind):
    """Whatever bytes are changed, a file is loaded or refused, and no other error appears."""
    net, weights = sound
    path = written(kind, weights, tmp_path / "weights.bin")
    whole = path.read_bytes()
    draw = random.Random(0)
    refusals = []
    for _ in range(60):
        data = bytearray(whole)
        for _ in range(draw.randint(1, 8)):
            data[draw.randrange(len(data) if draw.random() < 0.5 else 600)] = draw.randrange(256)
        path.write_bytes(data)
        try:
            resnets.load_weights(net, path)
        except resnets.UserError as error:
            refusals.append(str(error))
    assert len(refusals) > 10
    assert all(message.startswith(str(path)) for message in refusals)


def test_a_header_that_claims_giant_sizes_is_refused(tmp_path):
    path = tmp_path / "net.safetensors"
    size = 10**15
    for header in (
        {"conv1.weight": {"dtype": "F32", "shape": [size, size], "data_offsets": [0, 4]}},
        {"conv1.weight": {"dtype": "F32", "shape": [size], "data_offsets": [0, 4 * size]}},
    ):
        text = json.dumps(header).encode()
        path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(4))
        assert f"{path} is a damaged safetensors file" in refusal(cifar(), path)
    path.write_bytes((2**60).to_bytes(8, "little") + b"{}")
    assert f"{path} is a damaged safetensors file" in refusal(cifar(), path)
    with pytest.raises(resnets.UserError, match="damaged"):
        read_spec(path)


def test_what_is_no_file(tmp_path):
    assert refusal(cifar(), tmp_path) == f"{tmp_path} is a folder, not a file of weights."
    assert refusal(cifar(), tmp_path / "absent") == f"there is no file {tmp_path / 'absent'}."
    (tmp_path / "file").write_text("not weights at all, but some text\n" * 100)
    assert "neither a safetensors file nor a torch file" in refusal(cifar(), tmp_path / "file")
    assert "cannot read" in refusal(cifar(), tmp_path / "file" / "inside")


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ([1, 2], "holds a list, not the state_dict"),
        (torch.zeros(3), "holds a Tensor, not the state_dict"),
        (None, "holds a NoneType"),
        ({}, "holds nothing"),
        ({"epoch": 3, "net": {"a": torch.zeros(1)}}, "holds only epoch, net, where the tensors"),
        ({"state_dict": {"a": 1}}, "holds only a, where the tensors"),
        ({"conv1.weight": torch.zeros(1), "epoch": 3}, "1 of what is no tensor with a name (epoch)"),
        ({"conv1.weight": torch.zeros(1), 5: torch.zeros(1)}, "no tensor with a name (5)"),
    ],
)
def test_contents_that_are_no_state_dict(stored, content, told):
    assert told in refusal(cifar(), stored(content))


class Hostile:
    """Makes a folder when it is unpickled."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return os.mkdir, (str(self.mark),)


@pytest.mark.parametrize("form", ["pickle 2", "pickle 5", "zip", "legacy"])
def test_code_in_a_file_does_not_run(tmp_path, form):
    mark = tmp_path / "it ran"
    content = {"state_dict": akamaster_weights(), "extra": Hostile(mark)}
    path = tmp_path / "weights.pth"
    if form.startswith("pickle"):
        path.write_bytes(pickle.dumps(content["extra"], protocol=int(form[-1])))
        pickle.loads(path.read_bytes())
        assert mark.is_dir()  # it would run
        mark.rmdir()
    else:
        torch.save(content, path, _use_new_zipfile_serialization=form == "zip")
    message = refusal(cifar(), path)
    assert not mark.exists()
    if form != "pickle 5":  # whose way of naming code torch does not read at all
        assert "mkdir), and loading one can run code: save the state_dict alone" in message


def test_a_pickled_module_is_refused_with_the_way_out(stored):
    message = refusal(cifar(), stored(torch.nn.Linear(2, 2)))
    assert "holds a Python object (torch.nn.modules.linear.Linear)" in message
