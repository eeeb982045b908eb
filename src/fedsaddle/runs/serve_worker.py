"""`python -m fedsaddle.runs.serve_worker`: a worker process of `engine = "processes"`, started by the driver."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Answer blocks from standard input on standard output; what is printed goes to standard error."""
    source, to = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    from fedsaddle.engines.frames import serve
    from fedsaddle.runs.worker_recipe import build_worker

    serve(source, to, build_worker)


if __name__ == "__main__":
    main()
    sys.exit(1)  # it could not begin, and has said why
