"""Publish the final runs: `python -m fedsaddle_papers.reproductions.publish reproduced docs/reproductions`.

Copies the summaries and the logs of the tuner into the package, and the pictures into the documentation, whose pages
take their tables of verdicts from there.
"""

from __future__ import annotations

import argparse
import io
import json
from collections.abc import Sequence
from pathlib import Path

from fedsaddle.files import make_folder, write_atomically
from fedsaddle.text import visible
from fedsaddle_papers.reproductions import stored, tuning
from fedsaddle_papers.reproductions.names import FIGURES


def publish(out: Path, docs: Path, package: Path = stored.PACKAGED, logs: Path = tuning.PACKAGED) -> list[Path]:
    """Copy what was run in full from `out`; returns the files that were written."""
    written: list[Path] = []

    def write(file: Path, content: bytes) -> None:
        make_folder("out", file.parent)
        write_atomically(file, content)
        written.append(file)

    for name in FIGURES:
        summary, folder = stored.summary_of(name, out), out / name
        if (folder / stored.SUMMARY).is_file() and summary is not None:
            write(package / f"{name}.json", json.dumps(summary, ensure_ascii=False, indent=1).encode())
            if (folder / "plot.png").is_file():
                write(docs / f"{name}.png", with_palette((folder / "plot.png").read_bytes()))
        if (out / "tuning" / f"{name}.json").is_file():
            write(logs / f"{name}.json", (out / "tuning" / f"{name}.json").read_bytes())
    return written


def with_palette(png: bytes) -> bytes:
    """The same picture with 256 colours, about a third of the size."""
    from PIL import Image

    written = io.BytesIO()
    with Image.open(io.BytesIO(png)) as picture:
        picture.convert("RGB").quantize(256).save(written, "PNG", optimize=True)
    return written.getvalue()


def main(argv: Sequence[str] | None = None) -> None:
    """Publish, and print what was written."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path, help="the folder of the final runs, such as reproduced")
    parser.add_argument("docs", type=Path, help="the folder of the pages, such as docs/reproductions")
    arguments = parser.parse_args(argv)
    for file in publish(arguments.out, arguments.docs):
        print(visible(str(file)))


if __name__ == "__main__":
    main()
