"""Which models a site has measured in a run: counted, limited, and compared with those of the run's tasks.

A server may ask a site to measure any model. So the number of models is limited, over restarts; and where the algorithm
keeps the last iterate, a model measured after round r must be sent again with the first task after round r. A server
that sends another one is not answered again in that run.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from torch import Tensor

from fedsaddle.atomic import write_json
from fedsaddle.errors import Refused
from fedsaddle.stored import read_object

FILE = "measured.json"


@dataclass
class MeasuredModels:
    """The models that were measured in one run; kept in the site's folder of that run."""

    folder: Path
    most: int
    checked: bool  # whether measured models are those that tasks carry
    measured: list[str] = field(default_factory=list)  # digests of models and parts
    waiting: dict[str, list[str]] = field(default_factory=dict)  # rounds -> digests of models, until a task shows them
    broken: str = ""  # why no message of this run is answered any more

    @classmethod
    def read(cls, folder: Path, most: int, checked: bool) -> MeasuredModels:
        """What is known of a run, after a restart too."""
        path = folder / FILE
        return cls(folder, most, checked, **(read_object(path) if path.exists() else {}))

    def measure(self, w: Tensor, dual: Tensor | None, part: str, rounds: int) -> None:
        """Note that a model is measured, before it is; refuse one too many. A model that was measured is free."""
        self.check()
        model = digest(w)
        key = f"{model}-{'' if dual is None else digest(dual)}-{part}"
        if key in self.measured:
            return
        if len(self.measured) >= self.most:
            raise Refused(f"this site's policy says most_evaluations = {self.most}; so many models were measured")
        self.measured.append(key)
        if self.checked:
            found = self.waiting.setdefault(str(rounds), [])
            found += [] if model in found else [model]
        self._write()

    def task(self, round: int, sent: Iterable[Tensor]) -> None:
        """The first task after `round` rounds: it must carry the model that was measured after that round."""
        self.check()
        wanted = set(self.waiting.get(str(round), ()))
        if self.waiting:
            self.waiting.clear()  # earlier ones were not asked about; later ones are of a server that began again
            if not wanted <= {digest(one) for one in sent}:
                self.broken = f"a model measured after round {round} is not the one that its next task carries"
            self._write()
        self.check()

    def check(self) -> None:
        """Refuse everything in a run in which a model was measured that is not the run's."""
        if self.broken:
            raise Refused(f"{self.broken}; this site answers no more in this run")

    def _write(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        kept = asdict(self)
        write_json(self.folder / FILE, {key: kept[key] for key in ("measured", "waiting", "broken")})


def digest(value: Tensor) -> str:
    """A short digest of the type, the shape and the numbers."""
    told = json.dumps([str(value.dtype), list(value.shape)]).encode()
    return hashlib.sha256(told + value.detach().contiguous().numpy().tobytes()).hexdigest()[:24]
