"""Pictures of runs: they are PNG files with something on them, or None where there is nothing to draw."""

from __future__ import annotations

import json

import matplotlib.image
import numpy as np
import pytest

from fedsaddle.errors import BadInput
from fedsaddle.report import plots

NAMES = ("north", "south", "east")
ODD = ("$x", "$a$ {", "_c")


def record(round, clients=3, part="test", mixture=True, measures=("loss", "accuracy"), listed=True):
    each = np.linspace(0.1, 0.9, clients) * round / 5
    figures = {"global": 0.5, "mean": each.mean(), "worst": each.min(), "best": each.max(), "std": each.std()}
    return {
        "round": round,
        part: dict.fromkeys(measures, figures),
        "clients": {part: {m: each.tolist() for m in measures}} if listed else {},
        **({"mixture": [1 / clients] * clients} if mixture else {}),
    }


def history(**options):
    return [record(r, **options) for r in range(1, 6)]


def looks_like_a_picture(path):
    assert path.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    pixels = matplotlib.image.imread(path)
    assert pixels.shape[0] > 300
    assert pixels.shape[1] > 600
    assert pixels[..., :3].std() > 0.02
    return True


def test_progress(tmp_path):
    assert looks_like_a_picture(plots.progress(history(), tmp_path / "new" / "a.png", "DRFA $"))
    assert looks_like_a_picture(plots.progress(history(part="train", measures=("loss",)), tmp_path / "b.png"))
    assert looks_like_a_picture(plots.progress(history()[:1], tmp_path / "one.png"))


def test_the_same_history_gives_the_same_picture(tmp_path):
    a, b = (plots.progress(history(), tmp_path / name).read_bytes() for name in ("a.png", "b.png"))
    assert a == b


def test_comparison(tmp_path):
    runs = {name: history() for name in ODD}
    assert looks_like_a_picture(plots.comparison(runs, tmp_path / "a.png", "three $ runs"))
    many = {f"run {i}": history() for i in range(20)}
    assert looks_like_a_picture(plots.comparison(many, tmp_path / "b.png"))


def with_pooled(falls=10.0):
    return [{**record(r), "exchanges": 2 * r, "pooled": {"duality_gap": falls**-r}} for r in range(1, 6)]


def test_a_pooled_measure(tmp_path):
    one, two = with_pooled(), with_pooled(1.1)
    assert looks_like_a_picture(plots.pooled({"a": one}, "duality_gap", tmp_path / "a.png"))
    assert looks_like_a_picture(plots.pooled({"a": one, "$b": two}, "duality_gap", tmp_path / "b.png", x="exchanges"))
    with pytest.raises(BadInput, match="x = 'rounds': choose one of round, exchanges"):
        plots.pooled({"a": one}, "duality_gap", tmp_path / "c.png", x="rounds")
    with pytest.raises(BadInput, match="measure = 'gap': the run 'a' has duality_gap"):
        plots.pooled({"a": one}, "gap", tmp_path / "c.png")
    with pytest.raises(BadInput, match="the run 'a' has no pooled measure"):
        plots.pooled({"a": history()}, "gap", tmp_path / "c.png")
    assert not (tmp_path / "c.png").exists()


def test_clients(tmp_path):
    assert looks_like_a_picture(plots.clients({"a": history(), "$b": history()}, ODD, tmp_path / "a.png"))
    gap = history()
    gap[-1] = json.loads(json.dumps(gap[-1]))
    gap[-1]["clients"]["test"]["accuracy"][1] = None
    assert looks_like_a_picture(plots.clients({"a": gap}, NAMES, tmp_path / "b.png"))


def test_clients_that_were_not_listed(tmp_path):
    assert plots.clients({"a": history(), "b": history(listed=False)}, NAMES, tmp_path / "a.png") is None
    many = tuple(str(i) for i in range(61))
    assert plots.clients({"a": history(clients=61)}, many, tmp_path / "a.png") is None
    assert not (tmp_path / "a.png").exists()


def test_mixture(tmp_path):
    assert looks_like_a_picture(plots.mixture(history(), ODD, tmp_path / "a.png"))
    names = tuple(str(i) for i in range(13))
    assert looks_like_a_picture(plots.mixture(history(clients=13), names, tmp_path / "b.png"))


def test_no_mixture(tmp_path):
    assert plots.mixture(history(mixture=False), NAMES, tmp_path / "a.png") is None
    assert plots.mixture([], NAMES, tmp_path / "a.png") is None
    assert not (tmp_path / "a.png").exists()


@pytest.mark.parametrize(
    ("name", "starts"), [("a.svg", b"<?xml"), ("a.pdf", b"%PDF"), ("a.PNG", b"\x89PNG"), ("a", b"\x89PNG")]
)
def test_the_name_chooses_the_format(tmp_path, name, starts):
    assert plots.progress(history(), tmp_path / name).read_bytes().startswith(starts)


def test_a_format_that_is_none(tmp_path):
    with pytest.raises(BadInput, match=r"end the name in .png, .svg or .pdf"):
        plots.progress(history(), tmp_path / "new" / "a.docx")
    assert not (tmp_path / "new").exists()


def test_what_a_picture_shows():
    assert plots.main_measure(history()) == ("test", "accuracy")
    assert plots.main_measure(history(part="train", measures=("loss",))) == ("train", "loss")
    sparse = [*history()[:2], {"round": 3}]
    assert plots.curve(sparse, "worst", "accuracy", "test")[0] == [1, 2]
