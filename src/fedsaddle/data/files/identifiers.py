"""Columns that sites do not read as features, because they tell who a row is about: by their names and by their cells.

The rules are those of a deployment: when its config is written, when its kits are made and at each site.
"""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from fedsaddle.data.files.raw_table import RawColumn

FEW = 20  # cells below which nothing is said of a column
MOST_CATEGORIES = 50
SHARE = 5  # distinct values may be a fifth of the cells
FEW_VALUES = 10  # so many categories are no identifier, however small the site
RUN = 100  # so many consecutive whole numbers are no measurement
DIGITS = 6  # whole numbers that all have so many digits, the same number, are no measurement
_WORDS = frozenset(
    """
    name surname forename firstname lastname fullname initials id ids uuid guid mrn ssn nhs pid nin key index
    row address street city town village zip zipcode postcode postal phone telephone tel mobile fax email mail
    dob birth birthday birthdate born insurance passport iban account url ip mac licence license plate note
    notes comment comments text remark remarks report narrative description file filename path image picture
    photo scan dicom barcode accession
    """.split()  # noqa: SIM905
)
_PARTS = re.compile(
    "birth|surname|firstname|lastname|fullname|patientname|address|e-?mail|phone|postcode|zipcode|passport|filename"
)
_UNITS = frozenset(  # of whom or of what: a column that is named so and nothing else holds its numbers
    """
    patient patients subject subjects person persons case stay encounter episode participant participants individual
    individuals member proband hadm icustay record records specimen respondent
    """.split()  # noqa: SIM905
)
_NUMBERS = frozenset(("no", "nr", "num", "number", "numbers", "code", "ref", "reference", "identifier", "of", "the"))
_JOINED = re.compile(
    "(?:patient|subject|person|case|stay|encounter|visit|episode|admission|participant|hadm|record|member|sample)s?"
    "(?:unit)?(?:stay)?(?:id|ids|no|nr|num|number|code|key)"
)


def by_name(name: str) -> str:
    """Why a column is left out by its name alone; empty if it is not.

    >>> by_name("PatientName"), by_name("date_of_birth"), by_name("creatinine")
    ("its name says 'name'", "its name says 'birth'", '')
    >>> by_name("patient"), by_name("Case-No."), by_name("length_of_stay"), by_name("patient_age")
    ("its name says 'patient'", "its name says 'case'", '', '')
    """
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).lower()
    words = [word for word in re.split(r"[\W_\d]+", spaced) if word]
    for word in words:
        if word in _WORDS or _JOINED.fullmatch(word):
            return f"its name says {word!r}"
    if words and all(word in _UNITS or word in _NUMBERS for word in words):
        unit = next((word for word in words if word in _UNITS), None)
        if unit is not None:
            return f"its name says {unit!r}"
    found = _PARTS.search(spaced)
    return f"its name says {found.group()!r}" if found else ""


def by_content(column: RawColumn) -> str:
    """Why a column is left out by its cells; empty if it is not.

    Categories may be as many as a fifth of the cells, and 50. Numbers are measurements however many differ, unless
    they are whole and consecutive, or have the same six digits or more.
    """
    there = ~column.missing
    n = int(there.sum())
    if n < FEW:
        return ""
    if column.codes is not None:
        different = len(np.unique(column.codes[there]))
        if different > MOST_CATEGORIES or different > max(FEW_VALUES, n / SHARE):
            return f"it has {different:,} categories in {n:,} rows, like an identifier"
        return ""
    return "" if column.numbers is None or column.written else _numbers(column.numbers[there])


def _numbers(values: NDArray[np.float64]) -> str:
    if (values[:FEW] != np.round(values[:FEW])).any() or (values != np.round(values)).any():
        return ""
    found = np.unique(values)
    if len(found) <= max(FEW_VALUES, len(values) / SHARE):
        return ""
    told = f"it has {len(found):,} different whole numbers in {len(values):,} rows"
    if len(found) > RUN and len(found) > 0.9 * (found[-1] - found[0] + 1):
        return f"{told} that are consecutive, like an identifier"
    digits = np.floor(np.log10(np.maximum(np.abs(found), 1.0))) + 1
    if digits.min() == digits.max() >= DIGITS and (found % 100 != 0).any():
        return f"{told} of {int(digits[0])} digits, like an identifier"
    return ""
