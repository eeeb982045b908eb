"""Rankings: which client has figures, what units mean, how two models are compared, and that it is quick."""

from __future__ import annotations

import time
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from scipy.stats import t as student

from fedsaddle.errors import BadInput
from fedsaddle.metrics.intervals import wilson
from fedsaddle.metrics.ranking import GRID, RankingFigures, client_band, difference, pooled_band, rank

FIGURES = ("auroc", "average_precision", "partial_auroc")


def made(n=300, share=0.3, seed=0, shift=1.0):
    rng = np.random.default_rng(seed)
    y = (rng.random(n) < share).astype(int)
    return rng.normal(size=n) + shift * y, y


def test_clients_with_few_rows_of_a_class_are_not_ranked():
    y = np.array([0] * 9 + [1] * 4 + [1] * 9 + [0] * 4 + [1] * 5 + [0] * 5 + [0, 0] + [1])
    offsets = [0, 13, 26, 36, 38, 39, 39]
    names = ["few positives", "few negatives", "enough", "healthy", "sick", "empty"]
    found = rank(np.arange(39.0), y, offsets, names)
    assert [c.why_not for c in found.clients] == [
        "fewer than 5 positives", "fewer than 5 negatives", None, "one class only", "one class only", "no rows",
    ]  # fmt: skip
    assert [c.few for c in found.clients] == [True, True, False, True, True, True]
    assert [c.auroc is None for c in found.clients] == [True, True, False, True, True, True]
    assert (found.single_class_clients, found.few_clients) == (2, 2)
    assert found.clients[0].to_dict() == {
        "name": "few positives", "positives": 4, "negatives": 9, "few": True,
        "auroc": None, "average_precision": None, "partial_auroc": None,
    }  # fmt: skip
    assert found.curve(3) is None
    assert found.curve(2) is not None


def test_what_is_pooled_has_figures_however_few():
    found = rank([0.9, 0.2], [1, 0], [0, 2], ["a"])
    assert found.pooled.why_not is None
    assert found.pooled.few
    assert found.pooled.auroc.value == found.within_site_auroc.value == 1
    assert found.pooled.auroc.low < 0.1
    assert rank([0.9, 0.2], [1, 1], [0, 2], ["a"]).pooled.why_not == "one class only"
    assert rank([], [], [0, 0], ["a"]).pooled.why_not == "no rows"


def test_the_pooled_auroc_is_no_mean_of_local_ones():
    """Each client ranks its own rows perfectly, but their scores are not on one scale."""
    found = rank([0.1, 0.2, 0.8, 0.9], [0, 1, 0, 1], [0, 2, 4], ["a", "b"])
    assert found.within_site_auroc.value == 1
    assert found.pooled.auroc.value == 0.75


def test_within_sites_clients_count_by_their_pairs():
    """Six pairs of which all are right, and two of which none is."""
    found = rank([5, 4, 3, 2, 1, 1, 2, 3], [1, 1, 0, 0, 0, 1, 0, 0], [0, 5, 8], ["a", "b"])
    assert found.within_site_auroc.value == 6 / 8


def test_the_dictionary_has_values_and_intervals():
    s, y = made()
    said = rank(s, y, [0, 150, 300], ["a", "b"]).to_dict()
    for place in (said["pooled"], *said["clients"]):
        for name in FIGURES:
            low, high = place[name]["interval"]
            assert low < place[name]["value"] < high
    assert set(said["within_site_auroc"]) == {"value", "interval"}
    assert {"single_class_clients", "few_clients"} <= set(said)


def test_patients_are_the_units_whatever_they_are_called():
    s, y = made(100)
    s, y = np.repeat(s, 4), np.repeat(y, 4)
    number = np.repeat(np.arange(100), 4)
    rows, patients = (rank(s, y, [0, 400], ["a"], units=u) for u in (None, number))
    for name in FIGURES:
        one, other = getattr(rows.pooled, name), getattr(patients.pooled, name)
        assert one.value == other.value
        assert other.high - other.low > 1.7 * (one.high - one.low)
    called = rank(s, y, [0, 400], ["a"], units=[f"patient {k}" for k in number])
    mixed = rank(s, y, [0, 400], ["a"], units=np.array([k if k % 2 else f"p{k}" for k in number], dtype=object))
    for other in (called, mixed):
        assert other.pooled.auroc.low == pytest.approx(patients.pooled.auroc.low)


def test_a_patient_at_two_clients_is_one():
    s, y = made(100)
    both = np.tile(np.arange(100), 2)
    twice = rank(np.tile(s, 2), np.tile(y, 2), [0, 100, 200], ["a", "b"], units=both)
    once = rank(s, y, [0, 100], ["a"])
    assert twice.pooled.auroc.low == pytest.approx(once.pooled.auroc.low)
    assert twice.clients[1].auroc == twice.clients[0].auroc


def test_two_models_on_the_same_rows():
    s, y = made()
    ours, theirs = (rank(x, y, [0, 150, 290, 300], ["a", "b", "c"]) for x in (s, s + 2 * made(seed=1)[0]))
    gap, back = difference(ours, theirs), difference(theirs, ours)
    for name in (*FIGURES, "within_site_auroc"):
        there, here = getattr(gap, name), getattr(back, name)
        assert there.low < there.value < there.high
        assert (there.value, there.low, there.high) == pytest.approx((-here.value, -here.high, -here.low))
    assert gap.auroc.value == pytest.approx(ours.pooled.auroc.value - theirs.pooled.auroc.value)
    partial = gap.partial_auroc.value
    assert partial == pytest.approx(ours.pooled.partial_auroc.value - theirs.pooled.partial_auroc.value)
    assert gap.clients[0].auroc.value == pytest.approx(ours.clients[0].auroc.value - theirs.clients[0].auroc.value)
    assert gap.clients[2].auroc is None, "ten rows have fewer than five positives"
    apart = np.hypot(*(r.pooled.auroc.high - r.pooled.auroc.low for r in (ours, theirs)))
    assert gap.auroc.high - gap.auroc.low < apart, "paired is narrower than two models on rows of their own"
    said = gap.to_dict()
    assert said["auroc"]["interval"] == [gap.auroc.low, gap.auroc.high]
    assert [c["name"] for c in said["clients"]] == ["a", "b", "c"]


def test_equal_rankings_have_no_difference():
    s, y = made()
    gap = difference(*(rank(x, y, [0, 300], ["a"]) for x in (s, 2 * s)))
    for name in (*FIGURES, "within_site_auroc"):
        assert getattr(gap, name).to_dict() == {"value": 0.0, "interval": [0.0, 0.0]}


def test_small_sites_ranked_alike_by_chance_are_not_the_same_model():
    gap = difference(
        *(rank(s, [1, 0] * 3, [0, 2, 4, 6], list("abc")) for s in ([2, 1, 4, 3, 6, 5], [6, 5, 4, 3, 2, 1]))
    )
    assert gap.within_site_auroc.value == 0
    assert gap.within_site_auroc.high > 0.2


def test_a_model_without_a_figure_has_no_difference():
    sick = rank([0.1, 0.9], [1, 1], [0, 2], ["a"])
    assert difference(sick, sick).auroc is None


@pytest.mark.parametrize("change", [{"labels": [1, 1, 0]}, {"offsets": [0, 1, 3], "names": "ab"}, {"units": [0, 0, 1]}])
def test_other_rows_cannot_be_compared(change):
    given = {"labels": [0, 1, 1], "offsets": [0, 3], "names": "a"}
    ours, theirs = (rank([0.1, 0.2, 0.3], **{**given, **more}) for more in ({}, change))
    with pytest.raises(BadInput, match=next(iter(change))):
        difference(ours, theirs)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scores": [0.1, 0.2]}, "labels.shape"),
        ({"scores": [0.1, float("nan"), 0.3]}, "scores = 'not finite'"),
        ({"offsets": [0, 2]}, r"offsets = \[0, 2\]: must run from 0 up to 3"),
        ({"offsets": [0, 2, 1, 3]}, "offsets = "),
        ({"offsets": 3}, "offsets = 3"),
        ({"offsets": ["x"]}, "offsets = "),
        ({"names": ["a", "b"]}, r"len\(offsets\) = 2: 2 clients need 3 offsets"),
        ({"labels": [1, float("nan"), 0]}, r"labels\[1\] = None: the label is missing; leave the row out"),
        ({"labels": [1, None, 0]}, r"labels\[1\] = None: the label is missing"),
        ({"labels": ["yes", "no", "no"]}, "labels = '<U3': must be numbers, above 0 for a positive row"),
        ({"units": [1, float("nan"), float("nan")]}, r"units\[1\] = None: is missing"),
        ({"units": ["a", None, None]}, r"units\[1\] = None: is missing"),
        ({"units": [1, 2]}, r"units\.shape = \(2,\): name the unit of each of the 3 rows"),
    ],
)
def test_arguments_that_cannot_be_are_named(change, message):
    given = {"scores": [0.1, 0.2, 0.3], "labels": [0, 1, 1], "offsets": [0, 3], "names": ["a"], **change}
    with pytest.raises(BadInput, match=message):
        rank(**given)


def test_positives_are_labels_above_zero():
    found = rank([0.9, 0.8, 0.7, 0.2, 0.1], [1, 1, 0, 2, -1], [0, 5], ["a"])
    for ranked in (found.pooled, *found.clients):
        assert (ranked.positives, ranked.negatives, ranked.single_class) == (3, 2, False)


def test_many_rows_and_many_clients_are_quick():
    s, y = made(200_000, 0.1)
    for clients in (20, 10_000):
        began = time.process_time()
        rank(s, y, np.linspace(0, 200_000, clients + 1).astype(int), [str(i) for i in range(clients)])
        assert time.process_time() - began < 4


def test_a_figure_is_a_value():
    with pytest.raises(FrozenInstanceError):
        RankingFigures("a", 1, 1).positives = 2


def test_the_band_holds_the_curve_and_narrows():
    def width(n):
        s, y = made(n)
        found = rank(s, y, [0, n], ["a"])
        band = pooled_band(found, draws=100)
        height = np.interp(band.fpr, *found.curve())
        assert (band.low <= height).all()
        assert (height <= band.high).all()
        assert band.low.min() >= 0
        assert band.high.max() <= 1
        return (band.high - band.low).max()

    assert width(4000) < 0.5 * width(300) < 0.3
    assert pooled_band(rank([1.0], [1], [0, 1], ["a"])) is None


def test_the_band_of_clients_leaves_out_those_without_figures():
    s, y = made(300)
    s[290:] = np.where(y[290:], -9, 9)  # a client of ten rows, all wrong
    found = rank(s, y, [0, 150, 290, 300], ["a", "b", "c"])
    band, alone = client_band(found), client_band(rank(s[:290], y[:290], [0, 150, 290], ["a", "b"]))
    assert np.array_equal(band.low, alone.low)
    assert (band.low <= band.high).all()
    assert client_band(rank([1.0], [1], [0, 1], ["a"])) is None


def test_the_band_without_draws_is_wilsons_with_one_degree_of_freedom_less_than_the_rarer_class():
    found = rank([0.1, 0.4, 0.35, 0.8, 0.7, 0.2, 0.9, 0.3], [0, 0, 1, 1, 1, 0, 0, 0], [0, 8], ["a"])
    band, height = pooled_band(found, draws=0), np.interp(GRID, *found.curve())
    low, high = wilson(height, np.zeros(101), np.full(101, 3.0), np.full(101, student.ppf(0.975, 2)))
    np.testing.assert_allclose(band.low, np.minimum(low, height), atol=1e-9)
    np.testing.assert_allclose(band.high, np.maximum(high, height), atol=1e-9)


def test_models_without_rows_have_no_difference():
    nothing = rank([], [], [0, 0], ["a"])
    assert difference(nothing, nothing).auroc is None
