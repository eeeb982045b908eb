"""The rows of each client: their numbers, the heterogeneity of the clients, and missing cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedsaddle.array_types import Floats
from fedsaddle.documents.stored import Agreed, SplitCounts
from fedsaddle.documents.summary import MissingShare, PartName
from fedsaddle.report.page.charts import Bar, ChartAxis, axis_for, bars, heat_map
from fedsaddle.report.page.parts import Block, Chart, PageTable, Section, Text
from fedsaddle.report.stored_run import StoredRun
from fedsaddle.report.words import PARTS, many, percent, short
from fedsaddle.text import visible

LISTED = 200
SCROLLED = 40
CLASSES = 20  # columns of a heat map


@dataclass(frozen=True)
class RowsByClient:
    """Rows of each client by part, and of each class among its training rows.

    Args:
        names: Of the clients.
        sizes: By part, the rows of each client.
        classes: Of the labels.
        counts: (clients, classes), of the training rows; None without classes.
        test_only: Rows of clients that are for the test only.
        who: "site" where clients are the sites of a table, else "client".
    """

    names: list[str]
    sizes: Mapping[PartName, Sequence[int]]
    classes: list[str]
    counts: Floats | None
    test_only: Mapping[str, int]
    who: str = "client"

    @property
    def heterogeneity(self) -> float | None:
        """The mean total variation distance between the class shares of a client and those of all clients."""
        if self.counts is None or not (self.counts.sum(axis=1) > 0).all():
            return None
        each = self.counts / self.counts.sum(axis=1, keepdims=True)
        return float(np.abs(each - self.counts.sum(axis=0) / self.counts.sum()).sum(axis=1).mean() / 2)


def split(run: StoredRun) -> Section | None:
    """The rows of each client: of a simulation from split.json, of a deployed run from the counts that sites sent.

    Args:
        run: The run.
    """
    found = _stored(run.split) if run.split else _sent(run.agreed) if run.agreed else None
    if found is None or not found.names:
        return None
    if run.is_search or run.is_deployed:
        found = replace(found, who="site")
    blocks: list[Block] = [Text(_in_words(found))]
    unlike = _unlike(found)
    if unlike:
        blocks.append(Text(unlike))
    shares = _shares(found)
    if shares is not None:
        blocks.append(shares)
    elif found.counts is None or len(found.names) > LISTED:
        blocks.append(_sizes(found))
    if len(found.names) <= LISTED:
        blocks.append(_table(found))
    return Section("data", "The rows", blocks)


def _stored(split: SplitCounts) -> RowsByClient:
    sizes = {part: split.sizes(part) for part in PARTS}
    return RowsByClient(
        [visible(name) for name in split.names],
        {part: own for part, own in sizes.items() if any(own)},
        [visible(name) for name in split.classes],
        np.asarray(split.label_counts, dtype=np.float64) if split.label_counts else None,
        split.test_clients,
    )


def _sent(agreed: Agreed) -> RowsByClient:
    keys: dict[PartName, str] = {"train": "rows", "validation": "validation_rows", "test": "test_rows"}
    sizes = {part: agreed.sizes.get(key, []) for part, key in keys.items()}
    labels = agreed.agreed
    values, classes = labels.values or [], labels.classes
    counts = None
    if classes is not None and "positive" not in labels.model_fields_set and len(values) == len(classes):
        place = {str(value): k for k, value in enumerate(values)}
        counts = np.zeros((len(agreed.names), len(values)))
        for i, site in enumerate(agreed.told):
            for value, n in zip(site.target.values, site.target.counts, strict=True):
                counts[i, place[str(value)]] = n
    return RowsByClient(
        [visible(name) for name in agreed.names],
        {part: own for part, own in sizes.items() if any(own)},
        [visible(name) for name in classes or ()],
        counts,
        {},
    )


def _in_words(split: RowsByClient) -> str:
    train = np.asarray(split.sizes["train"])
    parts = [f"{sum(found):,} {PARTS[part]}" for part, found in split.sizes.items()]
    if split.test_only:
        parts.append(
            f"{sum(split.test_only.values()):,} test rows of {many(len(split.test_only), split.who)} that were not "
            f"trained on"
        )
    words = f"{many(len(split.names), split.who)}: {', '.join(parts)}."
    small, large = split.names[int(train.argmin())], split.names[int(train.argmax())]
    if len(train) > 1 and train.min() == train.max():
        words += f" Each has {many(int(train.min()), 'training row')}."
    elif len(train) > 1:
        words += (
            f" The smallest, {small}, has {many(int(train.min()), 'training row')}, the largest, {large}, "
            f"{int(train.max()):,}; half "
            f"of the {split.who}s have {np.median(train):,.0f} or fewer."
        )
    return words


def _unlike(split: RowsByClient) -> str:
    """The heterogeneity of the clients in words."""
    found = split.heterogeneity
    if found is None or split.counts is None:
        return ""
    kind = next(
        name
        for most, name in (
            (0.05, "have nearly the same class shares"),
            (0.15, "have slightly different class shares"),
            (0.4, "have clearly different class shares"),
            (2.0, "have very different class shares"),
        )
        if found <= most
    )
    words = (
        f"The {split.who}s {kind}: on average {percent(found, 0)} of a {split.who}'s training rows would have to "
        f"change class to have the shares of all {split.who}s together."
    )
    if len(split.classes) == 2:
        share = split.counts.sum(axis=0)[1] / split.counts.sum()
        alone = int((split.counts == 0).any(axis=1).sum())
        words += f" {percent(share, 1)} of all training rows are {split.classes[1]!r}"
        words += f"; {many(alone, f'{split.who} has', f'{split.who}s have')} rows of one class only." if alone else "."
    else:
        lacking = int((split.counts == 0).any(axis=1).sum())
        words += f" {lacking:,} of {many(len(split.names), split.who)} lack a class." if lacking else ""
    return words


def _shares(split: RowsByClient) -> Chart | None:
    """The shares of classes at each client, for as many as can be listed."""
    if split.counts is None or len(split.names) > LISTED or len(split.classes) < 2:
        return None
    totals = np.maximum(split.counts.sum(axis=1), 1)
    if len(split.classes) == 2:
        share = split.counts[:, 1] / totals
        order = np.argsort(-share, kind="stable")
        drawn = [Bar(split.names[i], float(share[i]), percent(float(share[i]), 1)) for i in order]
        return Chart(
            f"Share of {split.classes[1]!r} among the training rows",
            bars(drawn, axis_for("share", [0.0, *share.tolist()], share=True), key="split"),
            f"From {percent(float(share.min()), 1)} to {percent(float(share.max()), 1)}.",
            None,
            scrolls=len(drawn) > SCROLLED,
        )
    largest = np.sort(np.argsort(-split.counts.sum(axis=0), kind="stable")[:CLASSES])
    each = split.counts[:, largest] / totals[:, None]
    names = [split.classes[k] for k in largest]
    rest = len(split.classes) - len(largest)
    return Chart(
        f"Classes of each {split.who}",
        heat_map(split.names, names, each.tolist(), key="split"),
        f"The largest share of one class at a {split.who} is {percent(float(each.max()), 1)}.",
        PageTable(
            [split.who, *names],
            [[n, *(percent(v, 0) for v in row)] for n, row in zip(split.names, each.tolist(), strict=True)],
        ),
        note=f"Shares of the classes among each {split.who}'s training rows."
        + (f" The {len(largest)} largest classes; {rest:,} others are left out." if rest else ""),
        scrolls=len(split.names) > SCROLLED,
    )


def _sizes(split: RowsByClient) -> Chart:
    """Training rows of the clients: of each, or of each tenth."""
    sizes = np.asarray(split.sizes["train"], dtype=np.float64)
    if len(sizes) <= LISTED:
        order = np.argsort(-sizes, kind="stable")
        drawn = [Bar(split.names[i], float(sizes[i]), f"{sizes[i]:,.0f}") for i in order]
    else:
        names = ["smallest", *(f"{10 * k} % are smaller" for k in range(1, 10)), "largest"]
        deciles = np.quantile(sizes, np.linspace(0, 1, 11)).tolist()
        drawn = [Bar(name, v, f"{v:,.0f}") for name, v in zip(names, deciles, strict=True)]
    return Chart(
        f"Training rows of the {split.who}s",
        bars(drawn, axis_for("training rows", [0.0, *(b.value for b in drawn)]), key="sizes"),
        f"From {sizes.min():,.0f} to {sizes.max():,.0f} rows.",
        PageTable([split.who, "training rows"], [[b.name, b.text] for b in drawn]),
        scrolls=len(drawn) > SCROLLED,
    )


def _table(split: RowsByClient) -> PageTable:
    parts = list(split.sizes)
    two = split.counts is not None and len(split.classes) == 2
    heads = [split.who, *(PARTS[part] for part in parts), *([f"{split.classes[1]!r} in training rows"] if two else [])]
    rows = []
    for i, name in enumerate(split.names):
        cells = [f"{split.sizes[part][i]:,}" for part in parts]
        if two and split.counts is not None:
            cells.append(f"{split.counts[i, 1]:,.0f}")
        rows.append([name, *cells])
    for name, n in split.test_only.items():
        rows.append([visible(name), *(f"{n if part == 'test' else 0:,}" for part in parts), *(["–"] if two else [])])
    total = [
        "all",
        *(f"{sum(split.sizes[p]) + (sum(split.test_only.values()) if p == 'test' else 0):,}" for p in parts),
    ]
    if two and split.counts is not None:
        total.append(short(float(split.counts[:, 1].sum()), 0))
    return PageTable(heads, [*rows, total], totals=1)


MOST_COLUMNS = 40
MOST_SITES = 40
NOTE = (
    "Missing numbers are imputed with the median of the column over all sites; with ten or more missing, the model "
    "also has an indicator. Missing categories are a category of their own. If a site never fills a column, a missing "
    "cell says more about the site than about the patient."
)


def missing_cells(run: StoredRun) -> Section | None:
    """Shares of missing cells; None if the run does not know.

    Args:
        run: The run.
    """
    known = run.search_summary or run.run_summary
    if known is None or "missing" not in known.model_fields_set:
        return None
    columns = known.missing
    if not columns:
        return Section("missing", "Missing cells", [Text("No cell of the training rows was missing.")])
    ordered = sorted(columns, key=lambda c: -columns[c].share)
    blocks: list[Block] = [Text(_words(columns, ordered))]
    shown, sites = ordered[:MOST_COLUMNS], run.client_names or _sites(columns)
    table = PageTable(
        ("column", "missing", "most at one site", "that site"),
        [(visible(c), _percent(columns[c].share), *_most(columns[c])) for c in ordered],
    )
    if 1 < len(sites) <= MOST_SITES:
        svg = heat_map(
            [visible(c) for c in shown],
            [visible(s) for s in sites],
            [[columns[c].sites.get(s, 0.0) for s in sites] for c in shown],
            key="missing",
        )
    else:
        svg = bars(
            [Bar(visible(c), columns[c].share, _percent(columns[c].share)) for c in shown],
            ChartAxis("share of missing cells", 0, 1, percent=True),
            key="missing",
        )
    blocks.append(
        Chart(
            title="Share of missing cells",
            svg=svg,
            description=f"Shares of missing cells of {len(shown)} columns"
            + (f" at {len(sites)} sites." if len(sites) <= MOST_SITES else f", all {len(sites)} sites together."),
            table=table,
            note=NOTE,
        )
    )
    return Section("missing", "Missing cells", blocks)


def _words(columns: Mapping[str, MissingShare], ordered: list[str]) -> str:
    first = ordered[0]
    most = _percent(columns[first].share)
    few = "One column has" if len(columns) == 1 else f"{len(columns)} columns have"
    text = f"{few} missing cells in the training rows, most of all {visible(first)} ({most})."
    never = [(c, s) for c in ordered for s, share in columns[c].sites.items() if share >= 1]
    if len(never) == 1:
        text += f" {visible(never[0][1])} never fills {visible(never[0][0])}."
    elif never:
        some = ", ".join(f"{visible(c)} at {visible(s)}" for c, s in never[:3])
        text += f" {len(never)} pairs of a column and a site have no cell at all, such as {some}."
    return text


def _sites(columns: Mapping[str, MissingShare]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(site for column in columns.values() for site in column.sites))


def _most(column: MissingShare) -> tuple[str, str]:
    if not column.sites:
        return "", ""
    site = max(column.sites, key=lambda s: column.sites[s])
    return _percent(column.sites[site]), visible(site)


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %" if share < 0.0995 else f"{100 * share:.0f} %"
