"""Write a data set to one file per site, to try a deployment on one machine."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedsaddle.data.federated import FederatedData


def write_site_files(data: FederatedData, folder: Path) -> list[Path]:
    """Write the encoded rows of each client to a .npz file."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for i in range(data.count):
        x, y = data.train.client(i)
        arrays = {"x": x.numpy(), "y": y.numpy()}
        for part, rows in (("test", data.test), ("validation", data.validation)):
            if rows is not None:
                x, y = rows.client(i)
                arrays |= {f"x_{part}": x.numpy(), f"y_{part}": y.numpy()}
        paths.append(folder / f"site-{i + 1}.npz")
        np.savez(paths[-1], **arrays)  # type: ignore[arg-type]
    return paths
