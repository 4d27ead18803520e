"""Keeping freed memory: harmless, and it can be refused."""

import sys

import pytest
import torch

from resnets.engine import allocator
from resnets.engine.allocator import keep_freed_memory


def test_it_can_be_opted_out_of(monkeypatch):
    monkeypatch.setenv("RESNETS_KEEP_MEMORY", "0")
    monkeypatch.setattr(allocator.ctypes, "CDLL", lambda name: pytest.fail("it was called all the same"))
    assert keep_freed_memory() is False


def test_it_does_nothing_elsewhere(monkeypatch):
    monkeypatch.delenv("RESNETS_KEEP_MEMORY", raising=False)
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(allocator.ctypes, "CDLL", lambda name: pytest.fail("it was called all the same"))
    assert keep_freed_memory() is False


@pytest.mark.parametrize("error", [OSError, AttributeError])
def test_another_c_library_is_no_error(monkeypatch, error):
    def missing(name):
        raise error(name)

    monkeypatch.delenv("RESNETS_KEEP_MEMORY", raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(allocator.ctypes, "CDLL", missing)
    assert keep_freed_memory() is False


def test_calling_it_again_and_again_is_harmless(monkeypatch):
    monkeypatch.delenv("RESNETS_KEEP_MEMORY", raising=False)
    answers = {keep_freed_memory() for _ in range(3)}
    assert len(answers) == 1
    x = torch.ones(1 << 22)
    assert float((x + x).sum()) == 2 << 22
