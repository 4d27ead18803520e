"""A script: `python two_ranks.py OUT` trains the task of `autoencoder.py` with a callback, in each of the processes."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from autoencoder import Redraw

from resnets.recipe import Recipe
from resnets.training.callbacks import Callback
from resnets.training.session import train


class Say(Callback):
    def __init__(self, word: str, everywhere: bool) -> None:
        self.word, self.everywhere = word, everywhere

    def on_step(self, training: object) -> None:
        print(self.word)


recipe = Recipe("test", length="6it", batch=12, lr=0.05, warmup="0it", milestones="", channels_last=False)
train(Redraw(), recipe=recipe, out=sys.argv[1], quiet=True, callbacks=[Say("first", False), Say("each", True)])
