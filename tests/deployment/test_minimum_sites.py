"""How many answers an average of remote clients needs: as the run asks, and as the policies of sites ask."""

import numpy as np
import pytest

from fedsaddle.deployment.courier import Courier, Patience
from fedsaddle.deployment.remote_clients import RemoteClients
from fedsaddle.deployment.secure_clients import SecureClients
from fedsaddle.errors import NobodyAnswered


class Expected:
    def of(self, task, sent):
        return object()


def local_sgd(own, sent, site):
    raise NotImplementedError


def clients(monkeypatch, minimum, minimum_sites):
    """Six sites; what a collection is told that it needs is listed."""
    needed = []

    def collect(self, clients, least, *rest):
        needed.append(least)
        return {}

    monkeypatch.setattr(Courier, "collect", collect)
    courier = Courier(None, tuple("abcdef"), Patience(minimum=minimum))
    made = RemoteClients(courier, np.ones(6, dtype=np.int64), "run", "print", Expected())
    made.minimum_sites = minimum_sites
    return made, needed


@pytest.mark.parametrize(
    ("minimum", "policies", "cohort", "least"),
    [
        (2, 1, 6, 2),
        (2, 3, 6, 3),  # policies ask for more
        (5, 3, 6, 5),  # the run does
        (5, 3, 4, 3),  # two sites were not asked: the run needs 3 of these
        (5, 1, 4, 3),
        (1, 1, 3, 0),
        (1, 2, 3, 2),
    ],
)
def test_an_average_is_of_as_many_sites_as_the_stricter_asks(monkeypatch, minimum, policies, cohort, least):
    made, needed = clients(monkeypatch, minimum, policies)
    made._collect(list(range(cohort)), local_sgd, None, 0)
    assert needed == [least]


def test_a_cohort_below_the_policies_is_not_asked(monkeypatch):
    made, needed = clients(monkeypatch, 1, 4)
    with pytest.raises(NobodyAnswered, match="a cohort of 3 sites; policies of sites ask for averages of at least 4"):
        made.ask([0, 1, 2], local_sgd, None)
    assert needed == []


def test_sums_of_replies_that_are_not_known_beforehand_are_of_three_sites():
    """Where a task cannot run on placeholder rows, its reply may have averaged fields: two sites are too few."""

    class Unknown:
        def of(self, task, sent):
            return None

    made = SecureClients(Courier(None, tuple("abcdef")), np.ones(6, dtype=np.int64), "run", "print", Unknown())
    with pytest.raises(NobodyAnswered, match="a sum of 2 sites; secure aggregation needs at least 3"):
        made.ask([0, 1], local_sgd, None)


def test_text_of_others_is_cut_before_it_is_made_visible():
    """Twice what is shown is looked at: what lies behind is neither shown nor worth its time."""
    from fedsaddle.deployment.messages import MAX_DETAIL, shown_text

    half = MAX_DETAIL // 2
    assert shown_text("a" * MAX_DETAIL) == "a" * MAX_DETAIL
    found = shown_text("a" * MAX_DETAIL + "b" * MAX_DETAIL + "c" * MAX_DETAIL)
    assert found == "a" * half + " ... " + "b" * half
