"""Attacks on a package that is broken on purpose, so that the harness must find it. Attack N shows fault N."""

import os
import pickle
import signal
import time

from tools.torture.edits import Edits
from tools.torture.kills import Kills
from tools.torture.pickles import Evil, calls
from tools.torture.pictures import Pictures
from tools.torture.promises import SkippedError


def hang(folder):
    time.sleep(600)


def crash(folder):
    os.kill(os.getpid(), signal.SIGSEGV)


def raise_exception(folder):
    raise ZeroDivisionError("of a reader")


def take_memory(folder):
    return len(bytearray(os.urandom(1) * (1200 << 20))) * 0 + 1


def unpickle(folder):
    pickle.loads(pickle.dumps(Evil(calls()[0])))


def skip(folder):
    raise SkippedError("there is no such thing here")


def end_worker(folder):
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(5)


FAULTS = (hang, crash, raise_exception, take_memory, unpickle, skip, end_worker, lambda folder: None)


class Faults:
    def __init__(self, folder):
        pass

    def attack(self, draw, folder):
        return FAULTS[draw.number](folder)


class WrongReader(Pictures):
    """A decoder that lets a broken picture's exception through."""

    def __init__(self, folder):
        super().__init__(folder)
        from resnets.data import decode

        def opened(self, data):
            raise IndexError("of a broken file")

        decode.Opened.__init__ = opened


class WrongPrinter(Pictures):
    """A command that prints whatever a file is called."""

    def __init__(self, folder):
        super().__init__(folder)
        import resnets.cli.predict as module

        module._predict = lambda *given, **options: print("\x1b[31m") or 0


class WrongEngine(Edits):
    """An engine whose scores are off by a hundredth."""

    def __init__(self, folder):
        super().__init__(folder)
        self.ways = ["fast"]
        self.engines = lambda net, memory: lambda x: 1.01 * net(x)


class WrongResume(Kills):
    """A run that is trained with another seed when it is disturbed."""

    def disturb(self, draw, options):
        return super().disturb(draw, {**options, "seed": options["seed"] + 1})
