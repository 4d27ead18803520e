"""README's table and picture of the papers' experiments, from made-up results."""

import shutil

import pytest

from tools.tables import pages as tables
from tools.tables import reproduced

PAGE = "<!-- results: figure1 -->\nold\n<!-- end -->\n<!-- results: table1 -->\nold\n<!-- end -->\n"


def test_what_has_not_been_run_leaves_a_sentence_that_says_how(tmp_path, made_results):
    empty = tables.fill_page(PAGE, tmp_path / "none")
    assert "`resnets reproduce figure1 --budget hour`" in empty
    assert "`resnets reproduce table1 --budget hour`" in empty
    shutil.rmtree(made_results / "hour")  # what is left is smoke, which is not published
    assert tables.fill_page(PAGE, made_results) == empty


def test_a_table_with_the_papers_values_ours_and_what_is_missing(made_results):
    text = tables.fill_page(PAGE, made_results)
    assert "old" not in text
    line = next(line for line in text.splitlines() if line.startswith("| original"))
    assert line.startswith(
        "| original | 6.61 | [60.20 +- 0.14](results/hour/resnet110-cifar10.json), 2 runs | partly ("
    )
    assert "| 1x1 conv shortcut | 12.22 | missing | - |" in text
    assert "Scaled: images 16x16, 40it for 64000it." in text
    # ranks 1, 3.5, 3.5, 2 of the paper's and 2, 3, 4, 1 of ours: 3.5 / sqrt(4.5 * 5)
    assert "Rank correlation with the paper over 4 rows on cifar10: +0.74." in text
    assert (
        'alt="v2 Figure 1: ResNet-1001, original unit, test error 70.00 %; ResNet-1001, proposed unit, missing"' in text
    )


def test_a_better_budget_is_shown_instead(made_results):
    (made_results / "hour").rename(made_results / "day")
    assert "budget `day`" in tables.fill_page(PAGE, made_results)


def test_the_picture_is_drawn_for_light_and_dark_the_same_each_time(made_results):
    pytest.importorskip("matplotlib")
    reproduced.draw(made_results / "none")
    assert not list(made_results.glob("*.svg"))
    reproduced.draw(made_results)
    light, dark = ((made_results / name).read_text() for name in reproduced.PICTURES)
    reproduced.draw(made_results)
    assert (made_results / "figure1.svg").read_text() == light
    for text in (light, dark):
        assert "ResNet-1001, original unit, test error 70.00 %" in text
        assert "proposed unit" not in text  # it has no result
    assert "#e6e6e6" in dark
    assert "#e6e6e6" not in light
