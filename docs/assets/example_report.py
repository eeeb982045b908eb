"""Make example-report.html: the report of a public table, by the command that anybody would use.

python docs/assets/example_report.py UCI-HEART-DISEASE.CSV

The table is "Heart Disease" of the UCI Machine Learning Repository (Janosi, Steinbrunn, Pfisterer, Detrano, 1988,
doi 10.24432/C52P4X, CC BY 4.0): the four processed files in one, with the columns below, a column `site` and a column
`label` that is 1 where a vessel is narrowed by more than half. Codes become the words of UCI's description, and zeros
that stand for "not measured" become empty cells. Nothing else is changed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd

PAGE = Path(__file__).with_name("example-report.html")
TABLE, RUN = "heart.csv", "heart"
COMMAND = f"fedsaddle run {TABLE} --site site --label heart_disease --positive yes --groups sex,age --out {RUN}"
NAMES = {
    "cp": "chest_pain",
    "trestbps": "resting_blood_pressure",
    "chol": "cholesterol",
    "fbs": "fasting_sugar_above_120",
    "restecg": "resting_ecg",
    "thalach": "highest_heart_rate",
    "exang": "angina_on_exercise",
    "oldpeak": "st_depression",
    "slope": "st_slope",
    "ca": "vessels_seen",
    "thal": "thallium_scan",
    "label": "heart_disease",
}
YES = {0: "no", 1: "yes"}
WORDS = {
    "sex": {0: "female", 1: "male"},
    "chest_pain": {1: "typical angina", 2: "atypical angina", 3: "other pain", 4: "none"},
    "fasting_sugar_above_120": YES,
    "resting_ecg": {0: "normal", 1: "ST-T abnormality", 2: "hypertrophy"},
    "angina_on_exercise": YES,
    "st_slope": {1: "rising", 2: "flat", 3: "falling"},
    "thallium_scan": {3: "normal", 6: "fixed defect", 7: "reversible defect"},
    "heart_disease": YES,
}


def in_words(table: pd.DataFrame) -> pd.DataFrame:
    """The table with words in place of codes."""
    table = table.rename(columns=NAMES)
    for column, words in WORDS.items():
        table[column] = table[column].map(words)
    for column in ("cholesterol", "resting_blood_pressure"):
        table[column] = table[column].where(table[column] > 0)
    return table


def main(source: Path, page: Path = PAGE) -> None:
    """Write the table into a folder of its own, run the command there and keep the page."""
    with TemporaryDirectory() as folder:
        in_words(pd.read_csv(source)).to_csv(Path(folder, TABLE), index=False)
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        subprocess.run(COMMAND.split(), cwd=folder, env={**os.environ, "PATH": path}, check=True)
        shutil.copy(Path(folder, RUN, "report.html"), page)
    print(f"{page.name}: {page.stat().st_size:,} bytes")


if __name__ == "__main__":
    main(*(Path(path) for path in sys.argv[1:3]))
