from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from fedsaddle.data.describe import SplitReport, describe, heterogeneity
from fedsaddle.data.federated import FederatedData, federate
from fedsaddle.data.sets.sklearn_sets import diabetes, digits
from fedsaddle.data.splits import ByClass, Dirichlet, Iid, Natural
from fedsaddle.data.table import Dataset, Table


def _text_data() -> FederatedData:
    codes = np.arange(400).reshape(80, 5) % 12
    classes = (*"ab_$ \n", *(f"<class number {i} of the twelve>" for i in range(6)))
    client = np.array([f"$client {i % 4}$" for i in range(80)])
    table = Table(codes, codes, {"client": client}, classes)
    return federate(Dataset("plays", table, None, "", ""), Natural())


def test_heterogeneity_by_hand() -> None:
    assert heterogeneity(np.array([[5, 5], [50, 50]])) == 0
    assert heterogeneity(np.eye(4, dtype=np.int64) * 3) == pytest.approx(3 / 4)
    # Pooled (0.25, 0.75): the distances are 0.75 and 1/6, whatever the sizes of the clients.
    assert heterogeneity(np.array([[10, 0], [10, 60]])) == pytest.approx((0.75 + (10 / 70 - 0.25) * -1) / 2)


def test_counts_of_one_class_per_client() -> None:
    data = federate(digits(), ByClass(10), test_share=0.2)
    report = describe(data)
    assert report.label_counts is not None
    assert (report.label_counts == np.diag(data.train.sizes)).all()
    assert report.test_sizes.sum() + report.train_sizes.sum() == 1797
    assert report.heterogeneity == pytest.approx(0.9, abs=0.001)
    assert report.size_ratio == pytest.approx(max(data.train.sizes) / min(data.train.sizes))


def test_alpha_orders_the_heterogeneity() -> None:
    figures = [describe(federate(digits(), s)).heterogeneity for s in (Iid(10), Dirichlet(10, 1), Dirichlet(10, 0.1))]
    assert None not in figures
    assert figures == sorted(figures)  # type: ignore[type-var]
    assert figures[0] is not None
    assert figures[0] < 0.15


def test_sequences_count_characters() -> None:
    report = describe(_text_data())
    assert report.label_counts is not None
    assert report.label_counts.sum() == 5 * report.train_sizes.sum()


def test_regression_has_means_instead_of_labels() -> None:
    data = federate(diabetes(), Natural("sex"))
    report = describe(data)
    assert report.label_counts is report.heterogeneity is None
    assert report.target_means is not None
    expected = [float(data.train.client(i)[1].double().mean()) for i in range(2)]
    assert report.target_means.tolist() == pytest.approx(expected)
    assert "mean target" in report.text()


def test_the_dictionary_survives_json() -> None:
    for data in (federate(digits(), ByClass(10)), federate(diabetes(), Iid(3))):
        report = describe(data).to_dict()
        assert json.loads(json.dumps(report)) == report
        assert report["clients"] == len(report["names"])


def test_text_shows_20_clients() -> None:
    text = describe(federate(digits(), Iid(30))).text()
    assert "digits: 30 clients" in text
    assert "client 19 " in text
    assert "client 20 " not in text
    assert text.endswith("... and 10 more clients")
    small = describe(federate(digits(), ByClass(10), test_share=0)).text()
    assert "more clients" not in small
    assert any(line.split() == ["class", "0", "178", "0", "0", "100%"] for line in small.splitlines())
    assert max(len(line) for line in text.splitlines()) < 100


def _draw(report: SplitReport, path: Path) -> bytes:
    assert report.plot(path) == path
    return path.read_bytes()


@pytest.mark.parametrize(
    "data",
    [
        federate(digits(), Dirichlet(12, 0.3)),
        federate(digits(), Dirichlet(70, 0.5)),
        _text_data(),
        federate(diabetes(), Iid(5)),
        federate(diabetes(), Iid(80)),
    ],
    ids=["bars", "heat map", "many classes", "means", "scatter"],
)
def test_charts_are_drawn(data: FederatedData, tmp_path: Path) -> None:
    assert _draw(describe(data), tmp_path / "chart.png").startswith(b"\x89PNG")


def test_the_bars_are_the_label_counts() -> None:
    from fedsaddle.data.describe import draw

    report = describe(federate(digits(), Dirichlet(12, 0.3)))
    assert report.label_counts is not None
    (axes,) = draw(report).axes
    widths = np.array([[bar.get_width() for bar in bars] for bars in axes.containers])
    assert (report.label_counts == widths.T).all()
    many = describe(_text_data())
    assert many.label_counts is not None
    (axes,) = draw(many).axes
    assert len(axes.containers) == 11
    drawn = sum(bar.get_width() for bars in axes.containers for bar in bars)
    assert drawn == many.label_counts.sum()


def test_the_format_follows_the_name(tmp_path: Path) -> None:
    report = describe(federate(digits(), Iid(3)))
    assert b"<svg" in _draw(report, tmp_path / "chart.svg")
