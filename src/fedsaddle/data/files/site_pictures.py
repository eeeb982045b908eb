"""The pictures of one site, before all sites agree on mean and deviation of the pixels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedsaddle.data.files.array_features import ArrayFeatures
from fedsaddle.data.files.column_roles import filled, units
from fedsaddle.data.files.pictures import picture_shape, read_pictures
from fedsaddle.data.files.read_table import read_roles
from fedsaddle.data.files.site_file import HeldOutShares, Part, SiteRows, Source, row_parts
from fedsaddle.data.table import Array


@dataclass(frozen=True)
class SitePictures:
    """How a site reads its table of pictures: as `pictures` does; all rows are this site's."""

    file: str = "file"
    target: str = "label"
    together: str | None = None
    size: int | list[int] = 28
    colour: bool = False
    standardise: bool = True
    delimiter: str | None = None
    folder: str | None = None  # from the table's own folder, if it is relative; None: that folder

    @classmethod
    def of_options(cls, options: Mapping[str, Any]) -> SitePictures:
        """As the options of `pictures` say; the column of sites is not looked at."""
        wanted = ("file", "target", "together", "size", "colour", "standardise", "delimiter", "folder")
        return cls(**{key: options[key] for key in wanted if options.get(key) is not None})

    def read(self, path: Path, shares: HeldOutShares, test_path: Path | None = None) -> SiteRows:
        """Read a site's pictures; test rows come from `test_path`, or a share is held out."""
        sources: list[Source] = []
        together: Array | None = None
        for table in [path] if test_path is None else [path, test_path]:
            source, patients = self._source(table)
            together = patients if not sources else together
            sources.append(source)
        places: dict[Part, int] = {} if test_path is None else {"test": 1}
        parts = row_parts(sources, places, shares, self.target, together)
        return SiteRows(self.target, tuple(sources), parts, units=together)

    def _source(self, path: Path) -> tuple[Source, Array | None]:
        roles = {"file": self.file, "target": self.target}
        roles |= {"together": self.together} if self.together else {}
        cells = read_roles(path, roles, self.delimiter)
        folder = path.parent if self.folder is None else path.parent / self.folder
        names = filled(cells["file"], self.file)
        x = read_pictures(folder, names, self.file, picture_shape(self.size), self.colour)
        labels = filled(cells["target"], self.target)
        together = units(cells["together"].astype(str)) if self.together else None
        return Source(ArrayFeatures(x, self.standardise, self.file), labels), together
