"""Build Python without the lock of the interpreter from Debian's source package: ``python -m tools.free_threaded
build/free_threaded``.

For machines whose package manager has none; needs apt, a C compiler and the headers that Python is built with.
``apt-get`` looks for the source packages in the suites of the archive that the machine uses, with lists and files in a
folder of their own: the configuration of the machine stays as it is. The first version of Python that the archive really has
is built: an archive may list newer versions than it has, so older ones are tried, too. The build takes some minutes, without
the optimizations that need test runs: compare its times with themselves only.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

SUITES = ("unstable", "testing", "stable")
VERSIONS = ("3.14", "3.13")


def main() -> None:
    """Run the program."""
    parser = argparse.ArgumentParser(prog="python -m tools.free_threaded", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("prefix", type=Path)
    parser.add_argument("--versions", default=",".join(VERSIONS), metavar="A,B", help="in order of preference")
    parser.add_argument("--source", type=Path, help="a folder with the source text, instead of the archive's")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        build(given.source or source_in(Path(folder), given.versions.split(",")), given.prefix.absolute())


def source_in(folder: Path, versions: Sequence[str]) -> Path:
    """Download and extract the source text of the first version of Python that the archive has; return its folder."""
    archive = _output("apt-get", "indextargets", "--format", "$(REPO_URI)").split()[0]
    lists = folder / "sources.list"
    lists.write_text("".join(f"deb-src {archive} {suite} main\n" for suite in SUITES))
    (folder / "lists").mkdir()
    options = [
        *(f"--option=Dir::Etc::sourcelist={lists}", "--option=Dir::Etc::sourceparts=-"),
        *(f"--option=Dir::State::lists={folder / 'lists'}", f"--option=Dir::Cache={folder}"),
        f"--option=APT::Sandbox::User={os.environ.get('USER', 'root')}",
    ]
    subprocess.run(["apt-get", *options, "update"], check=True, cwd=folder)
    wanted = [package for version in versions for package in _packages_of(f"python{version}", options)]
    for package in wanted:
        command = ["apt-get", *options, "source", "--download-only", package]
        if subprocess.run(command, check=False, cwd=folder).returncode == 0:
            break
    else:
        sys.exit(f"the archive has none of these packages: {', '.join(wanted)}")
    name = package.partition("=")[0]
    with tarfile.open(next(file for file in folder.glob(f"{name}_*.orig.tar.*") if file.suffix != ".asc")) as file:
        file.extractall(folder / "source", filter="data")
    return next((folder / "source").iterdir())


def _packages_of(name: str, options: Sequence[str]) -> Iterator[str]:
    """Return the source packages of this name that the archive lists, the newest first, each with its version."""
    found = subprocess.run(["apt-cache", *options, "showsrc", name], check=False, capture_output=True, text=True).stdout
    versions = dict.fromkeys(line.split()[1] for line in found.splitlines() if line.startswith("Version:"))
    return (f"{name}={version}" for version in reversed(versions))


def build(source: Path, prefix: Path) -> None:
    """Build Python without the lock of the interpreter, and install it."""
    subprocess.run(["./configure", "--quiet", "--disable-gil", f"--prefix={prefix}"], check=True, cwd=source)
    subprocess.run(["make", "--silent", f"-j{os.cpu_count()}"], check=True, cwd=source)
    subprocess.run(["make", "--silent", "install"], check=True, cwd=source, stdout=subprocess.DEVNULL)


def _output(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    main()
