"""The networks as torch modules: shortcuts (h), the unit (F and f), the network around them."""

from resnets.nn.network import ResNet, build, initialize
from resnets.nn.shortcuts import ShortcutModule
from resnets.nn.unit import Residual, Unit

__all__ = ["ResNet", "Residual", "ShortcutModule", "Unit", "build", "initialize"]
