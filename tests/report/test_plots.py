"""Figures of accuracy over rounds."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from fedtaco.errors import InvalidInput
from fedtaco.records import History, RoundRecord
from fedtaco.report.colours import ON_LIGHT
from fedtaco.report.plots import plot_accuracy


def history(*accuracies):
    return History([RoundRecord(number, one, 1.0, None, 1.0) for number, one in enumerate(accuracies, 1)])


def test_a_line_is_the_mean_over_seeds_and_its_band_their_range():
    seeds = [history(0.2, 0.4), history(0.4, 0.8, 0.9)]
    axes = plot_accuracy({"fedavg": [history(0.1, 0.2)], "taco": seeds}, target=0.7).axes[0]
    fedavg, taco, target = axes.lines
    assert taco.get_xdata().tolist() == [1, 2, 3]
    assert taco.get_ydata().tolist() == pytest.approx([30, 60, 90])
    (band,) = axes.collections
    corners = {tuple(point) for point in np.round(band.get_paths()[0].vertices, 6).tolist()}
    assert corners == {(1, 20), (1, 40), (2, 40), (2, 80), (3, 90)}
    assert [line.get_color() for line in (fedavg, taco)] == list(ON_LIGHT[:2])
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["fedavg", "taco"]
    assert target.get_ydata() == pytest.approx([70, 70])


def test_lines_and_bands_connect_evaluated_rounds():
    seeds = [history(None, 0.4, None, 0.6), history(None, 0.6, None, 0.8)]
    axes = plot_accuracy({"taco": seeds}).axes[0]
    assert axes.lines[0].get_xydata().tolist() == [[2, pytest.approx(50)], [4, pytest.approx(70)]]
    assert np.isfinite(axes.collections[0].get_paths()[0].vertices).all()


@pytest.mark.parametrize("methods", [4, 5])
def test_the_legend_of_many_methods_is_beside_the_curves(methods):
    figure = plot_accuracy({f"method {number}": [history(0.2, 0.4)] for number in range(methods)})
    figure.draw_without_rendering()
    (axes,) = figure.axes
    legend = axes.get_legend() or figure.legends[0]
    assert [text.get_text() for text in legend.get_texts()] == [f"method {number}" for number in range(methods)]
    assert legend.get_window_extent().overlaps(axes.get_window_extent()) == (methods == 4)


def test_names_are_not_read_as_formulas(tmp_path):
    plot_accuracy({"$x^{$": [history(0.2, 0.4)]}, tmp_path / "out.png")
    assert (tmp_path / "out.png").is_file()


def test_more_methods_than_colours_differ_in_their_dashes():
    histories = {f"method {index}": [history(0.1)] for index in range(2 * len(ON_LIGHT))}
    lines = plot_accuracy(histories).axes[0].lines
    assert len({(line.get_color(), line.get_linestyle()) for line in lines}) == len(histories)


@pytest.mark.parametrize(("suffix", "start"), [("pdf", b"%PDF"), ("png", b"\x89PNG"), ("svg", b"<?xml")])
def test_the_suffix_decides_the_format_and_equal_figures_give_equal_files(suffix, start, tmp_path):
    paths = [tmp_path / f"{name}.{suffix}" for name in ("first", "second")]
    for path in paths:
        plot_accuracy({"taco": [history(0.2, 0.4)]}, path)
    first, second = (path.read_bytes() for path in paths)
    assert first.startswith(start)
    assert first == second


def test_what_cannot_be_drawn_is_explained(tmp_path, monkeypatch):
    with pytest.raises(InvalidInput, match=r"path is 'out\.gif'; its name must end in \.pdf, \.png or \.svg"):
        plot_accuracy({}, "out.gif")
    with pytest.raises(InvalidInput, match="there is no folder"):
        plot_accuracy({}, tmp_path / "nowhere" / "out.pdf")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(InvalidInput, match=r"pip install 'fedtaco\[plot\]'"):
        plot_accuracy({"taco": [history(0.2)]})
