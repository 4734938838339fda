"""Torture runs: kill them at any moment, fail every change of a file, damage every file (`make torture`).

    python tests/torture/torture.py kills --count 1000
    python tests/torture/torture.py faults
    python tests/torture/torture.py damage

Whatever happens, nothing finished may be lost or changed, no file may be wrong in silence, the user gets a sentence and
no traceback, and the same command completes later with the same bits. The outcomes are counted, and written as CSV
with --csv FILE; each violation is printed as it is found, and makes the exit status 1. Its words, the folder as it was
and what the command printed are kept below --keep DIR.
"""

from __future__ import annotations

import argparse
import csv
import errno
import json
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from commands import Command, Fault, Task, content, import_everything, litter, make_data, run, with_faults

SIGNALS = {"SIGKILL": signal.SIGKILL}
"""How runs are ended. One that a command can answer (SIGTERM) must leave at most a sentence."""
ERRORS = {"ENOSPC": errno.ENOSPC, "EIO": errno.EIO, "EACCES": errno.EACCES}
MOST_KILLS = 12  # of one command, before it is left to complete


class Outcomes:
    """What was done, how often, and what should not have happened."""

    def __init__(self, place: Path, keep: Path) -> None:
        self.place, self.keep = place, keep
        self.counts: Counter[tuple[str, str, str]] = Counter()
        self.violations: list[str] = []

    def add(self, kind: str, what: str, outcome: str) -> None:
        self.counts[kind, what, outcome] += 1

    def expect(self, holds: bool, words: str) -> None:
        if not holds:
            self.violations.append(words)
            self.keep.mkdir(parents=True, exist_ok=True)
            kept = Path(tempfile.mkdtemp(prefix=f"violation-{len(self.violations)}-", dir=self.keep))
            for path in self.place.parent.glob(f"{self.place.name}*"):
                (shutil.copytree if path.is_dir() else shutil.copy)(path, kept / path.name)
            (kept / "words.txt").write_text(words)
            print(f"VIOLATION {words}\n(kept in {kept})", flush=True)

    def write(self, path: Path | None) -> None:
        rows = [(*key, count) for key, count in sorted(self.counts.items())]
        rows.append(("violations", "", "", len(self.violations)))
        rows += [("violation", words, "", 1) for words in self.violations]
        for row in rows:
            print(*row, sep="  ", flush=True)
        if path is not None:
            with path.open("w", newline="") as file:
                csv.writer(file).writerows([("kind", "what", "outcome", "count"), *rows])


class Torture:
    """The commands, what they give when nobody disturbs them, and the outcomes so far."""

    def __init__(self, folder: Path, names: list[str], seed: int, keep: Path) -> None:
        self.folder, self.now, self.draw = folder, folder / "now", random.Random(seed)
        self.outcomes = Outcomes(self.now, keep)
        tasks = make_data(folder / "data")
        import_everything(folder / "first", tasks)
        self.tasks = [tasks[name] for name in names or tasks]
        self.references, self.seconds, self.changes = {}, {}, {}
        for task in self.tasks:
            place = folder / "reference" / task.name.replace(" ", "-").replace(",", "")
            ended = run(task, place)
            if ended.status != 0:
                raise SystemExit(f"{task.name} does not even run: {ended.err}")
            self.references[task.name], self.changes[task.name] = content(place), ended.changes
            self.seconds[task.name] = run(task, place.with_name(f"{place.name}-again")).seconds
            print(f"{task.name}: {self.seconds[task.name]:.2f} s, {ended.changes} changes of files", flush=True)

    def fresh(self) -> Path:
        """An empty folder."""
        shutil.rmtree(self.now, ignore_errors=True)
        self.now.mkdir()
        return self.now

    def judge(self, task: Task, place: Path, finished: dict[str, object], status: int, err: str, how: str) -> None:
        """Check what holds after any end: one sentence at most, no traceback, nothing finished lost or changed."""
        self.outcomes.expect("Traceback" not in err and "it hangs" not in err, f"{task.name}, {how}: {err[-2000:]}")
        lines = [line for line in err.splitlines() if line.startswith("alr: ")]
        self.outcomes.expect(len(lines) <= 1, f"{task.name}, {how}: more than a sentence: {err[-1000:]}")
        now = content(place)
        for name, before in finished.items():
            self.outcomes.expect(now.get(name) == before, f"{task.name}, {how}: {name} was lost or changed")
        reference = self.references[task.name]
        for name, found in now.items():
            self.outcomes.expect(found == reference.get(name), f"{task.name}, {how}: {name} has other bits")

    def complete(self, task: Task, place: Path, how: str) -> None:
        """Let the same command complete: all its runs are there, bit by bit, and nothing else."""
        finished = content(place)
        ended = run(task, place)
        self.judge(task, place, finished, ended.status, ended.err, f"completed after {how}")
        whole = content(place) == self.references[task.name]
        words = f"{task.name}: the same command does not complete after {how}: {ended.status} {ended.err[-500:]}"
        self.outcomes.expect(ended.status == 0 and whole, words)
        left = [name for name in litter(place) if not name.endswith(".damaged") or "damage" not in how]
        self.outcomes.expect(not left, f"{task.name}: left after {how}: {left}")
        self.outcomes.add("completion", task.name, "identical" if whole and ended.status == 0 else "DIFFERENT")

    def kills(self, count: int, signals: dict[str, int]) -> None:
        """End commands at random moments, again and again, and let each complete."""
        done = 0
        while done < count:
            # Workers are real processes that start anew, which takes seconds: they get fewer of the kills.
            task = self.draw.choices(self.tasks, [1 if task.workers > 1 else 8 for task in self.tasks])[0]
            place, finished = self.fresh(), {}
            for _ in range(MOST_KILLS if task.workers == 1 else 4):
                name = self.draw.choice(list(signals))
                command, before = Command(task.words, place), temporary_files(place)
                end = time.monotonic() + self.draw.uniform(0, self.seconds[task.name])
                while time.monotonic() < end and not command.poll():
                    time.sleep(0.0005)
                group = self.draw.random() < 0.5
                command.send(signals[name], group)
                ended = command.wait()
                when = moment(place, temporary_files(place) - before, len(self.references[task.name]))
                self.judge(task, place, finished, ended.status, ended.err, f"{name} {when}, after {done} kills")
                if ended.status == 0:
                    break
                finished = content(place)
                done += 1
                self.outcomes.add(f"{name} {when}", task.name, "nothing lost")
            self.complete(task, place, "kills")
            if done % 50 < MOST_KILLS:
                print(f"{done} kills, {len(self.outcomes.violations)} violations", flush=True)

    def faults(self, every: int, first: int) -> None:
        """Fail each change of a file from the `first` one on in turn, and end the command at each of them."""
        kinds = [(name, number, name == "ENOSPC") for name, number in ERRORS.items()]
        kinds.append(("SIGKILL at a change", -signal.SIGKILL, False))
        for task in self.tasks:
            if task.workers > 1:
                continue
            for name, number, stays in kinds:
                changes = range(self.changes[task.name])[first:]
                for at in changes[self.draw.randrange(every) :: every]:
                    place = self.fresh()
                    ended = run(task, place, Fault(at, number, stays))
                    how = f"{name} at change {at} ({ended.hit})"
                    self.judge(task, place, {}, ended.status, ended.err, how)
                    told = ended.err.startswith("alr: ") or number < 0
                    self.outcomes.expect(
                        ended.status == 0 or told, f"{task.name}, {how}: no sentence: {ended.err[-500:]}"
                    )
                    outcome = "went on" if ended.status == 0 else "killed" if number < 0 else "one sentence"
                    self.outcomes.add(f"{name} at {ended.hit}" if ended.hit else name, task.name, outcome)
                    self.complete(task, place, how)
                print(f"{task.name}, {name}: {len(self.outcomes.violations)} violations", flush=True)

    def damage(self, every: int) -> None:
        """Cut and flip every file of finished and unfinished runs at every kind of place."""
        for task in self.tasks:
            if task.workers == 1 and task.name.startswith("train"):
                self._damage_finished(task, every)
                self._damage_unfinished(task, every)
                print(f"{task.name}, damage: {len(self.outcomes.violations)} violations", flush=True)

    def _damage_finished(self, task: Task, every: int) -> None:
        from adaptive_labels.lab.runs import RunFolder, find_problems

        place = self.fresh()
        run(task, place)
        (folder,) = place.glob("runs/*")
        for path in sorted(file for file in folder.rglob("*") if file.is_file()):
            data = path.read_bytes()
            for kind, damaged in list(damages(data))[:: max(1, every // 2)]:
                path.write_bytes(damaged)
                try:
                    found = find_problems(RunFolder(folder))
                except ValueError as error:
                    found = [str(error)]
                harmless = path.suffix == ".json" and says_the_same(data, damaged)  # such as without the last newline
                words = f"{task.name}: {path.name} {kind} of a finished run is not noticed"
                self.outcomes.expect(harmless or bool(found), words)
                self.outcomes.add("damage, finished", path.name, "detected" if found else "harmless")
            path.write_bytes(data)

    def _damage_unfinished(self, task: Task, every: int) -> None:
        place = self.fresh()
        late = next(at for at in range(self.changes[task.name] - 1, 0, -1) if self._has_checkpoints(task, place, at))
        run(task, place := self.fresh(), Fault(late, -signal.SIGKILL))
        stopped = self.folder / "stopped"
        shutil.rmtree(stopped, ignore_errors=True)
        shutil.copytree(place, stopped)
        for path in sorted(file.relative_to(place) for file in place.glob("runs/**/*") if file.is_file()):
            for kind, damaged in list(damages((stopped / path).read_bytes()))[::every]:
                shutil.rmtree(place)
                shutil.copytree(stopped, place)
                (place / path).write_bytes(damaged)
                self._same_or_refused(task, place, path, kind)

    def _has_checkpoints(self, task: Task, place: Path, at: int) -> bool:
        run(task, place := self.fresh(), Fault(at, -signal.SIGKILL))
        return len(list(place.glob("runs/*/checkpoint/epoch-*.json"))) == 2 and not content(place)

    def _same_or_refused(self, task: Task, place: Path, path: Path, kind: str) -> None:
        how = f"damage to {path.name} ({kind})"
        ended = run(task, place)
        self.judge(task, place, {}, ended.status, ended.err, how)
        if ended.status == 0:
            self.outcomes.expect(content(place) == self.references[task.name], f"{task.name}: other bits after {how}")
            name = path.name if path.parent.name != "checkpoint" else f"checkpoint/{path.suffix}"
            name = "a temporary file" if path.suffix == ".tmp" else name
            self.outcomes.add("damage, unfinished", name, "the same bits")
        else:
            self.outcomes.expect(ended.err.startswith("alr: "), f"{task.name}: no sentence after {how}: {ended.err}")
            self.outcomes.add("damage, unfinished", path.name, "one sentence")


def moment(place: Path, writing: set[Path], runs: int) -> str:
    """When a command of so many runs was ended, by the files that it was `writing` and those that it had written."""
    if writing:
        return (
            "while a checkpoint is written" if "checkpoint" in {path.parent.name for path in writing} else "in a write"
        )
    if len(list(place.glob("runs/*/result.json"))) == runs:
        return "after the last run, before the report is whole"
    begun = [path.parent for path in place.glob("runs/*/config.json") if not (path.parent / "result.json").exists()]
    if any(any(run.glob("checkpoint/epoch-*.json")) for run in begun):
        return "in a later epoch"
    return (
        "in the first epoch"
        if begun
        else "between runs"
        if list(place.glob("runs/*/result.json"))
        else "before any run"
    )


def temporary_files(place: Path) -> set[Path]:
    """Files that were being written, and those that earlier kills have left."""
    return {*place.glob("runs/**/.*.tmp")}


def says_the_same(data: bytes, damaged: bytes) -> bool:
    """Whether changed bytes are the same JSON."""
    try:
        return bool(json.loads(data) == json.loads(damaged))
    except ValueError:
        return False


def damages(data: bytes) -> Iterator[tuple[str, bytes]]:
    """A file cut, flipped, zeroed and lengthened: at its ends, and all over it."""
    for share in (0, 0.01, 0.25, 0.5, 0.75, 0.99):
        yield f"cut at {share:.0%}", data[: int(share * len(data))]
    yield "cut by a byte", data[:-1]
    yield "longer", data + b"\0"
    yield "longer by a line", data + b"\n{}"
    places = {0, 1, 7, 8, 9, 20, len(data) - 1, len(data) - 2, *(int(i * len(data) / 16) for i in range(16))}
    for place in sorted(place for place in places if 0 <= place < len(data)):
        for bit in (0, 5):
            yield f"bit {bit} of byte {place}", data[:place] + bytes([data[place] ^ (1 << bit)]) + data[place + 1 :]
    for place in (0, len(data) // 2):
        changed = data[:place] + bytes(16) + data[place + 16 :]
        if changed != data:
            yield f"zeros at {place}", changed


def main() -> None:
    """Parse the options, torture, and count."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", nargs="*", default=["kills", "faults", "damage"])
    parser.add_argument("--count", type=int, default=1000, help="how many kills")
    parser.add_argument("--every", type=int, default=1, help="fail every n-th change, and try every n-th damage")
    parser.add_argument("--first", type=int, default=0, help="fail changes from this one on; below 0 from the end")
    parser.add_argument("--task", action="append", default=[], help="only this command, such as 'train text'")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--csv", type=Path, help="where the outcomes go")
    parser.add_argument("--keep", type=Path, default=Path("torture-violations"), help="where violations are kept")
    given = parser.parse_args()
    with_faults()
    with tempfile.TemporaryDirectory(prefix="alr-torture-") as folder:
        torture = Torture(Path(folder).resolve(), given.task, given.seed, given.keep.resolve())
        try:
            if "kills" in given.what:
                torture.kills(given.count, SIGNALS)
            if "faults" in given.what:
                torture.faults(given.every, given.first)
            if "damage" in given.what:
                torture.damage(given.every)
        finally:
            torture.outcomes.write(given.csv)
    sys.exit(1 if torture.outcomes.violations else 0)


if __name__ == "__main__":
    main()
