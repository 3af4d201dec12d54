"""Runs test suites of other projects; see `tests.suites` and docs/developers.

python -m tests.suites SOURCES [project ...] [--python PYTHON] [--limit SECONDS] [--test-limit SECONDS]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import venv
from pathlib import Path

from tests.suites.suite import NoTestError, Project, Runner, Verdict, projects

ROOT = Path(__file__).parents[2]


def main() -> int:
    """Run the suites whose sources are there, print a table, and return whether a test is lost."""
    parser = argparse.ArgumentParser(prog="python -m tests.suites", description=__doc__)
    parser.add_argument("sources", type=Path, help="folder with one folder for each project, named as in projects.toml")
    parser.add_argument("projects", nargs="*", help="their names; all whose sources are there by default")
    parser.add_argument("--python", help="interpreter with all that the tests need, instead of one environment per project")
    parser.add_argument("--limit", type=float, default=900, help="seconds for one run of a suite")
    parser.add_argument("--test-limit", type=float, default=120, help="seconds for one test")
    parser.add_argument("--results", type=Path, default=ROOT / "build" / "suites", help="folder for lists of lost tests")
    options = parser.parse_args()

    known = projects()
    chosen = options.projects or [name for name in known if (options.sources / name).is_dir()]
    if not chosen:
        parser.error(f"{options.sources} has none of the folders {', '.join(known)}")
    options.results.mkdir(parents=True, exist_ok=True)
    print(f"{'suite':<24}{'passed twice':>14}{'with ours':>12}{'excepted':>10}{'lost':>6}", flush=True)
    has_faults = False
    for project in (known[name] for name in chosen):
        python = options.python or environment_of(project)
        try:
            found = Runner(options.sources.absolute(), python, options.limit, options.test_limit).verdict(project)
        except NoTestError as error:
            print(error, flush=True)
            has_faults = True
            continue
        show(project, found, options.results)
        has_faults = has_faults or bool(found.faults)
    return int(has_faults)


def show(project: Project, found: Verdict, results: Path) -> None:
    """Print the row of a project, and write the list of its tests."""
    kept, faults = len(found.counted) - len(found.lost), found.faults
    print(f"{project.name:<24}{len(found.counted):>14,}{kept:>12,}{len(found.excepted):>10}{len(faults):>6}", flush=True)
    for test, outcome in faults.items():
        print(f"    {outcome}: {test}", flush=True)
    described = {"counted": sorted(found.counted), "excepted": dict(found.excepted), "lost": faults}
    (results / f"{project.name}.json").write_text(json.dumps(described, indent=1), encoding="utf-8")


def environment_of(project: Project) -> str:
    """Return the interpreter of an environment for the tests of a project, which is made if it does not exist."""
    folder = ROOT / ".venv" / "suites" / project.name
    python, ready = folder / "bin" / "python", folder / ".ready"
    if not ready.exists():
        venv.create(folder, clear=True, with_pip=True)
        # Installed, not editable: the tests of the project must not find modules of this repository.
        needed = [f"{ROOT}[pytorch]", "pytest", *project.requirements]
        subprocess.run([python, "-m", "pip", "install", "--quiet", *needed], check=True)
        ready.touch()
    return str(python)


if __name__ == "__main__":
    sys.exit(main())
