"""Attacks on a package that is broken on purpose, so that the harness must find it."""

import os
import pickle
import signal
import time
from pathlib import Path

from tools.torture.command import run


class Broken:
    """One fault for each number that is drawn, in the order of `FAULTS`."""

    def __init__(self, folder):
        pass

    def attack(self, draw, folder):
        return FAULTS[int(os.environ["FAULT"])](folder)


def hang(folder):
    time.sleep(60)


def crash(folder):
    os.kill(os.getpid(), signal.SIGSEGV)


FAULTS = [hang, crash]
