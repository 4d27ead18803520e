"""Specs: validated, frozen, written as JSON and read back."""

import dataclasses
import json
import subprocess
import sys

import pytest

import resnets
from resnets import UserError, spec_of
from resnets.spec import Spec
from resnets.unit_spec import SHORTCUTS, parse_shortcut


@pytest.mark.parametrize(
    ("text", "shortcut"),
    [
        ("identity", resnets.Identity()),
        ("scale:0.5:0.25", resnets.Scale(0.5, 0.25)),
        ("scale", resnets.Scale(0.5, 1.0)),
        ("exclusive_gate:-6", resnets.ExclusiveGate(-6)),
        ("shortcut_gate:0", resnets.ShortcutGate(0)),
        ("conv1x1", resnets.Conv1x1()),
        ("dropout:0.5:true", resnets.Dropout(0.5, rescale=True)),
        ("plain", resnets.Plain()),
        ("scale:0.3333333333333333:0.1234567890123", resnets.Scale(1 / 3, 0.1234567890123)),
    ],
)
def test_shortcuts_as_text(text, shortcut):
    assert parse_shortcut(text) == shortcut
    assert parse_shortcut(str(shortcut)) == shortcut


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("exclusive_gat:-6", "unknown shortcut 'exclusive_gat': did you mean exclusive_gate"),
        ("scale:a", "shortcut must be a number, not 'a'"),
        ("identity:1", "too many values; write identity"),
        ("dropout:0.5:maybe", "rescale must be true or false, not 'maybe'"),
        ("dropout:1.5", "p must be between 0 and 1, not 1.5"),
        ("dropout:1:true", "cannot divide by 1 - p = 0"),
        ("exclusive_gate:nan", "bias must be"),
        ("scale:inf:1", "shortcut must be"),
    ],
)
def test_bad_shortcuts(text, message):
    with pytest.raises(UserError, match=message.replace("(", r"\(")):
        parse_shortcut(text)


@pytest.mark.parametrize("shortcut", SHORTCUTS)
def test_json_and_back(shortcut):
    spec = spec_of("resnet164", shortcut=shortcut, num_classes=100, bn_eps=1e-3)
    assert Spec.from_dict(json.loads(json.dumps(spec.to_dict()))) == spec


def test_from_dict_refuses_what_it_does_not_know():
    data = spec_of("resnet20").to_dict()
    with pytest.raises(UserError, match="no field colour"):
        Spec.from_dict(data | {"colour": 1})
    with pytest.raises(UserError, match="lacks blocks"):
        Spec.from_dict({k: v for k, v in data.items() if k != "blocks"})
    with pytest.raises(UserError, match="must be a JSON object"):
        Spec.from_dict([])  # type: ignore[arg-type]


def test_a_spec_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        spec_of("resnet20").order = "full_preact"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"stem_activation": "yes"}, "stem_activation must be true or false, not 'yes'"),
        ({"order": {}}, "unknown order {}"),
        ({"order": "preact"}, "unknown order 'preact'"),
        ({"stem": "mnist"}, "unknown stem 'mnist'"),
        ({"resize": "projct"}, "did you mean project"),
        ({"stride_on": "5x5"}, "unknown stride_on '5x5'"),
        ({"share_activation": "never"}, "unknown share_activation"),
        ({"kernels": "bottle"}, "did you mean bottleneck"),
        ({"kernels": (2, 3)}, "kernels must be odd"),
        ({"kernels": ()}, "kernels must be a non-empty tuple"),
        ({"shortcut": 3}, "shortcut must be one of identity"),
        ({"num_classes": 0}, "num_classes must be a whole number of at least 1, not 0"),
        ({"in_channels": 2.5}, "in_channels must be a whole number"),
        ({"in_channels": True}, "in_channels must be a whole number"),
        ({"widths": (16, 32)}, "blocks .* name 3 stages and widths .* name 2"),
        ({"widths": (64, 32, 16)}, "cannot go from 64 to 32; choose resize='project'"),
        ({"blocks": 0}, "blocks must be a whole number of at least 1"),
        ({"shortcut": "plain", "order": "full_preact"}, "a plain net has no addition, so order 'full_preact'"),
        ({"stem_activation": False}, "stem_activation=False needs a pre-activation order"),
        ({"bn_eps": -1}, "bn_eps must be between 0 and 1"),
        ({"depth": 21}, r"depth 21 is impossible: .* make 6n\+2 layers; the nearest are 20 and 26"),
        ({"depth": 5}, "the nearest are 8 and 14"),
        ({"depth": "20"}, "depth must be a whole number"),
        ({"depth": 20, "blocks": 3}, "give depth or blocks, not both"),
        ({"colour": "red"}, "unknown option 'colour'"),
        ({"num_clases": 5}, "did you mean num_classes"),
    ],
)
def test_bad_networks_get_one_sentence(changes, message):
    changes = dict(changes)
    if "widths" in changes and changes["widths"] == (16, 32):
        changes["blocks"] = (3, 3, 3)
    with pytest.raises(UserError, match=message) as caught:
        spec_of("resnet20", **changes)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("changes", [{"widths": (2**63, 16, 16)}, {"num_classes": 2**31}, {"kernels": (3, 10**30 + 1)}])
def test_a_number_that_no_machine_can_hold_is_refused(changes):
    with pytest.raises(UserError, match="must be at most 2,147,483,647, not"):
        spec_of("resnet20", **changes)


def test_every_field_has_its_help_and_the_first_four_are_required():
    fields = dataclasses.fields(Spec)
    assert all(field.metadata["help"] for field in fields)
    assert [f.name for f in fields if f.default is dataclasses.MISSING] == ["name", "stem", "blocks", "widths"]
    for field in fields:
        if choices := field.metadata.get("choices"):
            assert getattr(spec_of("resnet20"), field.name) in choices


def test_units_are_listed_without_torch():
    code = (
        "import sys, resnets; units = resnets.spec_of('preresnet164').units();"
        "print(len(units), [tuple(conv) for conv in units[18].convs], units[18].resize, 'torch' in sys.modules)"
    )
    told = subprocess.check_output([sys.executable, "-c", code], text=True)
    assert told.strip() == "54 [(64, 32, 1, 2), (32, 32, 3, 1), (32, 128, 1, 1)] project False"


def test_units_of_equal_layers_are_equal_wherever_they_stand():
    units = spec_of("preresnet110").units()
    assert [unit.index for unit in units] == list(range(54))
    assert [(unit.stage, unit.place) for unit in units[17:20]] == [(0, 17), (1, 0), (1, 1)]
    assert len(set(units)) == 6  # the first one, the others of its stage, and in later stages the first and the others
    assert units[1] == units[2] != units[18]
