"""Shakespeare's plays by speaking character: predict the next character of the text.

A row is one sequence, so that the paper's "batch size of 2 with 50 characters" is a batch of 2 rows.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedsaddle.arguments import optional, whole
from fedsaddle.arguments import path as file_path
from fedsaddle.data.sets.locate import PublicFile, unpack
from fedsaddle.data.table import Dataset, Table
from fedsaddle.errors import BadInput, MissingData
from fedsaddle.files import JsonObject

_ALONE = re.compile(r"^([A-Z][A-Z'’ ,&-]*[A-Z])\.$")
_INDENTED = re.compile(r"^ {1,4}([A-Z][A-Za-z'’ -]*?)\. +(\S.*)$")
_CAST = re.compile(r"^\W*(dramatis person(ae|æ)|persons represented|characters in the play)", re.IGNORECASE)
_AUTHOR = re.compile(r"^by william shakespeare$", re.IGNORECASE)
_NO_TITLE = re.compile(r"^(act|scene|prologue|epilogue|induction|contents|finis|the end)\b", re.IGNORECASE)
_DIRECTION = re.compile(r"\[[^\]]*\]|_[^_]*_")
_ENTRANCE = re.compile(r"^\s*(enter|exit|exeunt|re-enter|flourish|alarum|scene|act)\b", re.IGNORECASE)


def speeches_by_speaker(text: str) -> dict[str, list[str]]:
    """The speeches of "play/SPEAKER", in the order of the text; stage directions are left out.

    Examples:
        >>> speeches_by_speaker("A PLAY\\n\\nDramatis Personæ\\n\\nANNE.\\nGood day.\\nSir.\\n\\nBEN.\\nWell met.\\n")
        {'A PLAY/ANNE': ['Good day.\\nSir.'], 'A PLAY/BEN': ['Well met.']}

    Raises:
        BadInput: if no speech is found.
    """
    speeches: dict[str, list[str]] = {}
    for play, speaker, speech in _speeches(_body(text).splitlines()):
        speeches.setdefault(f"{play}/{speaker}", []).append(speech)
    if not speeches:
        remedy = (
            "no speeches found; it must be the plain text of plays, with speakers as 'HAMLET.' or '  HAMLET. Words'"
        )
        raise BadInput("path", text[:40], remedy)
    return speeches


def _body(text: str) -> str:
    """The text without what Project Gutenberg adds before and after it."""
    text = text.removeprefix("\ufeff")
    _, started, rest = text.partition("*** START OF")
    body = rest.partition("\n")[2] if started else text
    return body.partition("*** END OF")[0]


def _speeches(lines: list[str]) -> Iterator[tuple[str, str, str]]:
    play, title, before, speaker, speech, indent = "", "", "", "", list[str](), False
    for line in [*lines, ""]:
        bare = line.strip()
        alone, inline = _ALONE.match(line), _INDENTED.match(line)
        ends = not bare or alone or inline or _ENTRANCE.match(line) or (indent and not line.startswith("    "))
        if speaker and ends and speech:
            yield play, speaker, "\n".join(speech)
            speaker, speech = "", []
        if _CAST.match(bare) or _AUTHOR.match(bare):
            play, speaker, speech = (before if _AUTHOR.match(bare) else title) or "a play", "", []
        elif alone and play and not _NO_TITLE.match(alone[1]):
            speaker, speech, indent = alone[1], [], False
        elif inline and play and not _NO_TITLE.match(inline[1]):
            speaker, speech, indent = inline[1].strip().upper(), _without_directions(inline[2]), True
        elif speaker and bare and not _ENTRANCE.match(line):
            speech += _without_directions(bare)
        if bare.isupper() and not alone and not _NO_TITLE.match(bare):
            title = bare
        before = bare or before


def _without_directions(words: str) -> list[str]:
    spoken = _DIRECTION.sub("", words).strip()
    return [spoken] if spoken else []


# The printable characters of the fixed vocabulary of 86 that federated Shakespeare experiments share.
# Its last place, a carriage return there, stands here for every other character.
CHARACTERS = "\n !\"#$%&'()*,-./0123456789:;?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[]_abcdefghijklmnopqrstuvwxyz"
UNKNOWN = len(CHARACTERS)
VOCABULARY = (*CHARACTERS, "<unknown>")

_FILE = PublicFile(
    "shakespeare",
    "by_character.json",
    "63baba21e4bd5f35c50371f71260dc469089d868d07faf8f54de1640f37d88c2",
    "the MIT edition (github.com/TheMITTech/shakespeare) laid out by speaker; without it give the option `path`: the "
    "plain text of the Complete Works from Project Gutenberg (ebook 100), as FILE.txt, or a file that you lay out "
    "yourself, as JSON {'speeches': {'play/SPEAKER': ['a speech', ...]}}",
)

Codes = NDArray[np.int64]


def shakespeare(
    sequence_length: int = 50,
    clients: int | None = 100,
    min_windows: int = 10,
    seed: int = 0,
    path: str | Path | None = None,
) -> Dataset:
    """Windows of `sequence_length` characters that do not overlap; the target is the window one further.

    A speaker's speeches are joined by newlines. Split with `Natural("speaker")`. There is no official test set.

    Args:
        sequence_length: Characters a row.
        clients: Speakers that are drawn; None: all.
        min_windows: Rows that a speaker must have.
        seed: Draws the speakers.
        path: A file of your own, read without a checksum: the plain text of plays, such as Project Gutenberg's Complete
            Works, with the ending .txt, or JSON by speaker.
    """
    sequence_length, min_windows = whole("sequence_length", sequence_length), whole("min_windows", min_windows)
    clients, seed = optional(whole, "clients", clients), whole("seed", seed, least=0)
    path = optional(file_path, "path", path)
    windows = {
        speaker: pair
        for speaker, speeches in sorted(_stored_speeches(path).items())
        if len((pair := cut_windows("\n".join(speeches), sequence_length))[0]) >= min_windows
    }
    chosen = _choose(sorted(windows), clients, seed, min_windows)
    x, y = (np.concatenate([windows[s][part] for s in chosen]) for part in (0, 1))
    speakers = np.repeat(np.array(chosen), [len(windows[s][0]) for s in chosen])
    table = Table(x, y, {"speaker": speakers}, VOCABULARY)
    return Dataset("shakespeare", table, None, "MIT edition of Shakespeare's plays", "public domain")


def encode(text: str) -> Codes:
    """Character codes of a text."""
    table = np.full(128, UNKNOWN, dtype=np.int64)
    table[[ord(c) for c in CHARACTERS]] = np.arange(UNKNOWN)
    points = np.frombuffer(text.encode("utf-32-le"), dtype=np.uint32)
    # Code point 127 is a control character outside the vocabulary.
    return table[np.minimum(points, 127)]


def decode(codes: Codes) -> str:
    """The text of character codes; the unknown character shows as U+FFFD."""
    return "".join((*CHARACTERS, "\N{REPLACEMENT CHARACTER}")[c] for c in codes)


def cut_windows(text: str, length: int) -> tuple[Codes, Codes]:
    """Windows `(n, length)` and their next characters `(n, length)`; the rest of the text is left out."""
    codes = encode(text)
    n = max(len(codes) - 1, 0) // length
    return codes[: n * length].reshape(n, length), codes[1 : n * length + 1].reshape(n, length)


def _choose(speakers: Sequence[str], clients: int | None, seed: int, min_windows: int) -> list[str]:
    if clients is None and speakers:
        return list(speakers)
    if clients is None or clients > len(speakers):
        remedy = f"{len(speakers)} speakers have at least {min_windows} windows; ask for 1 to that many"
        raise BadInput("clients", clients, remedy)
    picks = np.random.default_rng([seed, 0]).choice(len(speakers), clients, replace=False)
    return [speakers[i] for i in np.sort(picks)]


def _stored_speeches(path: Path | None) -> Mapping[str, Sequence[str]]:
    if path is not None and not path.is_file():
        raise MissingData(
            f"{path} does not exist; give the text of plays (.txt), or a JSON file with the key 'speeches'"
        )
    if path is not None and path.suffix == ".txt":
        return speeches_by_speaker(path.read_text(encoding="utf-8", errors="replace"))
    try:
        content: JsonObject = json.loads(_FILE.read() if path is None else unpack(path))
        speeches: Mapping[str, Sequence[str]] = content["speeches"]
    except (ValueError, KeyError, TypeError) as error:
        remedy = "must be JSON like {'speeches': {'play/SPEAKER': ['a speech', ...]}}"
        raise BadInput("path", str(path), remedy) from error
    return speeches
