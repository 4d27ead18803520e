"""Scripts of `resnets completion` in real shells: what a user gets who presses Tab."""

import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time

import pytest

from resnets.cli import main

TYPED = {  # what is typed before Tab, and the words that the command then gets
    "resnets doc": ["doctor"],
    "resnets train preresnet100": ["train", "preresnet1001"],
    "resnets train allc": ["train", "allcnn"],
    "resnets train resnet50 --check": ["train", "resnet50", "--checkpoint-every"],
    "resnets train resnet20 --recipe cifar-q": ["train", "resnet20", "--recipe", "cifar-quick"],
    "resnets train resnet50 --weights vgg16.t": ["train", "resnet50", "--weights", "vgg16.tv_in1k"],
    "resnets eval resnet18.t": ["eval", "resnet18.tv_in1k"],
    "resnets data fet": ["data", "fetch"],
    "resnets data fetch fash": ["data", "fetch", "fashion-mnist"],
    "resnets reproduce table4 --budget da": ["reproduce", "table4", "--budget", "day"],
    "resnets predict pic": ["predict", "picture one.png"],
    "resnets train resnet20 --weights pic": ["train", "resnet20", "--weights", "picture one.png"],
}
SHELLS = {
    "bash": ["bash", "--norc", "--noprofile", "-i"],
    "zsh": ["zsh", "-f", "-i"],
}
BEGIN = {
    "bash": "bind 'set enable-bracketed-paste off'; PS1=",
    "zsh": "unsetopt zle_bracketed_paste beep; autoload -U compinit; compinit -u -D; PS1=",
}


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    """The scripts as files, from a process that must not import torch."""
    folder = tmp_path_factory.mktemp("completion")
    code = "import sys; from resnets.cli import main; code = main(sys.argv[1:]); assert 'torch' not in sys.modules"
    for shell in ("bash", "zsh", "fish"):
        text = subprocess.check_output([sys.executable, "-c", code, "completion", shell], text=True)
        (folder / shell).write_text(text)
    return folder


class Terminal:
    """A shell on a pseudo-terminal."""

    def __init__(self, words, cwd):
        self.pid, self.handle = pty.fork()
        if not self.pid:
            os.chdir(cwd)
            os.environ |= {"TERM": "dumb", "INPUTRC": "/dev/null", "HISTFILE": "/dev/null"}
            os.execvp(words[0], words)

    def type(self, text):
        os.write(self.handle, text.encode())

    def read_until(self, pattern, seconds=30):
        """What was printed up to a pattern."""
        found, end = "", time.monotonic() + seconds
        while not re.search(pattern, found):
            assert time.monotonic() < end, f"{pattern} did not come: {found!r}"
            if select.select([self.handle], [], [], 0.2)[0]:
                found += os.read(self.handle, 1 << 16).decode(errors="replace")
        return found

    def close(self):
        self.type("\x03exit\n")
        os.close(self.handle)
        os.waitpid(self.pid, 0)


@pytest.mark.parametrize("shell", SHELLS)
def test_tab_completes(shell, script, tmp_path):
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    (tmp_path / "picture one.png").write_bytes(b"")
    terminal = Terminal(SHELLS[shell], tmp_path)
    try:
        show = "resnets() { printf '<%s>' \"$@\"; echo '{end}'; }"
        terminal.type(f"{BEGIN[shell]}; source {script / shell}; {show}; echo 'rea''dy'\n")
        terminal.read_until("ready\r?\n")
        for typed, expected in TYPED.items():
            terminal.type(f"{typed}\t\n")
            answer = terminal.read_until("{end}\r?\n")
            assert re.findall(r"<([^>]*)>", answer) == expected, typed
    finally:
        terminal.close()


def test_fish_completes(script, tmp_path):
    if shutil.which("fish") is None:
        pytest.skip("fish is not installed")
    (tmp_path / "picture one.png").write_bytes(b"")
    lines = [f"complete -C '{typed}' | string replace -r '\\t.*' '' | string join '|'" for typed in TYPED]
    code = "\n".join([f"source {script / 'fish'}", *lines, "true"])
    env = {**os.environ, "HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}
    out = subprocess.check_output(["fish", "--no-config", "-c", code], cwd=tmp_path, env=env, text=True).splitlines()
    assert len(out) == len(TYPED)
    for (typed, expected), found in zip(TYPED.items(), out, strict=True):
        assert expected[-1] in found.split("|"), typed


def test_every_option_of_the_help_is_completed(script, capsys):
    main(["train", "--help-all"])
    options = set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]+", capsys.readouterr().out))
    line = next(line for line in (script / "bash").read_text().splitlines() if line.strip().startswith("'train') "))
    offered = set(re.findall(r"--[a-z][a-z0-9-]+", line))
    assert {"--recipe", "--weights", "--lr", "--config"} <= offered
    assert offered <= options


def test_another_shell_is_refused(capsys):
    assert main(["completion", "tcsh"]) == 2
    assert "choose one of bash, zsh, fish" in capsys.readouterr().err
