"""The networks as torch modules: shortcuts (h), the unit (F and f), the network around them; chains of layers."""

from resnets.nn.base import Network
from resnets.nn.chain import ChainNet
from resnets.nn.network import ResNet, build, initialize, require_units
from resnets.nn.shortcuts import ShortcutModule
from resnets.nn.unit import Residual, Unit

__all__ = [
    "ChainNet",
    "Network",
    "ResNet",
    "Residual",
    "ShortcutModule",
    "Unit",
    "build",
    "initialize",
    "require_units",
]
