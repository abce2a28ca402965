"""The figures of a benchmark."""

from __future__ import annotations

import pytest
from made_benchmarks import make_entry, make_task

from fedtaco.benchmark import figures
from fedtaco.benchmark.figures import draw_curves, draw_differences
from fedtaco.benchmark.plan import LOCAL_CONTROL
from fedtaco.benchmark.task_comparison import TaskComparison

LOW, HIGH, SPREAD = ([[start], [start + 0.02], [start + 0.01]] for start in (0.5, 0.6, 0.4))
SPREAD[0] = [0.9]


@pytest.fixture
def drawn(monkeypatch):
    """The figures that were saved."""
    saved = []
    monkeypatch.setattr(figures, "save_figure", lambda figure, path: saved.append(figure))
    return saved


def compare(*entries, name="adult"):
    return TaskComparison(make_task([make_entry(*entry) for entry in entries], name), "fedavg")


def test_differences_are_drawn_with_their_intervals(drawn, tmp_path):
    first = compare(("fedavg", LOW), ("taco", HIGH), ("stem", SPREAD))
    second = compare(("fedavg", LOW), ("stem", HIGH), name="mnist")
    assert draw_differences([first, second], tmp_path / "out.svg")
    panels = drawn[0].axes
    assert [axes.get_title() for axes in panels] == ["adult", "mnist"]
    assert [label.get_text() for label in panels[0].get_yticklabels()] == ["taco", "stem"]
    assert panels[0].yaxis_inverted()  # the first method is on top
    for axes, comparison, rows in ((panels[0], first, {"taco": 0, "stem": 1}), (panels[1], second, {"stem": 1})):
        assert len(axes.containers) == len(rows)
        for (name, row), (dot, _, (bar,)) in zip(rows.items(), axes.containers, strict=True):
            expected = comparison.difference(name, "fedavg")
            assert dot.get_xydata().tolist() == [[pytest.approx(100 * expected.mean), row]]
            ends = bar.get_segments()[0][:, 0]
            assert ends == pytest.approx([100 * expected.low, 100 * expected.high])


def test_significant_differences_are_filled(drawn, tmp_path):
    comparison = compare(("fedavg", LOW), ("taco", [[0.6], [0.621], [0.61]]), ("stem", SPREAD))
    assert comparison.significantly_above == ["taco"]
    draw_differences([comparison], tmp_path / "out.svg")
    taco, stem = (container[0].get_markerfacecolor() for container in drawn[0].axes[0].containers)
    assert (taco != "white", stem) == (True, "white")


@pytest.mark.parametrize(("tasks", "shape"), [(1, (1, 1)), (3, (1, 3)), (4, (2, 2)), (5, (2, 3)), (9, (3, 3))])
def test_panels_of_several_tasks(drawn, tmp_path, tasks, shape):
    draw_differences([compare(("fedavg", LOW), ("taco", HIGH)) for _ in range(tasks)], tmp_path / "out.svg")
    axes = drawn[0].axes
    assert axes[0].get_gridspec().get_geometry() == shape
    assert [one.get_visible() for one in axes] == [True] * tasks + [False] * (shape[0] * shape[1] - tasks)


def test_without_a_difference_nothing_is_drawn(tmp_path):
    out = tmp_path / "out.svg"
    assert not draw_differences([compare(("fedavg", LOW)), compare(("taco", HIGH))], out)
    assert not draw_differences([compare(("fedavg", [[0.5]]), ("taco", [[0.6]]))], out)  # one seed has no interval
    assert not out.exists()


def test_curves_of_controls_are_not_drawn(tmp_path):
    out = tmp_path / "out.svg"
    assert draw_curves(compare((LOCAL_CONTROL, HIGH)), out) == []
    assert not out.exists()
    assert draw_curves(compare(("fedavg", LOW), (LOCAL_CONTROL, HIGH), ("taco", HIGH)), out) == ["fedavg", "taco"]
    assert out.exists()


def test_at_most_seven_curves_are_drawn_those_of_the_highest_methods_and_the_reference(tmp_path):
    entries = [("fedavg", LOW), *((f"own {number}", [[0.6 + number / 100]]) for number in range(9))]
    names = draw_curves(compare(*entries), tmp_path / "out.svg")
    assert names == ["fedavg", *(f"own {number}" for number in (8, 7, 6, 5, 4, 3))]
