"""Speeches by speaker from the text of plays, such as Project Gutenberg's Complete Works of Shakespeare.

A speaker of a play is a client, as in LEAF. Both layouts of that text are known: the older one, in which a speech
begins with "  HAMLET. Words" and goes on with lines that are indented further, and the newer one, in which "HAMLET."
stands on a line of its own, and a blank line ends the speech.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from fedsaddle.errors import BadInput

_ALONE = re.compile(r"^([A-Z][A-Z'’ ,&-]*[A-Z])\.$")
_INDENTED = re.compile(r"^ {1,4}([A-Z][A-Za-z'’ -]*?)\. +(\S.*)$")
_CAST = re.compile(r"^\W*(dramatis person(ae|æ)|persons represented|characters in the play)", re.IGNORECASE)
_AUTHOR = re.compile(r"^by william shakespeare$", re.IGNORECASE)
_NO_TITLE = re.compile(r"^(act|scene|prologue|epilogue|induction|contents|finis|the end)\b", re.IGNORECASE)
_DIRECTION = re.compile(r"\[[^\]]*\]|_[^_]*_")
_ENTRANCE = re.compile(r"^\s*(enter|exit|exeunt|re-enter|flourish|alarum|scene|act)\b", re.IGNORECASE)


def speeches_by_speaker(text: str) -> dict[str, list[str]]:
    """The speeches of "play/SPEAKER", in the order of the text; stage directions are left out.

    Example:
        >>> speeches_by_speaker("A PLAY\\n\\nDramatis Personæ\\n\\nANNE.\\nGood day.\\nSir.\\n\\nBEN.\\nWell met.\\n")
        {'A PLAY/ANNE': ['Good day.\\nSir.'], 'A PLAY/BEN': ['Well met.']}

    Raises:
        BadInput: if no speech is found.
    """
    found: dict[str, list[str]] = {}
    for play, speaker, speech in _speeches(_body(text).splitlines()):
        found.setdefault(f"{play}/{speaker}", []).append(speech)
    if not found:
        remedy = (
            "no speeches found; it must be the plain text of plays, with speakers as 'HAMLET.' or '  HAMLET. Words'"
        )
        raise BadInput("path", text[:40], remedy)
    return found


def _body(text: str) -> str:
    """The text without what Project Gutenberg adds before and after it."""
    text = text.removeprefix("\ufeff")
    _, started, rest = text.partition("*** START OF")
    body = rest.partition("\n")[2] if started else text
    return body.partition("*** END OF")[0]


def _speeches(lines: list[str]) -> Iterator[tuple[str, str, str]]:
    play, title, before, speaker, said, indent = "", "", "", "", list[str](), False
    for line in [*lines, ""]:
        bare = line.strip()
        alone, inline = _ALONE.match(line), _INDENTED.match(line)
        ends = not bare or alone or inline or _ENTRANCE.match(line) or (indent and not line.startswith("    "))
        if speaker and ends and said:
            yield play, speaker, "\n".join(said)
            speaker, said = "", []
        if _CAST.match(bare) or _AUTHOR.match(bare):
            play, speaker, said = (before if _AUTHOR.match(bare) else title) or "a play", "", []
        elif alone and play and not _NO_TITLE.match(alone[1]):
            speaker, said, indent = alone[1], [], False
        elif inline and play and not _NO_TITLE.match(inline[1]):
            speaker, said, indent = inline[1].strip().upper(), _without_directions(inline[2]), True
        elif speaker and bare and not _ENTRANCE.match(line):
            said += _without_directions(bare)
        if bare.isupper() and not alone and not _NO_TITLE.match(bare):
            title = bare
        before = bare or before


def _without_directions(words: str) -> list[str]:
    kept = _DIRECTION.sub("", words).strip()
    return [kept] if kept else []
