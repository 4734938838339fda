"""The share of small faults that the tests of a room notice: `make mutants`, or `python tests/mutants.py ROOM …`.

A fault ("mutant") is one change in a function: a sign, a constant, a comparison, a dropped detach, a swapped split, a
skipped call. The tests that call the function judge it, in a process of their own. What is not noticed is listed: a
test is missing there, or the code makes no difference.
"""

import ast
import collections
import compileall
import copy
import os
import pickle
import py_compile
import random
import shutil
import signal
import sys
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
ROOMS = {"losses": "losses", "metrics": "metrics", "analysis": "lab/analysis", "runs": "lab/runs"}
COUNT, LIMIT = 50, 1800  # mutants of a room; seconds after which tests that hang have noticed one
SWAPS = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.Lt: ast.LtE, ast.LtE: ast.Lt,
    ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.In: ast.NotIn, ast.NotIn: ast.In,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.And: ast.Or, ast.Or: ast.And, ast.FloorDiv: ast.Mult,
}  # fmt: skip


def change(node: ast.AST) -> bool:
    """Change a node in place; false if it is none of the kinds above."""
    match node:
        case ast.BinOp() | ast.BoolOp() | ast.AugAssign() if type(node.op) in SWAPS:
            node.op = SWAPS[type(node.op)]()
        case ast.Compare() if type(node.ops[0]) in SWAPS:
            node.ops[0] = SWAPS[type(node.ops[0])]()
        case ast.Constant(value=bool()):
            node.value = not node.value
        case ast.Constant(value=int() | float()):
            node.value = node.value + 1 if isinstance(node.value, int) else node.value * 1.5 or 1.0
        case ast.Constant(value="train" | "test" | "val" | "validation"):
            node.value = "train" if node.value == "test" else "test"
        case ast.UnaryOp(op=ast.USub()):
            node.op = ast.UAdd()
        case ast.Call(func=ast.Attribute(attr="detach")):
            node.func, node.args = ast.parse("lambda value: value", mode="eval").body, [node.func.value]
        case ast.Expr(value=ast.Call()):
            node.value = ast.Constant(value=None)
        case _:
            return False
    return True


def function_at(tree: ast.Module, line: int) -> ast.FunctionDef | None:
    """The innermost function that has this line in its body."""
    around = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.body[0].lineno <= line <= n.end_lineno]
    return max(around, key=lambda n: n.lineno, default=None)


def places(path: Path) -> list[tuple[Path, int]]:
    """The nodes of a file that can be changed, by their numbers in the walk."""
    tree = ast.parse(path.read_text())
    nodes = [(number, node) for number, node in enumerate(ast.walk(tree)) if hasattr(node, "lineno")]
    return [(path, number) for number, node in nodes if function_at(tree, node.lineno) and change(copy.deepcopy(node))]


class Calls:
    """Writes which tests call which functions below a folder; what a fixture calls is called by its tests."""

    def __init__(self, source: Path, answer: Path) -> None:
        self.source, self.answer, self.current = str(source), answer, ""
        self.names: dict[str, list[str]] = {}
        self.calls: dict[str, set[tuple[str, int]]] = collections.defaultdict(set)

    def trace(self, frame, event, argument):
        if frame.f_code.co_filename.startswith(self.source):
            self.calls[self.current].add((frame.f_code.co_filename, frame.f_code.co_firstlineno))

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef, request):
        before, self.current = self.current, fixturedef.argname
        try:
            return (yield)
        finally:
            self.current = before

    def pytest_runtest_setup(self, item):
        self.current = item.nodeid
        self.names[item.nodeid] = [item.nodeid, *item.fixturenames]
        sys.settrace(self.trace)

    def pytest_runtest_logreport(self, report):
        if report.failed or report.skipped:
            self.names.pop(report.nodeid, None)

    def pytest_sessionfinish(self):
        sys.settrace(None)
        called = {test: set().union(*(self.calls[name] for name in names)) for test, names in self.names.items()}
        self.answer.write_bytes(pickle.dumps(called))


def run_tests(source: Path, tests: list[str], *options: str, plugins: tuple[object, ...] = ()) -> int:
    """The exit status of tests in a forked process, where all but the package itself is imported already."""
    if not (child := os.fork()):
        signal.alarm(LIMIT)
        os.chdir(ROOT)
        os.environ["PYTHONPATH"] = str(source)
        sys.path.insert(0, str(source))
        for output in (1, 2):
            os.dup2(os.open(os.devnull, os.O_WRONLY), output)
        quick = ["-p", "no:cacheprovider", "-m", "not slow", "--assert=plain"]
        os._exit(pytest.main([*tests, *quick, *options], plugins=list(plugins)))
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def judge(room: str, folder: Path) -> None:
    """Make mutants of a room in a copy of the source, one at a time, and say which ones its tests do not notice."""
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__"))
    top = folder / "src" / "adaptive_labels"
    compileall.compile_dir(top, quiet=1, invalidation_mode=py_compile.PycInvalidationMode.CHECKED_HASH)
    tests = ROOT / "tests" / room if (ROOT / "tests" / room).exists() else ROOT / "tests" / f"test_{room}.py"
    run_tests(folder / "src", [str(tests)], plugins=(Calls(top, folder / "calls"),))
    called = pickle.loads((folder / "calls").read_bytes())
    every = [place for path in sorted((top / ROOMS[room]).rglob("*.py")) for place in places(path)]
    chosen, noticed = random.Random(0).sample(every, COUNT), 0
    for path, number in chosen:
        text = path.read_text()
        tree = ast.parse(text)
        node = list(ast.walk(tree))[number]
        function = function_at(tree, node.lineno)
        first = min(n.lineno for n in (function, *function.decorator_list))
        judges = [test for test, functions in called.items() if (str(path), first) in functions]
        change(node)
        path.write_text(ast.unparse(tree))
        if judges and run_tests(folder / "src", judges, "-x") != 0:
            noticed += 1
        else:
            line = text.splitlines()[node.lineno - 1].strip()
            print(f"  {len(judges)} tests, {path.relative_to(top)}:{node.lineno}: {line}  ->  {ast.unparse(node)[:60]}")
        path.write_text(text)
    print(f"{room}: {noticed} of {COUNT} noticed", flush=True)


if __name__ == "__main__":
    os.environ.update(CI="1", PYTHONDONTWRITEBYTECODE="1", OMP_NUM_THREADS="1")
    sys.dont_write_bytecode = True
    import hypothesis, jinja2, pandas, scipy.stats, torch  # noqa: E401, F401, I001

    torch.set_num_threads(1)
    for room in sys.argv[1:] or ROOMS:
        with tempfile.TemporaryDirectory() as folder:
            judge(room, Path(folder))
