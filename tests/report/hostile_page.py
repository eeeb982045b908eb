"""A page with one text, such as an attack, wherever text goes."""

from __future__ import annotations

from fedsaddle.report.page.charts import Bar, ChartAxis, ForestRow, Line, bars, forest, heat_map, line_chart
from fedsaddle.report.page.parts import Bullets, Chart, Code, Figure, Page, PageTable, Section, Text, ThresholdSlider

HOSTILE = (
    "</script><script>alert(1)</script>",
    "</style></svg></table><img src=x onerror=alert(1)>",
    "\" onmouseover='alert(1)' x=\"",
    "' onfocus=alert(1) '",
    "]]><!-- --!> <![CDATA[",
    "javascript:alert(1)",
    "{{ 7 * 7 }}{% raw %}",
    "&lt;b&gt; &amp; &#60;i&#62;",
    "nul\x00 bell\x07 escape\x1b[2J",
    "right-to-left \u202e override, \u05e9\u05dc\u05d5\u05dd \u0645\u0631\u062d\u0628\u0627",
    "lone surrogate \ud800",
    "x" * 300,
    "👩‍⚕️ 🏥",
    "https://example.org/track?x=1",
    "",
)


def hostile_page(t: str) -> Page:
    """A page with this text wherever text goes."""
    table = PageTable((t, t), ((t, t), (t, t)), t, 1)
    unit = ChartAxis(t, 0, 1)
    drawings = (
        line_chart([Line(t, [0, 1], [0, 1]), Line(t, [0, 1], [0, 1], "faint")], unit, unit, key=t),
        forest(
            [ForestRow(t, (t,), 0.5, 0.4, 0.6, second=(0.5, 0.4, 0.6)), ForestRow(t, (t,), None, why_not=t)],
            unit,
            heads=(t, t),
            models=(t, t),
            key=t,
        ),
        heat_map((t,), (t,), ((0.5,),), key=t),
        bars([Bar(t, 0.5, t, t)], unit, key=t),
    )
    charts = [Chart(t, drawing, t, table, t) for drawing in drawings]
    slider = ThresholdSlider((0.1, 0.2), (1, 1), (1, 0), 1, 1, 0.1, table)
    blocks = (Text(t, head=t), Text(t, "note", t), Text(t, t, t), Bullets((t, t)), Code(t), table, *charts, slider)
    return Page(
        t, t, (Text(t, head=t), Text(t, t, t)), (Figure(t, t, t),), (t,), (Section(t, t, blocks), Section(t, t, ())), t
    )
