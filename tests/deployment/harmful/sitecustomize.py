"""Before the path of a site's processes, this makes it do harm once: what a file says, at its next task of round 3.

Python reads a module of this name by itself; a site that is started without it knows nothing of harm.
"""

import os
import sys
import time
from dataclasses import replace
from pathlib import Path

FILE, ROUND = Path(os.environ["FEDSADDLE_HARM"]), 2


def nan(message, module):
    return with_first(message, module, lambda v: v * float("nan"))


def wrong_shape(message, module):
    return with_first(message, module, lambda v: v[:, :-1])


def with_first(message, module, change):
    name, value = next(iter(module.tensors(message.record)))
    return replace(message, record=replace(message.record, **{name: change(value)}))


def raises(message, module):
    raise RuntimeError("patient 4711 has no age")


def dies(message, module):
    os._exit(1)


def hangs(message, module):
    time.sleep(25)
    return message


def stale(message, module):
    return replace(message, about=message.about | {"nonce": "0" * 16})


HARM = {f.__name__: f for f in (nan, wrong_shape, raises, dies, hangs, stale)}


def spoil() -> None:
    from fedsaddle.deployment import site_worker
    from fedsaddle.federation import records

    proper, pack = site_worker.SiteWorker._run, site_worker.pack
    site_worker.tensors = records.tensors

    def harmful(self, ask, sent):
        message = proper(self, ask, sent)
        if ask.round != ROUND or not FILE.exists():
            return message
        harm = FILE.read_text()
        FILE.unlink()
        return HARM[harm](message, site_worker) if harm in HARM else replace(message, about=message.about | {"": harm})

    def packed(message):
        harm = message.about.pop("", None)
        content = pack(message)
        return {None: content, "huge": content + bytes(2_000_000), "noise": bytes(100)}[harm]

    site_worker.SiteWorker._run, site_worker.pack = harmful, packed


if "worker_process" in " ".join(sys.orig_argv):
    spoil()
