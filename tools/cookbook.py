"""The recipes of the cookbook: ``python -m tools.cookbook [names] [--write]`` runs them, each in a folder of its own.

A recipe is a section of a page of ``docs/cookbook``: a heading, a paragraph with the names of packages, a program, and its
output. ``--write`` writes the outputs into the pages, and the times into the index.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import os
import re
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

__all__ = ["FOLDER", "Recipe", "Run", "missing_packages", "recipes", "run"]

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "cookbook"
PAGES = ("files", "media", "structures", "training")
DEADLINE_S = 120
_SECTION = re.compile(
    r"^## (?P<title>.+?)\n(?P<text>.*?)```python recipe\n(?P<code>.*?)```\n\n```text\n(?P<output>.*?)```", re.M | re.S
)
#: Distributions of the extras that the pages name, and the servers of some recipes.
_DISTRIBUTIONS = {
    "audio": ("soundfile", "soxr"),
    "video": ("av",),
    "images": ("simplejpeg", "opencv-python-headless"),
    "remote": ("fsspec", "tenacity", "diskcache"),
    "psycopg": ("psycopg", "pgserver"),
    "s3fs": ("s3fs", "moto"),
}


class Recipe(NamedTuple):
    """A section of a page.

    Attributes:
        packages: names of distributions, besides this one.
        output: the expected text.
    """

    page: str
    title: str
    packages: tuple[str, ...]
    code: str
    output: str


class Run(NamedTuple):
    """The output of a program, and the time from its start to its end."""

    output: str
    time_s: float


def recipes() -> list[Recipe]:
    """Return all recipes."""
    return [recipe for page in PAGES for recipe in _of_page(page)]


def missing_packages(recipe: Recipe) -> list[str]:
    """Return the packages of a recipe that are not installed."""

    def is_missing(name: str) -> bool:
        try:
            importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            return True
        return False

    return [name for name in recipe.packages if is_missing(name)]


def run(recipe: Recipe, folder: Path) -> Run:
    """Run a recipe in an empty folder.

    Raises:
        CalledProcessError: the program failed.
        TimeoutExpired: it took longer than `DEADLINE_S`.
    """
    program = folder / "recipe.py"
    program.write_text(recipe.code, "utf-8")
    with _services(recipe, folder) as addresses:
        begin = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-W", "error", program.name],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(FOLDER.parents[1]), **addresses},
            stdout=subprocess.PIPE,
            text=True,
            timeout=DEADLINE_S,
            check=True,
        )
        return Run(done.stdout, time.monotonic() - begin)


def _of_page(page: str) -> Iterator[Recipe]:
    text = (FOLDER / f"{page}.md").read_text("utf-8")
    for found in _SECTION.finditer(text):
        (needs,) = re.findall(r"Packages:\s(.*?)\.\n", found["text"], re.S)
        names = [name.split("[")[0] for name in re.findall(r"`(.+?)`", needs)]
        packages = tuple(package for name in names for package in _DISTRIBUTIONS.get(name, (name,)))
        yield Recipe(page, found["title"], packages, found["code"], found["output"])


@contextlib.contextmanager
def _services(recipe: Recipe, folder: Path) -> Iterator[dict[str, str]]:
    """Start the servers that a recipe asks for, and yield variables with their addresses."""
    with contextlib.ExitStack() as servers:
        if '"DATABASE"' in recipe.code:
            yield {"DATABASE": servers.enter_context(_database(folder))}
        elif '"BUCKET"' in recipe.code:
            yield servers.enter_context(_bucket())
        else:
            yield {}


@contextlib.contextmanager
def _database(folder: Path) -> Iterator[str]:
    """Start a PostgreSQL server."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it asks for a folder of the login session, which containers and CI do not have
        import pgserver  # type: ignore[import-not-found]

    server = pgserver.get_server(folder / "database", cleanup_mode="delete")
    try:
        yield server.get_uri()
    finally:
        server.cleanup()


@contextlib.contextmanager
def _bucket() -> Iterator[dict[str, str]]:
    """Start an object store with one bucket."""
    import botocore.session  # type: ignore[import-not-found]
    from moto.server import ThreadedMotoServer  # type: ignore[import-not-found]

    server = ThreadedMotoServer(port=0)
    server.start()
    try:
        host, port = server.get_host_and_port()
        address = {"AWS_ENDPOINT_URL": f"http://{host}:{port}", "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
        client = botocore.session.get_session().create_client(
            "s3",
            region_name="us-east-1",
            endpoint_url=address["AWS_ENDPOINT_URL"],
            aws_access_key_id="a",
            aws_secret_access_key="b",
        )
        with contextlib.closing(client):
            client.create_bucket(Bucket="photographs")
        yield {**address, "BUCKET": "s3://photographs"}
    finally:
        server.stop()


def _write(runs: dict[Recipe, Run]) -> None:
    for page in {recipe.page for recipe in runs}:
        path = FOLDER / f"{page}.md"
        text = path.read_text("utf-8")
        for recipe, done in runs.items():
            if recipe.page == page:
                program = f"{recipe.code}```\n\n```text\n"
                text = text.replace(f"{program}{recipe.output}```", f"{program}{done.output}```")
        path.write_text(text, "utf-8")
    index = FOLDER / "index.md"
    rows = index.read_text("utf-8").splitlines()
    for recipe, done in runs.items():
        mark = f"| [{recipe.title}]"
        rows = [re.sub(r"\| [^|]* \|$", f"| {done.time_s:.1f} s |", row) if row.startswith(mark) else row for row in rows]
    index.write_text("\n".join(rows) + "\n", "utf-8")


def main() -> None:
    """Run the recipes whose titles contain one of the arguments; all without any."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="parts of titles")
    parser.add_argument("--write", action="store_true", help="write outputs and times into the pages")
    arguments = parser.parse_args()
    runs: dict[Recipe, Run] = {}
    failures = []
    for recipe in recipes():
        if arguments.names and not any(name.lower() in recipe.title.lower() for name in arguments.names):
            continue
        if missing := missing_packages(recipe):
            print(f"{recipe.title}: left out, {', '.join(missing)} not installed")
            continue
        try:
            with tempfile.TemporaryDirectory() as folder:
                done = runs[recipe] = run(recipe, Path(folder))
        except subprocess.SubprocessError as error:
            failures.append(recipe.title)
            print(f"{recipe.title}: {error}")
            continue
        state = "ok" if done.output == recipe.output else f"prints something else:\n{done.output}"
        print(f"{recipe.title}: {done.time_s:.1f} s, {state}", flush=True)
    if arguments.write:
        _write(runs)
    if failures:
        raise SystemExit(f"failed: {', '.join(failures)}")


if __name__ == "__main__":
    main()
