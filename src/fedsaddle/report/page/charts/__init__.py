"""Charts as inline SVG: lines with bands, forest plots, heat maps and bars.

Drawings use shares of their width, so that they fit a telephone and a sheet of paper while their text keeps its size.
Colours, dashes and marks come from the page's style sheet.
"""

from fedsaddle.report.page.charts.axes import Axis
from fedsaddle.report.page.charts.bars import Bar, bars
from fedsaddle.report.page.charts.forest import ForestRow, forest
from fedsaddle.report.page.charts.heat import heat_map
from fedsaddle.report.page.charts.lines import Line, line_chart

__all__ = ["Axis", "Bar", "ForestRow", "Line", "bars", "forest", "heat_map", "line_chart"]
