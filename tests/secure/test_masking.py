"""What the server can and cannot see: masks, lost, late and repeated replies, keys."""

from __future__ import annotations

import itertools
import secrets
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsaddle.errors import BadMessage, Refused
from fedsaddle.federation.records import Averaged, PerClient
from fedsaddle.secure.fixed_point import (
    LARGEST_VALUE,
    NotFiniteField,
    OutOfRange,
    decode,
    encode,
    layout_of,
    read_layout,
    share_word,
    shares_of,
    sum_of,
    to_bytes,
    too_few,
)
from fedsaddle.secure.keys import RunKeys, new_signing_key, roster_of, sign, signing_public, verify
from fedsaddle.secure.masking import Question, SiteMasks, unmask_


@dataclass(frozen=True)
class Reply:
    w: Averaged
    h: Averaged
    loss: PerClient


def reply(w, h=1.0, dtype=torch.float32) -> Reply:
    return Reply(torch.as_tensor(w, dtype=dtype)[None], torch.tensor([h], dtype=torch.float64), torch.zeros(1))


def sites(n: int) -> dict[int, SiteMasks]:
    keys = [RunKeys.new() for _ in range(n)]
    publics = {i: own.public for i, own in enumerate(keys)}
    return {i: SiteMasks(i, own, publics, b"run") for i, own in enumerate(keys)}


class Exchange:
    """One exchange of some sites: what each sent, and what the server makes of it."""

    rounds = itertools.count()

    def __init__(self, values, made=None, weights=None, digest=None, cohort=None, when=None):
        self.made = made or sites(len(values))
        self.cohort = cohort or list(range(len(values)))
        self.nonce = secrets.token_hex(8)
        shares = shares_of(np.ones(len(values)) if weights is None else np.asarray(weights, dtype=float))
        when = when or (next(self.rounds), 0)
        self.question = Question(digest or secrets.token_bytes(32), tuple(self.cohort), tuple(shares.tolist()), when)
        self.plain = {i: encode(v, s) for i, v, s in zip(self.cohort, values, shares, strict=True)}
        self.layout = layout_of(values[0])
        self.sent = {}
        for i in self.cohort:
            words = self.plain[i].copy()
            self.made[i].hide_(words, self.question)
            self.made[i].log(self.nonce, self.question, "")
            self.sent[i] = sum_of([to_bytes(words, self.layout)], self.layout)

    def total(self, alive):
        opened = {i: self.made[i].open(self.nonce, alive) for i in alive}
        return unmasked(self.sent, alive, opened, set(self.cohort) - set(alive))

    def expected(self, alive):
        return np.sum([self.plain[i] for i in alive], axis=0, dtype=np.uint64)


def unmasked(sent, alive, opened, lost):
    total = np.sum([sent[i] for i in alive], axis=0, dtype=np.uint64)
    unmask_(total, alive, opened, lost)
    return total


def same_sum(a, b, layout) -> bool:
    return bool(torch.equal(to_bytes(a, layout), to_bytes(b, layout)))


def values(n, d=50, seed=0):
    g = torch.Generator().manual_seed(seed)
    return [reply(10 * torch.randn(d, generator=g), float(i)) for i in range(n)]


@pytest.mark.parametrize("n", [3, 5, 6])
def test_the_sum_of_every_possible_set_of_survivors_is_exact(n):
    made = sites(n)
    for size in range(3, n + 1):
        for alive in itertools.combinations(range(n), size):
            exchange = Exchange(values(n), made)
            assert same_sum(exchange.total(alive), exchange.expected(alive), exchange.layout)


def bits_of(sent, layout):
    return np.unpackbits(to_bytes(sent, layout).numpy())


@pytest.mark.parametrize("value", [0.0, 1.0, -LARGEST_VALUE, "random"], ids=str)
def test_what_the_server_sees_of_one_site_is_uniform_whatever_it_sends(value):
    """Bits, bytes and their neighbours as often as by chance: the standard scores stay below 4.5."""
    d = 20_000
    w = torch.randn(d) if value == "random" else torch.full((d,), value)
    exchange = Exchange([reply(w) for _ in range(3)])
    for sent in exchange.sent.values():
        seen = to_bytes(sent, exchange.layout).numpy()
        bits = np.unpackbits(seen)
        assert abs(bits.mean() - 0.5) * 2 * np.sqrt(len(bits)) < 4.5
        counts = np.bincount(seen, minlength=256)
        chi = ((counts - len(seen) / 256) ** 2 / (len(seen) / 256)).sum()
        assert abs(chi - 255) / np.sqrt(2 * 255) < 4.5
        columns = np.unpackbits(sent[:d].view(np.uint8).reshape(d, 8)[:, :7], axis=1).mean(0)  # each bit of a word
        assert np.abs(columns - 0.5).max() * 2 * np.sqrt(d) < 4.8
        pairs = (bits[:-1] == bits[1:]).mean()
        assert abs(pairs - 0.5) * 2 * np.sqrt(len(bits) - 1) < 4.5


def test_the_test_of_uniformity_sees_what_is_not_masked():
    exchange = Exchange([reply(torch.randn(1000)) for _ in range(3)])
    bits = bits_of(exchange.plain[0], exchange.layout)
    assert abs(bits.mean() - 0.5) * 2 * np.sqrt(len(bits)) > 4.5 or (bits[:-1] == bits[1:]).mean() > 0.52


def test_a_late_reply_stays_masked():
    """The server has the reply of the lost site, and all that the others opened: its own mask is still there."""
    made = sites(5)
    first = Exchange([reply(torch.full((20_000,), 3.0)) for _ in range(5)], made)
    alive = [0, 1, 2, 3]
    opened = {i: made[i].open(first.nonce, alive) for i in alive}
    with_late = {**{i: first.sent[i] for i in alive}, 4: first.sent[4]}
    total = unmasked(first.sent, alive, opened, {4})
    rest = np.sum(list(with_late.values()), axis=0, dtype=np.uint64) - total  # all that the late reply could tell
    seen = rest[:20_000].view(np.uint8).reshape(-1, 8)[:, :7]
    assert np.abs(np.unpackbits(seen, axis=1).mean(0) - 0.5).max() * 2 * np.sqrt(20_000) < 4.8
    with pytest.raises(Refused, match="opened for another set"):
        made[0].open(first.nonce, [0, 1, 2, 3, 4])
    with pytest.raises(Refused, match="with this site in it"):
        made[4].open(first.nonce, alive)


def test_sites_that_are_told_different_sets_open_nothing():
    """Site 4 is told that all answered, the others that site 4 is lost: the server can read neither seal."""
    made = sites(5)
    exchange = Exchange(values(5), made)
    opened = {i: made[i].open(exchange.nonce, [0, 1, 2, 3]) for i in range(4)}
    opened[4] = made[4].open(exchange.nonce, [0, 1, 2, 3, 4])
    with pytest.raises(BadMessage):
        unmasked(exchange.sent, range(5), opened, ())
    mixed = {i: made[i].open(exchange.nonce, [0, 1, 2, 3]) for i in range(3)}
    mixed[3] = opened[4]  # takes the place of an honest opening
    with pytest.raises(BadMessage):
        unmasked(exchange.sent, range(4), mixed, {4})


def test_a_repeated_question_gets_the_same_bytes_and_never_others():
    made = sites(3)
    first = Exchange(values(3), made)
    again = Exchange(values(3), made, digest=first.question.digest)
    assert all(np.array_equal(first.sent[i], again.sent[i]) for i in range(3))
    made[0].log(first.nonce, first.question, "")
    with pytest.raises(Refused, match="used once only"):
        made[0].log(first.nonce, first.question, "another reply")
    with pytest.raises(Refused, match="used once only"):
        made[0].log(first.nonce, replace(first.question, digest=secrets.token_bytes(32)), "")
    other = Exchange(values(3), made)
    assert not np.array_equal(first.sent[0], other.sent[0])  # another question, another mask


def test_what_a_site_never_opens():
    made = sites(5)
    exchange = Exchange(values(5), made)
    for alive, reason in (
        ([0, 1], "at least 3"),
        ([1, 2, 3], "with this site in it"),
        ([0, 1, 7], "not a part of those asked"),
        ([0, 1, 1], "not a part of those asked"),
    ):
        with pytest.raises(Refused, match=reason):
            made[0].open(exchange.nonce, alive)
    with pytest.raises(Refused, match="has not answered"):
        made[0].open("another", [0, 1, 2])
    assert made[0].answers.get(exchange.nonce).opened is None


@pytest.mark.parametrize(
    ("cohort", "weights", "reason"),
    [
        ([0, 1], [1, 1], "at least 3"),
        ([0, 1, 2], [1, 0, 0], "of the largest weight"),
        ([0, 1, 2, 3], [1, 1, 1e-9, 0], "of the largest weight"),
        ([1, 2, 3], [1, 1, 1], "not at all"),
        ([0, 1, 1], [1, 1, 1], "twice"),
        ([0, 1, 9], [1, 1, 1], "not at all"),
    ],
)
def test_cohorts_that_a_site_refuses(cohort, weights, reason):
    question = Question(bytes(32), tuple(cohort), tuple(shares_of(np.array(weights, float))))
    with pytest.raises(Refused, match=reason):
        sites(5)[0].hide_(np.zeros(4, np.uint64), question)


def test_all_weights_zero_is_a_sum_of_nothing():
    exchange = Exchange(values(3), weights=[0, 0, 0])
    found = decode(exchange.total([0, 1, 2]), exchange.layout)
    assert not found["w"].any()
    assert too_few([0, 0, 0]) == ""


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_what_is_not_finite_is_refused_before_it_is_masked(bad):
    with pytest.raises(NotFiniteField, match="'w' that is not finite"):
        encode(reply([1.0, bad]), 0.5)


def test_what_is_out_of_range_is_refused_and_the_edge_does_not_overflow():
    with pytest.raises(OutOfRange, match=r"'w' beyond ±4,194,304") as error:
        encode(reply([5e6]), 0.1)
    assert "5" not in str(error.value).replace("±4,194,304", "")
    for edge in (LARGEST_VALUE, -LARGEST_VALUE):
        exchange = Exchange([reply([edge], dtype=t) for t in [torch.float64] * 7])
        assert decode(exchange.total(range(7)), exchange.layout)["w"].tolist() == pytest.approx([edge], abs=1e-9)


@settings(max_examples=30, deadline=None)
@given(
    st.lists(
        st.tuples(st.floats(-LARGEST_VALUE, LARGEST_VALUE, width=32), st.floats(0.001, 1e6)), min_size=1, max_size=9
    ),
    st.sampled_from([torch.float32, torch.float64]),
)
def test_the_fixed_point_is_the_mean_to_its_step(pairs, dtype):
    weights = np.array([w for _, w in pairs])
    shares = shares_of(weights)
    replies = [reply([v], dtype=dtype) for v, _ in pairs]
    words = np.sum([encode(r, s) for r, s in zip(replies, shares, strict=True)], axis=0, dtype=np.uint64)
    found = float(decode(words, layout_of(replies[0]))["w"][0])
    mean = float(np.average([v for v, _ in pairs], weights=weights))
    step = 2.0**-40 if dtype is torch.float64 else 2.0**-32
    assert abs(found - mean) <= len(pairs) * step + 1e-15 * LARGEST_VALUE + (abs(mean) * 2**-23 if step > 1e-11 else 0)


@pytest.mark.parametrize(("dtype", "bits"), [(torch.float32, 32), (torch.float64, 40)])
def test_each_number_is_rounded_to_the_nearest_step(dtype, bits):
    """Not downwards: sums of many clients would drift by half a step for each."""
    steps = [0.0, 0.25, 0.5, 0.75, 1.25, 1.75, 2.5, -0.25, -0.75, -1.25, -1.75, 3.0]
    for share in (1.0, 0.5):
        words = encode(reply([k * 2.0**-bits / share for k in steps], dtype=dtype), share).view(np.int64)
        assert words[: len(steps)].tolist() == [0, 0, 0, 1, 1, 2, 2, 0, -1, -1, -2, 3]
        assert words[-1] == share * 2**60
    assert [share_word(k * 2.0**-60) for k in (0.25, 0.75, 1.75)] == [0, 1, 2]


@pytest.mark.parametrize(
    ("told", "fits"),
    [
        ([["w", "float32", [2**48 - 1, 0]]], True),
        ([["w", "float64", [1] * 8]] * 64, True),
        ([], True),
        ([["w", "float32", [2**48]]], False),
        ([["w", "float32", [-1]]], False),
        ([["w", "float32", [True]]], False),
        ([["w", "float32", [1] * 9]], False),
        ([["w", "float32", [1]]] * 65, False),
        ([["w", "int64", [1]]], False),
        ([["w", "float32", (1,)]], False),
        ([[3, "float32", [1]]], False),
        ([["w", "float32"]], False),
        ({}, False),
    ],
)
def test_a_layout_that_is_told_is_checked(told, fits):
    if fits:
        assert [one.to_list() for one in read_layout(told)] == told
    else:
        with pytest.raises(BadMessage, match="without a list of its fields"):
            read_layout(told)


def test_signed_keys():
    private, names = new_signing_key(), ["a", "b", "c"]
    known, public = signing_public(private), RunKeys.new().public
    signature = sign(private, "run", "a", names, public)
    assert verify(known, signature, "run", "a", names, public)
    for changed in (
        ("other", "a", names, public),
        ("run", "b", names, public),
        ("run", "a", names[:2], public),
        ("run", "a", names, RunKeys.new().public),
    ):
        assert not verify(known, signature, *changed)
    assert not verify(signing_public(new_signing_key()), signature, "run", "a", names, public)
    assert not verify(b"short", b"", "run", "a", names, public)
    with pytest.raises(Refused, match="an invalid public key"):
        RunKeys.new().pair(bytes(32), b"run", b"0,1")


def test_a_pair_has_the_same_key_at_both_ends_and_another_in_each_run():
    a, b = RunKeys.new(), RunKeys.new()
    key = a.pair(b.public, b"run", b"0,1")
    assert key == b.pair(a.public, b"run", b"0,1")
    assert key not in (a.pair(b.public, b"other", b"0,1"), a.pair(b.public, b"run", b"0,2"))
    names, publics = ["a", "b"], [a.public, b.public]
    found = {roster_of("run", names, publics), roster_of("run", names[::-1], publics[::-1]), roster_of("r", names, [])}
    assert len(found) == 3  # other sites, or others in the same place


def test_sites_of_no_weight_hide_nobody():
    """The cohort has three sites that count; a set of one of them and two of weight 0 would open its reply."""
    made = sites(5)
    exchange = Exchange(values(5), made, weights=[1, 0, 0, 1, 1])
    with pytest.raises(Refused, match="of the largest weight"):
        made[0].open(exchange.nonce, [0, 1, 2])
    assert same_sum(exchange.total([0, 1, 3, 4]), exchange.expected([0, 1, 3, 4]), exchange.layout)


def test_a_policy_can_ask_for_more_sites_in_a_sum():
    made = sites(5)
    made[0].least = 5
    exchange = Exchange(values(5), made)
    with pytest.raises(Refused, match="a sum of 4 sites; secure aggregation needs at least 5"):
        made[0].open(exchange.nonce, [0, 1, 2, 3])
    with pytest.raises(Refused, match="a sum of 4 sites"):
        Exchange(values(4), made)


def test_a_site_that_signs_the_key_of_another_one_as_its_own_learns_nothing_of_it():
    """Site 4 tells site 0's public key as its own and is then lost: the others open what they share with it. Had a
    pair's masks depended on the keys alone, that would be what they share with site 0."""
    made = sites(5)
    publics = {**made[0].publics, 4: made[0].publics[0]}
    made = {i: replace(one, publics=publics) for i, one in made.items()}
    question = Question(bytes(32), (0, 1, 2, 3, 4), (0.2,) * 5)
    for i in (1, 2, 3):
        assert made[i]._seed(question, 4) != made[i]._seed(question, 0)
        assert made[i]._agreed(question, (0, 1, 2, 3), 4, i) != made[i]._agreed(question, (0, 1, 2, 3), 0, i)


def test_what_was_masked_among_one_list_of_sites_is_not_opened_among_another():
    """The server has the sites agree once more, in another order: no mask of before is told."""
    made = sites(4)
    exchange = Exchange(values(4), made)
    others = {i: replace(one, roster=b"another", _pairs={}) for i, one in made.items()}
    opened = {i: others[i].open(exchange.nonce, range(4)) for i in range(4)}
    found = unmasked(exchange.sent, range(4), opened, ())
    assert not same_sum(found, exchange.expected(range(4)), exchange.layout)
    assert abs(int(found[:50].view(np.int64).max())) > 2**50  # the masks are still there


@pytest.mark.parametrize(
    ("again", "alive"), [({"cohort": [0, 1, 2, 3]}, range(4)), ({"weights": [2, 1, 1, 1, 1]}, range(5)), ({}, range(4))]
)
def test_one_sum_is_opened_in_an_exchange_of_a_round(again, alive):
    """A server asks twice with one byte changed, so that the masks are others, and wants the difference of two sums."""
    made = sites(5)
    exchange = Exchange(values(5), made, when=(3, 1))
    exchange.total(range(5))
    same = Exchange(values(5, seed=1), made, when=(3, 1))  # a run that is resumed asks again
    assert same_sum(same.total(range(5)), same.expected(range(5)), same.layout)
    more = Exchange(values(len(again.get("cohort", range(5)))), made, when=(3, 1), **again)
    with pytest.raises(Refused, match="the masks of another sum were opened"):
        more.total(alive)
    more = Exchange(values(4), made, when=(4, 1), cohort=[0, 1, 2, 3])
    assert same_sum(more.total(range(4)), more.expected(range(4)), more.layout)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_every_field_of_a_sum_is_read_where_it_stands(dtype):
    """Two fields of several numbers: each mean is that of its own words, through the bytes that are sent."""
    values, shares = ([[1.5, -2.0, 0.25], [0.5, 4.0, 1.0]], [3.0, -7.0]), [0.25, 0.75]
    replies = [reply(w, h, dtype) for w, h in zip(*values, strict=True)]
    layout = layout_of(replies[0])
    sent = [to_bytes(encode(one, share), layout) for one, share in zip(replies, shares, strict=True)]
    found = decode(sum_of(sent, layout), layout)
    torch.testing.assert_close(found["w"], torch.tensor([0.75, 2.5, 0.8125], dtype=dtype), rtol=0, atol=1e-9)
    assert float(found["h"]) == pytest.approx(-4.5, abs=1e-11)
    assert {name: (v.dtype, tuple(v.shape)) for name, v in found.items()} == {
        "w": (dtype, (3,)),
        "h": (torch.float64, ()),
    }
