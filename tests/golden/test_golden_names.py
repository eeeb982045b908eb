"""The public names: `fs.__all__` and `dir(fs)`, as a new process sees them.

`golden_folder` says how to record anew.
"""

from __future__ import annotations

import json
import subprocess
import sys

from golden_folder import check

LISTS = 'import json, fedsaddle as fs; print(json.dumps({"all": list(fs.__all__), "dir": dir(fs)}))'
IMPORTED = {"Any", "TYPE_CHECKING", "annotations", "import_module", "os"}  # by the package, for its own use


def test_public_names():
    said = subprocess.run([sys.executable, "-c", LISTS], check=True, capture_output=True, text=True).stdout
    found = json.loads(said)
    found["dir"] = [name for name in found["dir"] if not name.startswith("_") and name not in IMPORTED]
    check("names", found)
