"""The rows that an estimator is given: a matrix of numbers or a DataFrame, and the site of each row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils.validation import validate_data

from fedsaddle.arguments import text
from fedsaddle.data.files.arrays import column_names, number_columns, site_names
from fedsaddle.data.files.column_names import require, tidy_names
from fedsaddle.data.files.column_roles import check_names
from fedsaddle.data.files.raw_table import RawColumn
from fedsaddle.data.files.read_table import read_table
from fedsaddle.data.table import Array
from fedsaddle.errors import BadInput

NOWHERE = ""  # the name of the site of rows whose site is not known


@dataclass(frozen=True, eq=False)
class Rows:
    """Cells as they were given; `sites` is None if nobody named them."""

    cells: Any  # a matrix of numbers, or a DataFrame
    names: tuple[str, ...]  # of all columns, by their place
    sites: Array | None
    site: str | None  # the column of sites, which is no feature
    listed: bool  # whether all columns are features, as those of a matrix are

    @classmethod
    def of(cls, estimator: Any, X: Any, sites: Any, site: object, training: bool) -> Rows:
        """Check the rows as scikit-learn does, and take the sites from where they are named."""
        if not hasattr(X, "iloc") and hasattr(X, "to_pandas"):
            X = X.to_pandas()
        framed = hasattr(X, "iloc") and hasattr(X, "columns")
        if framed:
            names = tuple(tidy_names(X.columns)[0])
            if len({isinstance(name, str) for name in X.columns}) > 1:
                raise BadInput("X.columns", list(X.columns)[:5], "must all be text; use X.columns.astype(str)")
            validate_data(estimator, X, skip_check_array=True, reset=training)
            cells = X
        else:
            cells = validate_data(estimator, X, dtype=None, ensure_all_finite="allow-nan", reset=training)
            names = tuple(column_names(cells.shape[1]))
            if cells.dtype.kind not in "fiub":
                import pandas as pd

                cells = pd.DataFrame(cells, columns=list(names))
        if not training:
            names = tuple(estimator.columns_)
        own = _sites(cells, names, sites, site, framed, training)
        column = None if site is None else str(site)
        return cls(cells, names, own, column, not framed)

    def __len__(self) -> int:
        return len(self.cells)

    def columns(self, numeric: Any, categorical: Any) -> tuple[tuple[RawColumn, ...], tuple[str, ...]]:
        """The feature columns, and notes about them."""
        check_names("numeric", numeric)
        check_names("categorical", categorical)
        if isinstance(self.cells, np.ndarray) and not numeric and not categorical:
            return number_columns(self.cells, self.names), ()
        import pandas as pd

        frame = pd.DataFrame(self.cells) if isinstance(self.cells, np.ndarray) else self.cells
        raw = read_table(
            frame.set_axis(list(self.names), axis=1),
            roles={},
            features=list(self.names) if self.listed else None,
            numeric=list(numeric),
            categorical=list(categorical),
            ignore=() if self.site is None else (self.site,),
        )
        return raw.features, raw.notes


def _sites(cells: Any, names: tuple[str, ...], sites: Any, site: object, framed: bool, training: bool) -> Array | None:
    """The site of each row; where it is missing, training refuses it, and later rows are from nowhere."""
    missing = None if training else NOWHERE
    if site is not None:
        if not framed:
            raise BadInput("site", site, "names a column of a DataFrame, but X is an array; give sites= to fit instead")
        if sites is not None:
            raise BadInput("sites", "given", f"the column {site!r} of X names the sites already; leave one of them out")
        place = names.index(require(text("site", site), names, "site"))
        return site_names("sites", cells.iloc[:, place], missing)
    if sites is None:
        return None
    if isinstance(sites, str):
        remedy = f"must have one entry for each row; for a column of X, make the estimator with site={sites!r}"
        raise BadInput("sites", sites, remedy)
    found = site_names("sites", sites, missing)
    if len(found) != len(cells):
        raise BadInput("len(sites)", len(found), f"X has {len(cells)} rows; give one entry for each row")
    return found
