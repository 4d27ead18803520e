"""Numbers and tables as people read them."""

import pytest

from resnets.text import count, multiply_adds, print_table, printable


@pytest.mark.parametrize(
    ("n", "text"),
    [
        (3_858_000_000, "3.86 G"),
        (11_300_000_000, "11.3 G"),
        (1_234_000_000_000, "1,234 G"),
        (999_600_000, "1.00 G"),
        (999_400_000, "999 M"),
        (40_551_040, "40.6 M"),
        (9_999_000, "10.0 M"),
        (442_368, "0.442 M"),
        (640, "0.001 M"),
        (0, "0.000 M"),
    ],
)
def test_multiply_adds(n: int, text: str) -> None:
    assert multiply_adds(n) == text


def test_count() -> None:
    assert count(1_727_962) == "1,727,962"


def test_printable() -> None:
    assert printable("réseau\x1b[0m\n") == "réseau\\x1b[0m\\n"


def test_plain_tables_are_aligned_and_not_cut(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("name", "n"), [("a" * 150, "1"), ("b", "1,000")], right=["n"])
    lines = capsys.readouterr().out.splitlines()
    assert [len(line) for line in lines] == [157] * 3
    assert lines[1].endswith("      1")
