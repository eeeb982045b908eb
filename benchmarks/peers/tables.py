"""The results as tables: rows are implementations, columns are cells."""

from __future__ import annotations

from collections.abc import Callable

Result = dict  # of one implementation in one cell; see peers.py
Table = list[list[str]]


def number(value: float) -> str:
    return f"{value:.3g}" if value < 100 else f"{value:.0f}"


def table(results: list[Result], titles: dict[str, str], show: Callable[[Result], str]) -> Table:
    cells = list(dict.fromkeys(r["cell"] for r in results))
    names = list(dict.fromkeys(r["name"] for r in results))
    found = {(r["name"], r["cell"]): r for r in results}
    rows = [["implementation", *cells]]
    for name in names:
        row = [found.get((name, cell)) for cell in cells]
        rows.append([titles[name], *("-" if r is None else show(r) for r in row)])
    return rows


def text(rows: Table) -> str:
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    lines = [
        "  ".join(v.ljust(w) if k == 0 else v.rjust(w) for k, (v, w) in enumerate(zip(row, widths, strict=True)))
        for row in rows
    ]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])


def markdown(rows: Table) -> str:
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([lines[0], "| --- |" + " ---: |" * (len(rows[0]) - 1), *lines[1:]])


def render(report: dict, layout: Callable[[Table], str], heading: str) -> str:
    """The whole report in one layout (`text` or `markdown`); `heading` goes before each title."""
    results, machine = report["results"], report["machine"]
    titles = report["titles"]
    ours = {r["cell"]: r["rounds_per_second"] for r in results if r["name"] == "ours" and "failed" not in r}

    def field(key: str, noisy: bool = False) -> Callable[[Result], str]:
        def show(r: Result) -> str:
            mark = "*" if noisy and r.get("noisy") else ""
            if "failed" in r:
                return "failed"
            return number(r[key]) + mark if key in r else "-"

        return show

    def ratio(r: Result) -> str:
        if "failed" in r or r["cell"] not in ours:
            return "-"
        return number(ours[r["cell"]] / r["rounds_per_second"])

    def same(r: Result) -> str:
        return "failed" if "failed" in r else r.get("weights", "-")

    sections = [
        ("Rounds per second (median)", field("rounds_per_second", noisy=True)),
        ("FedSaddle's rounds per second divided by the implementation's", ratio),
        ("Peak memory, MB", field("peak_mb")),
        ("Seconds from the start of the process to the end of its first round", field("first_round_seconds")),
        (f"Weights after {report['checked_round']} rounds, against {report['reference']}", same),
    ]
    lines = [
        f"{heading}FedAvg, same work in every implementation",
        f"{report['date']}; {machine['cpu']}, {machine['cores']} cores, {machine['memory_gb']:.0f} GB; "
        f"Python {machine['python']}; {machine['system']}",
    ]
    lines += [f"- {name}: {title}" for name, title in report["workloads"].items()]
    for title, show in sections:
        lines += [f"{heading}{title}", layout(table(results, titles, show))]
    lines.append(
        "Peak memory is the largest resident size of the process; for several processes it is their sum after "
        "the first and the last round with shared pages counted once, which is less than their peak."
    )
    rates = [r["gflops"] for r in results if "gflops" in r]
    if rates:
        lines.append(
            f"The arithmetic limit: {number(max(rates))} GFLOP/s in products of square matrices on all cores, "
            "the fastest that was measured, over the matrix products of a round; all else counts as free."
        )
    if any(r.get("noisy") for r in results):
        lines.append("(*) the machine was busy with something else before or after this measurement.")
    failures = [f"- {titles[r['name']]}, {r['cell']}: {r['failed']}" for r in results if "failed" in r]
    if failures:
        lines += [f"{heading}Failed", *failures]
    versions = {titles[r["name"]]: r["versions"] for r in results if "versions" in r}
    lines.append(f"{heading}Versions")
    lines += [f"- {title}: " + ", ".join(f"{k} {v}" for k, v in vs.items()) for title, vs in versions.items()]
    out = "\n\n".join(lines)
    return out.replace("\n\n- ", "\n- ") + "\n"
