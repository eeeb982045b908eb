"""What the tasks of an algorithm release about a client's rows, and what a run of so many rounds does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from fedsaddle.errors import BadInput
from fedsaddle.federation.tasks import Release, Releases, planned_exchanges, tasks_of
from fedsaddle.privacy.accountant import Event, Events


def reason_against(kind: type) -> str:
    """Why an algorithm's class cannot have differential privacy of rows; empty: it can."""
    if hasattr(kind, "run_task"):
        return f"privacy does not apply to {kind.__name__} yet; use the algorithm that it wraps"
    tasks = tasks_of(kind).values()
    unknown = [task for task in tasks if task.releases is None]
    if tasks and not unknown:
        return ""
    stated = next((task.reason for task in unknown if task.reason), "")
    what = unknown[0].name if unknown else "an exchange"
    return stated or f"what {what} releases about a row is not known; state it with @fs.task(releases=...)"


def check_algorithm(algorithm: object) -> None:
    """Refuse an algorithm with a task that has no private form, with the reason."""
    if reason := reason_against(type(algorithm)):
        raise BadInput("algorithm", type(algorithm).__name__, f"cannot be private: {reason}")


def task_releases(algorithm: Any, task: str, sent: Any) -> Releases:
    """What a client releases when it runs the task; `sent` is the server's word, and is not trusted."""
    found = tasks_of(type(algorithm)).get(task)
    if found is None or found.releases is None:
        raise BadInput("algorithm", type(algorithm).__name__, f"its task {task!r} has no private form")
    return found.releases(algorithm, sent)


def planned_releases(algorithm: Any, rounds: int) -> Releases:
    """What a client releases that is asked in every exchange of so many rounds."""
    check_algorithm(algorithm)
    return sum((planned.releases for planned in planned_exchanges(algorithm, rounds, 1)), Releases())


def events_of(releases: Releases, units: int) -> Events:
    """The releases of a client with so many rows, or patients, for the accountant."""
    rates: Counter[tuple[float, int]] = Counter()
    for (size, fields), count in releases.items():
        rates[1.0 if size is None else min(1.0, size / units), fields] += count
    return tuple(Event(rate, fields, count) for (rate, fields), count in sorted(rates.items()))


def within(spent: Releases, plan: Releases) -> bool:
    """Whether no more was released than planned, of any kind."""
    return all(count <= plan[kind] for kind, count in spent.items())


def to_plain(releases: Releases) -> list[list[int | None]]:
    """For JSON: size, fields and count of each kind."""
    return [[r.size, r.fields, n] for r, n in sorted(releases.items(), key=str)]


def from_plain(stored: Iterable[Any]) -> Releases:
    """The releases of a JSON document."""
    return Counter({Release(size, fields): int(n) for size, fields, n in stored})
