import pytest
import torch

from fedsaddle.numerics.tensors import Running


def test_the_mean_of_what_was_added():
    vectors = torch.randn(7, 2, 3)
    running = Running()
    for k, v in enumerate(vectors, start=1):
        running.add(v)
        torch.testing.assert_close(running.mean, vectors[:k].mean(0), rtol=0, atol=1e-14)
    assert running.count == 7


def test_what_was_added_is_left_alone():
    a, b = torch.ones(3), torch.full((3,), 2.0)
    running = Running()
    running.add(a)
    running.add(b)
    first = running.mean
    running.add(b)
    assert a.tolist() == [1, 1, 1]
    assert b.tolist() == [2, 2, 2]
    assert first.tolist() == [1.5, 1.5, 1.5]


def test_an_expanded_vector_can_be_added():
    running = Running()
    running.add(torch.ones(3).expand(2, 3))
    running.add(torch.zeros(2, 3))
    assert running.mean.tolist() == [[0.5] * 3] * 2


def test_the_mean_of_nothing():
    with pytest.raises(ValueError, match="nothing"):
        _ = Running().mean


def test_one_more_vector():
    vectors = torch.randn(6, 4)
    mean = None
    for before, v in enumerate(vectors):
        mean = Running.over(mean, v, before)
        torch.testing.assert_close(mean, vectors[: before + 1].mean(0), rtol=0, atol=1e-14)


def test_nothing_new_keeps_the_mean():
    mean = torch.randn(4)
    assert Running.over(mean, None, 3) is mean
    assert Running.over(None, None, 0) is None
