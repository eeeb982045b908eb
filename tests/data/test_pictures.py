"""Pictures of one's own: formats, sizes, colours, and files that are not there or not pictures."""

from __future__ import annotations

import numpy as np
import pytest
from fit_features import fit_transform
from PIL import Image

from fedsaddle.data.federated import federate
from fedsaddle.data.pictures import pictures
from fedsaddle.data.splits import Natural
from fedsaddle.errors import BadInput, MissingData


@pytest.fixture
def table(tmp_path):
    """Six pictures: the first black, the second white, the others grey; half of them JPEG."""
    (tmp_path / "in").mkdir()
    lines = ["file,label,site"]
    for i, grey in enumerate([0, 255, 100, 120, 140, 160]):
        name = f"in/{i}.{'png' if i % 2 == 0 else 'jpg'}"
        Image.new("RGB", (40, 20), (grey, grey, grey)).save(tmp_path / name)
        lines.append(f"{name},{'ill' if i == 1 else 'well'},{'a' if i < 3 else 'b'}")
    path = tmp_path / "table.csv"
    path.write_text("\n".join(lines))
    return path


def test_grey_rows_of_the_given_size(table):
    raw = pictures(table, size=8, standardise=False, positive="ill")
    data = fit_transform(raw)
    assert data.train.x.shape == (6, 1, 8, 8)
    assert data.train.x[:2, 0, 0, 0] == pytest.approx([0, 1], abs=0.01)
    assert data.train.x[2].std() < 1e-6
    assert data.train.y.tolist() == [0, 1, 0, 0, 0, 0]
    assert data.train.classes == ("well", "ill")
    assert federate(raw, Natural("site"), test_share=0).names == ("a", "b")


def test_colour_and_two_sides(table):
    data = fit_transform(pictures(table, size=[4, 6], colour=True))
    assert data.train.x.shape == (6, 3, 4, 6)
    assert abs(data.train.x.mean()) < 1e-5
    assert data.train.x.std() == pytest.approx(1, abs=1e-3)
    assert data.encoding[0].std > 0


def test_a_folder_elsewhere(table, tmp_path):
    other = tmp_path / "tables" / "mine.csv"
    other.parent.mkdir()
    other.write_text(table.read_text().replace("in/", ""))
    assert len(pictures(other, folder=tmp_path / "in").train) == 6
    with pytest.raises(BadInput, match=r"row 1, column 'file' = '0\.png': there is no such file"):
        pictures(other)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"size": 0}, "size = 0"),
        ({"size": [3]}, r"size = \[3\]"),
        ({"file": "path"}, "file = 'path': there is no such column"),
        ({"client": "hospital"}, "client = 'hospital': there is no such column"),
        ({"positive": "dead"}, "positive = 'dead': is not a value of column 'label'; there are: ill, well"),
    ],
)
def test_what_cannot_be_is_named(table, options, said):
    with pytest.raises(BadInput, match=said):
        pictures(table, **options)


def test_empty_cells_are_named_and_patients_stay_together(table):
    lines = table.read_text().splitlines()
    for column, name in enumerate(("file", "label", "site")):
        cells = lines[3].split(",")
        cells[column] = ""
        table.write_text("\n".join([*lines[:3], ",".join(cells), *lines[4:]]))
        with pytest.raises(BadInput, match=f"row 3, column '{name}' = '': the cell is empty"):
            pictures(table)
    table.write_text("\n".join([f"{lines[0]},patient", *(f"{line},p{i // 2}" for i, line in enumerate(lines[1:]))]))
    data = federate(pictures(table, size=4, together="patient"), Natural("site"), test_share=0.5)
    assert data.test is not None
    assert {row // 2 for row in data.train_rows}.isdisjoint({row // 2 for row in data.test_rows})


def test_damaged_and_missing(table, tmp_path):
    whole = (tmp_path / "in" / "2.png").read_bytes()
    (tmp_path / "in" / "2.png").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(BadInput, match=r"row 3, column 'file' = '2\.png': cannot be read as a picture"):
        pictures(table)
    with pytest.raises(MissingData, match="does not exist"):
        pictures(tmp_path / "none.csv")


def test_resizing_keeps_left_and_right(tmp_path):
    pixels = np.zeros((10, 30), dtype=np.uint8)
    pixels[:, 15:] = 255
    for name in "ab":
        Image.fromarray(pixels).save(tmp_path / f"{name}.png")
    (tmp_path / "t.csv").write_text("file,label,site\na.png,0,x\nb.png,1,y\n")
    x = fit_transform(pictures(tmp_path / "t.csv", size=[2, 6], standardise=False)).train.x
    assert (x[0, 0, :, :2] < 0.1).all()
    assert (x[0, 0, :, 4:] > 0.9).all()
