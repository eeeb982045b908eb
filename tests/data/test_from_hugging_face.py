"""Datasets of Hugging Face as clients, made in memory."""

from __future__ import annotations

import sys

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

import fedsaddle as fs

TABLE = {"age": [30.0, None, 50.0, 61.0], "sex": ["f", "m", "m", "f"], "ill": [0, 1, 0, 1], "at": ["a", "a", "b", "b"]}


def test_without_the_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(fs.BadInput, match=r'pip install "\.\[hugging-face\]"'):
        fs.from_hugging_face(TABLE, label="ill", client="at")


class TestWithThePackage:
    @pytest.fixture(autouse=True)
    def package(self):
        self.hf = pytest.importorskip("datasets")

    def table(self, **kinds):
        made = self.hf.Dataset.from_dict(TABLE)
        return made.cast(self.hf.Features({**made.features, **kinds})) if kinds else made

    def test_a_table_is_read_as_a_frame(self):
        own = fs.from_hugging_face(self.table(), label="ill", client="at")
        other = fs.from_frame(pd.DataFrame(TABLE), label="ill", site="at")
        split = fs.splits.Natural("at"), 0, 0.0
        assert torch.equal(fs.federate(own, *split).train.x, fs.federate(other, *split).train.x)
        assert fs.federate(own, *split).names == ("a", "b")

    def test_labels_keep_names_and_order(self):
        table = self.table(ill=self.hf.ClassLabel(names=["well", "ill"]))
        data = fs.from_hugging_face(table, label="ill", client="at")
        assert (data.train.classes, data.train.y.tolist()) == (("well", "ill"), [0, 1, 0, 1])
        turned = fs.from_hugging_face(table, label="ill", client="at", positive="well")
        assert (turned.train.classes, turned.train.y.tolist()) == (("ill", "well"), [1, 0, 1, 0])

    def test_pictures(self):
        rng = np.random.default_rng(0)
        kinds = self.hf.Features(
            {"image": self.hf.Image(), "label": self.hf.ClassLabel(names=["z", "a"]), "by": self.hf.Value("int64")}
        )
        pictures = [Image.fromarray(rng.integers(0, 255, (4, 4), dtype=np.uint8)) for _ in range(5)]
        rows = self.hf.Dataset.from_dict({"image": pictures, "label": [0, 1, 1, 0, -1], "by": [1, 1, 2, 2, 2]}, kinds)
        data = fs.from_hugging_face(rows, label="label", client="by", standardise=False)
        assert data.notes == ("1 rows have no label and are left out",)
        assert data.train.classes == ("z", "a")
        made = fs.federate(data, fs.splits.Natural("by"), test_share=0.0)
        assert made.train.x.shape == (4, 1, 4, 4)
        assert np.allclose(made.train.x[0, 0], np.asarray(pictures[0]) / 255)

    def test_vectors(self):
        rows = self.hf.Dataset.from_dict({"v": [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], "y": [0.5, 1.5, 2.5]})
        data = fs.from_hugging_face(rows, label="y", client=None)
        assert data.train.classes == ()
        assert fs.federate(data, fs.splits.Iid(3), test_share=0.0).train.x.shape == (3, 2)

    def test_bad_datasets(self):
        def refused(said, dataset, **changes):
            with pytest.raises(fs.BadInput, match=said):
                fs.from_hugging_face(dataset, **{"label": "ill", "client": "at", **changes})

        table = self.table()
        refused("dataset = 'dict': must be a datasets.Dataset", TABLE)
        refused("dataset = 'DatasetDict': has several splits", self.hf.DatasetDict({"train": table}))
        refused(r"len\(dataset\) = 0", table.select([]))
        refused("label = 'il': there is no such column; did you mean 'ill'", table, label="il")
        refused("client = 'site': there is no such column", table, client="site")
        refused("features = 'agee': there is no such column", table, features=["agee"])
        refused("one client is no federation", table.select([0, 1]))
        mixed = table.add_column("v", [[1.0], [2.0], [3.0], [4.0]])
        refused("holds pictures or arrays, which stand alone", mixed)
        ragged = self.hf.Dataset.from_dict({"v": [[1.0], [2.0, 3.0]], "ill": [0, 1], "at": ["a", "b"]})
        refused(r"shape of row 1, column 'v' = \(2,\)", ragged)
