from __future__ import annotations

import gzip
import hashlib
import lzma
from pathlib import Path

import pytest

from fedsaddle.data.sets import adult, pictures, shakespeare
from fedsaddle.data.sets.locate import PublicFile, cache_folder, search_folders
from fedsaddle.errors import BadInput, MissingData

CONTENT = b"some rows\n" * 50


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    chosen, cache = tmp_path / "chosen", tmp_path / "cache" / "fedsaddle"
    monkeypatch.setenv("FEDSADDLE_DATA", str(chosen))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return chosen, cache


def _file(content: bytes = CONTENT) -> PublicFile:
    return PublicFile("set", "rows.txt", hashlib.sha256(content).hexdigest(), "example archive 'Rows'")


def _put(root: Path, name: str, content: bytes) -> Path:
    path = root / "set" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def test_the_chosen_folder_comes_before_the_cache(places: tuple[Path, Path]) -> None:
    assert search_folders() == list(places)
    in_cache = _put(places[1], "rows.txt", CONTENT)
    assert _file().find() == in_cache
    chosen = _put(places[0], "rows.txt.gz", gzip.compress(CONTENT))
    assert _file().find() == chosen


def test_home_holds_the_cache_without_xdg(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache_folder() == Path.home() / ".cache" / "fedsaddle"


def test_packed_and_unpacked_files_read_alike_whatever_the_gzip_level(places: tuple[Path, Path]) -> None:
    for level in (1, 9):
        path = _put(places[0], "rows.txt.gz", gzip.compress(CONTENT, level))
        assert _file().read() == CONTENT
        path.unlink()
    path = _put(places[0], "rows.txt.xz", lzma.compress(CONTENT))
    assert _file().read() == CONTENT
    path.unlink()
    _put(places[0], "rows.txt", CONTENT)
    assert _file().read() == CONTENT


def test_a_missing_file_is_named_with_both_places_source_and_checksum(places: tuple[Path, Path]) -> None:
    with pytest.raises(MissingData) as caught:
        _file().read()
    message = str(caught.value)
    for part in ("rows.txt", str(places[0]), str(places[1]), "example archive 'Rows'", _file().sha256):
        assert part in message


def test_the_message_says_that_the_variable_is_not_set(
    places: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FEDSADDLE_DATA")
    with pytest.raises(MissingData, match=r"FEDSADDLE_DATA \(not set\)"):
        _file().read()


def test_a_wrong_checksum_is_refused_also_after_a_good_one(places: tuple[Path, Path]) -> None:
    _put(places[0], "rows.txt", CONTENT)
    _file().read()
    _put(places[0], "rows.txt", CONTENT + b"!")
    with pytest.raises(BadInput, match=_file().sha256):
        _file().read()


@pytest.mark.parametrize("damage", [b"not gzip at all", gzip.compress(CONTENT)[:-9]], ids=["no gzip", "cut off"])
def test_a_damaged_gzip_file_is_refused(places: tuple[Path, Path], damage: bytes) -> None:
    _put(places[0], "rows.txt.gz", damage)
    with pytest.raises(BadInput, match="damaged gzip"):
        _file().read()


@pytest.mark.parametrize(
    ("load", "source"),
    [
        (pictures.fashion_mnist, "zalandoresearch/fashion-mnist"),
        (pictures.cifar10, "kriz/cifar.html"),
        (pictures.cifar100, "kriz/cifar.html"),
        (adult.adult, "UCI dataset 2 'Adult'"),
        (shakespeare.shakespeare, "TheMITTech/shakespeare"),
    ],
)
def test_every_public_set_says_where_to_get_it(places: tuple[Path, Path], load: object, source: str) -> None:
    with pytest.raises(MissingData, match=source):
        load()  # type: ignore[operator]
