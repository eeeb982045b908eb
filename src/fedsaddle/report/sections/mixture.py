"""The weights λ of the clients over the rounds."""

from __future__ import annotations

from collections.abc import Sequence

from fedsaddle.report.page.charts import Axis, Line, line_chart
from fedsaddle.report.page.parts import Chart, Section, Table, Text
from fedsaddle.report.sections.client_names import named, trained_and_tested
from fedsaddle.report.sections.numbers import MOST_POINTS, axis, guarded, percent, picked
from fedsaddle.report.stored_run import StoredRun

NAMED = 8  # clients with a colour of their own
FAINT = 40  # clients with a line
LISTED = 200
STYLES = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth")


@guarded
def mixture(run: StoredRun) -> Section | None:
    """For algorithms that weigh clients by their losses."""
    records = [r for r in run.history if r.get("mixture")]
    if not records:
        return None
    final: list[float] = [float(v) for v in records[-1]["mixture"]]
    names = named(trained_and_tested(run), len(final))
    order = sorted(range(len(final)), key=lambda i: (-final[i], i))
    at = [records[k] for k in picked(len(records), MOST_POINTS)]
    rounds = [int(r["round"]) for r in at]

    def of(clients: Sequence[int]) -> list[float]:
        return [float(sum(r["mixture"][i] for i in clients)) for r in at]

    lines = [Line(names[i], rounds, of([i]), style) for i, style in zip(order, STYLES, strict=False)]
    lines += [Line(names[i], rounds, of([i]), "faint") for i in order[NAMED:FAINT]]
    rest = order[FAINT:]
    if rest:
        lines.append(Line(f"the other {len(rest):,} clients together", rounds, of(rest), "guide"))
    equal = 1 / len(final)
    top = order[0]
    words = (
        f"At the end {names[top]} has the largest weight, {percent(final[top])}; equal weights would be "
        f"{percent(equal)} each. {sum(v > 2 * equal for v in final):,} of {len(final):,} clients have more than twice "
        f"that, {sum(v < equal / 100 for v in final):,} next to none."
    )
    chart = Chart(
        "Weights λ over the rounds",
        line_chart(
            lines,
            Axis("round", 0, rounds[-1]),
            axis("weight λ", [v for line in lines for v in line.y], share=True),
            key="mixture",
        ),
        words,
        Table(
            ["client", "final weight λ", "against equal weights"],
            [[names[i], percent(final[i], 2), f"{final[i] / equal:.2f} ×"] for i in order[:LISTED]],
        ),
        note="A client whose loss stays high gains weight, so that the model improves there.",
    )
    about = Text("This algorithm weighs the clients by how badly the model does at them. The weights sum to 100 %.")
    return Section("weights", "Which clients counted most", [about, chart])
