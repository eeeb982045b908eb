"""Plays as plain text: speeches by speaker, in both layouts of Project Gutenberg's Complete Works."""

from __future__ import annotations

from pathlib import Path

import pytest

import fedsaddle as fs
from fedsaddle.data.sets.shakespeare import speeches_by_speaker
from fedsaddle.errors import BadInput

NEWER = """\ufeffHeader of nobody
*** START OF THE PROJECT GUTENBERG EBOOK ***

THE TRAGEDY OF NOBODY

Contents

ACT I
Scene I. A street.

Dramatis Personæ

ANNE, a merchant.
BEN, her friend.

ACT I

SCENE I. A street.

Enter Anne and Ben.

ANNE.
Good morrow, Ben. [_Aside._] He sleeps.
What news?

BEN.
None. _Exit._

ANNE.
Then farewell.

 [_Exeunt._]

A COMEDY OF TWO

Dramatis Personæ

ANNE.
Another Anne.

*** END OF THE PROJECT GUTENBERG EBOOK ***
ANNE.
No part of it.
"""

OLDER = """1604

THE TRAGEDY OF NOBODY

by William Shakespeare

SCENE: A street.

                     Enter Anne and Ben
  ANNE. Good morrow, Ben.
    What news?
  Ben. None.
                                                      Exit
  ANNE. Then farewell.
THE END
"""


def test_the_newer_layout() -> None:
    assert speeches_by_speaker(NEWER) == {
        "THE TRAGEDY OF NOBODY/ANNE": ["Good morrow, Ben.  He sleeps.\nWhat news?", "Then farewell."],
        "THE TRAGEDY OF NOBODY/BEN": ["None."],
        "A COMEDY OF TWO/ANNE": ["Another Anne."],
    }


def test_the_older_layout() -> None:
    assert speeches_by_speaker(OLDER) == {
        "THE TRAGEDY OF NOBODY/ANNE": ["Good morrow, Ben.\nWhat news?", "Then farewell."],
        "THE TRAGEDY OF NOBODY/BEN": ["None."],
    }


def test_a_text_without_speeches_is_refused() -> None:
    with pytest.raises(BadInput, match="no speeches found"):
        speeches_by_speaker("Once upon a time\nthere was no play.")


def test_a_text_file_makes_clients_of_speakers(tmp_path: Path) -> None:
    play = "A PLAY\n\nDramatis Personæ\n\n" + "".join(
        f"{who}.\n{'To be or not. ' * 9}\n\n" for who in ("ANNE", "BEN") * 3
    )
    (tmp_path / "plays.txt").write_text(play, encoding="utf-8")
    options = {"path": str(tmp_path / "plays.txt"), "clients": 2, "sequence_length": 10, "min_windows": 5}
    data = fs.load("shakespeare", split="natural", column="speaker", options=options)
    assert data.names == ("A PLAY/ANNE", "A PLAY/BEN")
    assert data.train.x.shape[1] == 10
