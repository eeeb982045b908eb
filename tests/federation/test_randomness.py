"""Draws are functions of (seed, round, exchange, client, step, stream), and good ones."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import chi2

from fedsaddle.federation.randomness import ClientKeys, hash_words, server_generator


def words(seed=1, round=2, exchange=0, client=3, step=4, stream=0):
    return ClientKeys.of(seed, round, exchange, np.array([client])).words(step, 5, stream)[0].tolist()


def uniform_p(counts: np.ndarray) -> float:
    """The p-value of Pearson's test that all cells are equally likely."""
    expected = counts.sum() / counts.size
    return float(chi2.sf(((counts - expected) ** 2 / expected).sum(), counts.size - 1))


@pytest.mark.parametrize("argument", ["seed", "round", "exchange", "client", "step", "stream"])
def test_every_argument_counts(argument):
    found = [tuple(words(**{argument: value})) for value in (0, 1, 5, 7, 250)]
    assert len(set(found)) == 5
    everything = [w for row in found for w in row]
    assert len(set(everything)) == len(everything), "no word may come twice"


def test_arguments_are_not_interchangeable():
    names = ["seed", "round", "exchange", "client", "step", "stream"]
    base = dict.fromkeys(names, 7)
    found = {tuple(words(**(base | {name: 8}))) for name in names}
    assert len(found) == len(names)


def test_the_same_arguments_give_the_same_words():
    assert words() == words()


def test_a_client_does_not_care_who_else_was_asked():
    many = ClientKeys.of(1, 2, 0, np.array([5, 3, 9]))
    assert many.words(4, 5)[1].tolist() == words()
    sizes = np.array([4, 11, 6])
    assert (
        many.rows(sizes, 4, 5)[1].tolist() == ClientKeys.of(1, 2, 0, np.array([3])).rows(sizes[1:2], 4, 5)[0].tolist()
    )


def test_a_larger_batch_begins_with_the_smaller_one():
    keys = ClientKeys.of(0, 0, 0, np.arange(3))
    assert np.array_equal(keys.words(2, 9)[:, :4], keys.words(2, 4))


def test_steps_and_streams_do_not_overlap():
    keys = ClientKeys.of(0, 0, 0, np.arange(4))
    drawn = [keys.words(step, 50, stream) for step in range(20) for stream in (0, 1, 2, 99)]
    flat = np.concatenate([d.ravel() for d in drawn])
    assert len(np.unique(flat)) == len(flat)


def test_rows_are_in_range_and_all_are_reached():
    sizes = np.array([1, 2, 7, 50])
    rows = ClientKeys.of(3, 0, 0, np.arange(4)).rows(sizes, 0, 2000)
    assert rows.shape == (4, 2000)
    assert rows.dtype == np.int64
    for n, drawn in zip(sizes, rows, strict=True):
        assert sorted(set(drawn.tolist())) == list(range(n))


def test_rows_of_a_very_large_client():
    size = 2**31 + 11
    rows = ClientKeys.of(3, 0, 0, np.array([0])).rows(np.array([size]), 0, 4000)
    assert rows.min() >= 0
    assert rows.max() < size
    assert rows.max() > 0.99 * size


@pytest.mark.parametrize("size", [3, 10, 64])
def test_rows_are_uniform(size):
    clients = np.arange(50)
    keys = ClientKeys.of(11, 4, 1, clients)
    rows = np.concatenate([keys.rows(np.full(50, size), step, 40).ravel() for step in range(10)])
    assert uniform_p(np.bincount(rows, minlength=size)) > 1e-3


@pytest.mark.parametrize("vary", ["seed", "round", "exchange", "client", "step", "place"])
def test_neighbours_are_independent(vary):
    """Pairs of rows whose keys differ by one in one argument fill a table evenly."""
    n, sizes = 2000, np.full(1, 6)

    def row(k):
        place = {"seed": 0, "round": 0, "exchange": 0, "client": 0, "step": 0} | ({vary: k} if vary != "place" else {})
        keys = ClientKeys.of(place["seed"], place["round"], place["exchange"], np.array([place["client"]]))
        return int(keys.rows(sizes, place["step"], 1)[0, 0])

    if vary == "place":
        drawn = ClientKeys.of(0, 0, 0, np.array([0])).rows(sizes, 0, n)[0]
    else:
        drawn = np.array([row(k) for k in range(n)])
    table = np.zeros((6, 6))
    np.add.at(table, (drawn[:-1:2], drawn[1::2]), 1)
    assert uniform_p(table) > 1e-3


def test_uniforms():
    u = ClientKeys.of(5, 0, 0, np.arange(100)).uniforms(step=3, size=100, stream=7)
    assert u.shape == (100, 100)
    assert u.min() >= 0
    assert u.max() < 1
    assert uniform_p(np.histogram(u, bins=20, range=(0, 1))[0]) > 1e-3
    assert not np.array_equal(u, ClientKeys.of(5, 0, 0, np.arange(100)).uniforms(step=3, size=100, stream=8))


def test_bits_are_fair():
    w = ClientKeys.of(9, 0, 0, np.arange(200)).words(0, 100).ravel()
    for bit in range(64):
        share = float(((w >> np.uint64(bit)) & np.uint64(1)).mean())
        assert abs(share - 0.5) < 0.02, f"bit {bit}"


def test_the_hash_depends_on_every_word_and_their_order():
    found = {
        hash_words(),
        hash_words(0),
        hash_words(0, 0),
        hash_words(1, 2),
        hash_words(2, 1),
        hash_words(1, 2, 0),
        hash_words(3, 2),
    }
    assert len(found) == 7
    assert all(0 <= h < 2**64 for h in found)


def test_the_server_draws_by_seed_and_round():
    def draws(seed, round):
        return server_generator(seed, round).integers(0, 2**63, 4).tolist()

    assert draws(1, 2) == draws(1, 2)
    found = [tuple(draws(seed, round)) for seed in (0, 1, 2) for round in (0, 1, 2)]
    assert len(set(found)) == 9


def test_a_seed_may_be_large():
    assert words(seed=2**63 + 5) != words(seed=5)
    server_generator(2**64 - 1, 0)


def test_the_hash_is_split_mix():
    """The first outputs of SplitMix64 from seed 0, as its authors give them."""
    assert [hash_words(k) for k in range(3)] == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]


def test_words_rows_and_uniforms_in_plain_integers():
    """What a seed draws is the same in every release: the construction once more, without numpy."""
    gamma, all_bits = 0x9E3779B97F4A7C15, 2**64 - 1

    def mix(z):
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & all_bits
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB & all_bits
        return z ^ (z >> 31)

    def twice(z):
        return mix((mix(z & all_bits) + gamma) & all_bits)

    seed, round, exchange, client, step, stream = 5, 4, 3, 2, 7, 9
    h = 0
    for word in (seed, round, exchange):
        h = mix((h + word * gamma + gamma) & all_bits)
    key = twice(h + client * gamma)
    expected = [twice(key + ((stream << 56) + (step << 32) + place) * gamma) for place in range(4)]
    keys = ClientKeys.of(seed, round, exchange, np.array([client]))
    assert keys.words(step, 4, stream)[0].tolist() == expected
    assert keys.rows(np.array([1000]), step, 4, stream)[0].tolist() == [(w >> 32) * 1000 >> 32 for w in expected]
    assert keys.uniforms(step, 4, stream)[0].tolist() == [(w >> 11) / 2**53 for w in expected]
    assert keys.uniforms().tolist() == keys.uniforms(0, 1, 0).tolist()
