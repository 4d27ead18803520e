import io
import sys

import pytest

from resnets.progress import Console, Silent


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_plain_lines_without_a_terminal(capsys):
    console = Console()
    console.note("hello")
    with console.task("reading", 8) as advance:
        for _ in range(8):
            advance(1)
    assert capsys.readouterr().err.splitlines() == ["hello", "reading ..."] + [
        f"reading: {p} %" for p in (25, 50, 75, 100)
    ]


def test_work_of_unknown_length(capsys):
    with Console().task("reading", None) as advance:
        advance(10**9)
    assert capsys.readouterr().err == "reading ...\n"


@pytest.mark.parametrize("total", [100, None])
def test_a_bar_on_a_terminal(monkeypatch, total):
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setenv("TERM", "xterm")
    with Console().task("reading [bold]x[/]", total) as advance:
        advance(100)
    assert "reading [bold]x[/]" in sys.stderr.getvalue()


def test_an_error_in_the_work_passes_through(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    with pytest.raises(KeyError), Console().task("reading", 3):
        raise KeyError


def test_silence(capsys):
    Silent().note("x")
    with Silent().task("x", 3) as advance:
        advance(3)
    assert capsys.readouterr().err == ""
