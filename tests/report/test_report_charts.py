import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from adaptive_labels.lab.report.charts import (
    EPOCHS,
    Axis,
    Curve,
    chart_grid,
    line_chart,
    percent_axis,
    zoom_start,
)
from adaptive_labels.lab.report.heatmap import heat_map
from adaptive_labels.lab.report.svg import nice_ticks, tick_labels
from adaptive_labels.lab.words import shorten


def test_curves_stay_inside_their_frame_and_flat_ones_are_drawn() -> None:
    for values in ([0.5] * 12, [0.0] * 3, [1.0], list(np.linspace(0.1, 0.9, 50))):
        mean = np.array(values)
        curve = Curve(np.arange(1.0, len(values) + 1), mean, mean, mean)
        skip = zoom_start(len(values))
        drawing = line_chart({"m": curve}, "t", EPOCHS, percent_axis("y"), skip=skip)
        assert "nan" not in drawing
        points = re.search(r'<polyline[^>]*points="([^"]*)"', drawing)
        assert points is not None
        seen = [tuple(map(float, pair.split(","))) for pair in points[1].split()][skip:]
        assert all(44 <= x <= 408 and 28 <= y <= 232 for x, y in seen)


def test_the_heat_map_draws_each_value_in_its_strength() -> None:
    matrix = np.array([[0.0, 0.9, 0.3], [0.3, 0.0, 0.3], [0.01, 0.9, 0.0]])
    drawing = heat_map(matrix, ["a", "b", "a very long name of a class indeed"], "t", "d")
    found = {}
    for opacity, path in re.findall(r'<path class="heat" fill-opacity="([\d.]+)" d="([^"]*)"', drawing):
        for column, row, width in re.findall(r"M(\d+) (\d+)h(\d+)v1h-\d+z", path):
            found |= {(int(row), int(column) + step): float(opacity) for step in range(int(width))}
    assert found == {(0, 1): 1.0, (2, 1): 1.0, (0, 2): 0.33, (1, 0): 0.33, (1, 2): 0.33}
    assert f">{shorten('a very long name of a class indeed')}<" in drawing


def test_ticks_are_round_and_told_apart() -> None:
    assert nice_ticks(0.615, 0.668) == [0.62, 0.64, 0.66]
    assert tick_labels([0.625, 0.63], lambda value, digits: f"{100 * value:.{digits}f}") == ["62.5", "63.0"]
    assert nice_ticks(0.5, 0.5) == [0.5]


def test_a_chart_with_values_by_name_and_intervals_at_each_point() -> None:
    """What the figures of studies and benchmarks need: given places, bars, logarithms and several chart_grid."""
    lines = {"a": Curve.of([0, 1], [0.5, 1.5], [0.1, -0.5], [0.9, 3.5]), "b": Curve.of([0, 1], [1, 2])}
    drawing = line_chart(lines, "t", Axis("rate", ticks={0: "0.1", 1: "0.3"}), Axis("points", signed=True), bars=True)
    assert drawing.count('class="spread') == 2  # b has no interval
    assert drawing.count('class="marker line0"') == drawing.count('class="marker line1"') == 3  # one in the legend
    assert all(f">{words}</text>" in drawing for words in ("0.1", "0.3", "+2"))
    assert drawing.count('class="zero"') == 1
    ends = re.findall(r'class="spread[^>]*y1="([\d.]+)"[^>]*y2="([\d.]+)"', drawing)
    assert all(28 <= float(high) < float(low) <= 232 for low, high in ends)

    times = {"a": Curve.of([16, 256, 4096], [0.02, 0.3, 40.0])}
    sizes = Axis("samples", log=True, ticks={16: "16", 256: "256", 4096: "4,096"})
    logarithmic = line_chart(times, "t", sizes, Axis("ms", log=True), with_legend=False)
    for words in ("0.01", "0.1", "1", "10", "100", "256", "4,096"):
        assert f">{words}</text>" in logarithmic
    places = re.search(r'<polyline[^>]*points="([^"]*)"', logarithmic)
    assert places is not None
    left, middle, right = (float(pair.split(",")[0]) for pair in places[1].split())
    assert middle - left == pytest.approx(right - middle, abs=0.11)  # 16 to 256 is as far as 256 to 4,096

    three = chart_grid([logarithmic] * 3, "t", "d", columns=2, captions=["(a)", "(b)", "(c)"], names={"a": 0})
    assert three.count('class="chart"') == 3
    assert three.count(">(b)</text>") == 1
    ET.fromstring(three)
