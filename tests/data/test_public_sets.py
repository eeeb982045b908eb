"""The public data sets: parsing on made-up text, and exact counts on the real files."""

from __future__ import annotations

import json
import string
from pathlib import Path

import numpy as np
import pytest

from fedsaddle.data.federated import federate
from fedsaddle.data.sets import shakespeare as shakespeare_module
from fedsaddle.data.sets.adult import FEATURES, NUMERIC, adult, parse_adult
from fedsaddle.data.sets.pictures import fashion_mnist, parse_idx
from fedsaddle.data.sets.shakespeare import UNKNOWN, VOCABULARY, cut_windows, decode, encode, shakespeare
from fedsaddle.data.splits import ByColumn
from fedsaddle.errors import BadInput, MissingData


def test_idx_is_parsed_by_its_header() -> None:
    header = bytes([0, 0, 8, 2]) + (2).to_bytes(4, "big") + (3).to_bytes(4, "big")
    assert parse_idx(header + bytes(range(6))).tolist() == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.data
@pytest.mark.usefixtures("real_data")
def test_fashion_mnist() -> None:
    data = fashion_mnist()
    data.check()
    assert data.test is not None
    assert np.bincount(data.train.y).tolist() == [6000] * 10
    assert np.bincount(data.test.y).tolist() == [1000] * 10
    assert data.train.x.shape == (60000, 784)
    assert data.test.x.shape == (10000, 784)
    assert data.train.x.mean(dtype=np.float64) == pytest.approx(0, abs=2e-4)
    assert data.train.x.std(dtype=np.float64) == pytest.approx(1, abs=2e-3)
    images = fashion_mnist(images=True).train.x
    assert images.shape == (60000, 1, 28, 28)
    assert (images.reshape(60000, 784) == data.train.x).all()


ADULT_LINES = """|1x3 Cross validator
25, Private, 226802, 11th, 7, Never-married, Sales, Own-child, Black, Male, 0, 0, 40, United-States, <=50K.
38, ?, 89814, HS-grad, 9, Divorced, ?, Husband, White, Female, 7688, 0, 50, Cuba, >50K.

"""


def test_adult_traps() -> None:
    raw = parse_adult(ADULT_LINES)
    assert raw["sex"].tolist() == ["Male", "Female"]
    assert raw["workclass"].tolist() == ["Private", "?"]
    assert raw["income"].tolist() == ["<=50K.", ">50K."]


def test_adult_has_two_encodings() -> None:
    with pytest.raises(BadInput, match="encoding = 'hot'"):
        adult("hot")  # type: ignore[arg-type]


@pytest.mark.data
@pytest.mark.usefixtures("real_data")
def test_adult() -> None:
    data = adult()
    data.check()
    assert data.test is not None
    train, test = data.train, data.test
    assert train.x.shape == (32561, 14)
    assert test.x.shape == (16281, 14)
    assert (train.y.sum(), test.y.sum()) == (7841, 3846)
    assert (train.columns["sex"] == "Female").sum() == 10771
    values, counts = np.unique(train.columns["race"], return_counts=True)
    assert dict(zip(values.tolist(), counts.tolist(), strict=True)) == {
        "White": 27816,
        "Black": 3124,
        "Asian-Pac-Islander": 1039,
        "Amer-Indian-Eskimo": 311,
        "Other": 271,
    }
    np.testing.assert_allclose(train.x.mean(0, dtype=np.float64), 0, atol=1e-5)
    np.testing.assert_allclose(train.x.std(0, dtype=np.float64), 1, rtol=1e-4)
    # The test rows are scaled by the training statistics: near 0, not at 0.
    assert 0 < np.abs(test.x.mean(0)).max() < 0.1
    has_no_gap = np.all([train.columns[c] != "?" for c in train.columns], axis=0)
    assert has_no_gap.sum() == 30162
    male = train.x[:, FEATURES.index("sex")] > 0
    assert (male == (train.columns["sex"] == "Male")).all()


@pytest.mark.data
@pytest.mark.usefixtures("real_data")
def test_adult_one_hot() -> None:
    data = adult(encoding="onehot")
    data.check()
    assert data.test is not None
    categories = sum(len(np.unique(v)) for v in data.train.columns.values())
    assert data.train.x.shape[1] == data.test.x.shape[1] == categories + len(NUMERIC) == 108
    coded = [i for i, name in enumerate(data.train.features) if "=" in name]
    assert (data.train.x[:, coded].sum(1) == 8).all()
    assert (data.test.x[:, coded].sum(1) == 8).all()
    female = data.train.features.index("sex=Female")
    assert data.train.x[:, female].sum() == 10771


@pytest.mark.data
@pytest.mark.usefixtures("real_data")
def test_adult_on_ten_nodes_by_sex_and_by_race() -> None:
    data = adult()
    by_sex = federate(data, ByColumn("sex", clients=10))
    assert by_sex.test is not None
    assert sorted(by_sex.train.sizes.tolist()) == [2154] * 4 + [2155] + [4358] * 5
    assert by_sex.test.sizes[:5].sum() == 5421
    by_race = federate(data, ByColumn("race", clients=10))
    assert by_race.names[:3] == ("Amer-Indian-Eskimo 1", "Amer-Indian-Eskimo 2", "Asian-Pac-Islander 1")
    assert by_race.train.sizes.reshape(5, 2).sum(1).tolist() == [311, 1039, 3124, 271, 27816]


def test_the_vocabulary_has_86_places() -> None:
    assert len(VOCABULARY) == len(set(VOCABULARY)) == 86
    assert set(string.ascii_letters + string.digits + " \n") < set(VOCABULARY)


def test_text_survives_coding_and_strange_characters_become_unknown() -> None:
    assert decode(encode("To be, or not to be?\nAy.")) == "To be, or not to be?\nAy."
    assert encode("é\x7f世\r~").tolist() == [UNKNOWN] * 5 == [85] * 5
    assert len(encode("")) == 0


def test_windows_do_not_overlap_and_targets_are_one_further() -> None:
    x, y = cut_windows("abcdefghij", 3)
    assert [decode(r) for r in x] == ["abc", "def", "ghi"]
    assert [decode(r) for r in y] == ["bcd", "efg", "hij"]
    assert cut_windows("abc", 3)[0].shape == cut_windows("", 3)[0].shape == (0, 3)


@pytest.fixture
def own_plays(tmp_path: Path) -> Path:
    speeches = {f"play/S{i}": ["x" * 5, "y" * (10 * i)] for i in range(6)}
    path = tmp_path / "plays.json"
    path.write_text(json.dumps({"speeches": speeches}))
    return path


def test_speakers_with_enough_windows_are_chosen_by_seed(own_plays: Path) -> None:
    def chosen(**options: int | None) -> list[str]:
        table = shakespeare(sequence_length=5, min_windows=3, path=own_plays, **options).train  # type: ignore[arg-type]
        table.check()
        assert table.x.shape == table.y.shape == (len(table), 5)
        return list(np.unique(table.columns["speaker"]))

    everyone = [f"play/S{i}" for i in range(1, 6)]
    assert chosen(clients=None) == chosen(clients=5) == everyone
    assert len(chosen(clients=2)) == 2
    assert chosen(clients=2, seed=1) == chosen(clients=2, seed=1)
    assert len({tuple(chosen(clients=2, seed=s)) for s in range(8)}) > 1
    with pytest.raises(BadInput, match="clients = 6: 5 speakers have at least 3 windows"):
        chosen(clients=6)


def test_bad_plays_are_refused(own_plays: Path) -> None:
    with pytest.raises(BadInput, match="sequence_length = 0"):
        shakespeare(sequence_length=0, path=own_plays)
    with pytest.raises(BadInput, match="min_windows = 0"):
        shakespeare(min_windows=0, path=own_plays)
    with pytest.raises(MissingData, match="nowhere"):
        shakespeare(path=own_plays.parent / "nowhere.json")
    own_plays.write_text("[1, 2]")
    with pytest.raises(BadInput, match="speeches"):
        shakespeare(path=own_plays)


@pytest.mark.data
@pytest.mark.usefixtures("real_data")
def test_shakespeare() -> None:
    speeches = shakespeare_module._stored_speeches(None)
    assert len(speeches) == 1370
    text = "\n".join("\n".join(said) for said in speeches.values())
    codes = encode(text)
    assert (codes != UNKNOWN).all()
    assert len(np.unique(codes)) == 76
    data = shakespeare()
    data.check()
    names, windows = np.unique(data.train.columns["speaker"], return_counts=True)
    assert len(names) == 100
    assert windows.min() >= 10
    assert data.train.x.shape[1] == 50
    everyone = shakespeare(clients=None).train
    assert len(np.unique(everyone.columns["speaker"])) == 818
    # Within a speaker, the last target of a window is the first character of the next one.
    same = everyone.columns["speaker"][1:] == everyone.columns["speaker"][:-1]
    assert (everyone.y[:-1, -1] == everyone.x[1:, 0])[same].all()
