"""Carries out a Dockerfile in folders, with chroot, where no container engine runs; needs root, on Linux.

    debootstrap --variant=minbase trixie base
    python docker/in_chroot.py docker/Dockerfile --base base --out build/containers [--target demo]

Each stage is a folder: a copy of ``--base``, in the place of an image that is downloaded, or of the stage that it begins
with. Of the language there is as much as this repository's Dockerfiles use: ARG and FROM with AS, ENV, WORKDIR, COPY with
--from, RUN, USER, and CMD in its JSON form; anything else is an error.

At the end the command of the last stage runs as its user, without a network, with a /dev/shm of 64 KiB, and with nothing to
write to but /tmp and ``build``: as docker/compose.yaml has it.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

_CERTIFICATES = "/run/certificates.crt"
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass
class Stage:
    """A stage that is being built.

    Attributes:
        root: its folder.
        environment: of its commands.
        folder: that they run in.
        user: who runs them.
        command: what its containers run.
    """

    root: Path
    environment: dict[str, str] = field(default_factory=lambda: {"PATH": _PATH, "HOME": "/root"})
    folder: str = "/"
    user: str = "0"
    command: Sequence[str] = ()

    def begun_from(self, other: Stage) -> None:
        """Go on where another stage has ended."""
        self.environment, self.folder, self.user = dict(other.environment), other.folder, other.user
        self.command = other.command


def instructions(text: str) -> Iterator[tuple[str, str]]:
    """The instructions of a Dockerfile, and what stands behind each."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    for line in re.sub(r"\\\n\s*", " ", "\n".join(lines)).splitlines():
        if line.strip():
            word, _, rest = line.strip().partition(" ")
            yield word.upper(), rest.strip()


def build(dockerfile: Path, context: Path, base: Path, out: Path, target: str | None, certificates: Path | None) -> Stage:
    """Carry out a Dockerfile up to a stage, or to its end.

    Args:
        base: the root file system in the place of the image that is downloaded.
        out: where the stages go.
        certificates: see `run`.

    Raises:
        ValueError: there is an instruction that is not known here.
        subprocess.CalledProcessError: a command has failed.
    """
    stages: dict[str, Stage] = {}
    arguments: dict[str, str] = {}
    stage = Stage(out)
    for word, rest in instructions(dockerfile.read_text()):
        print(f"{word} {rest}", flush=True)
        if word == "ARG":
            name, _, value = rest.partition("=")
            arguments[name] = value
        elif word == "FROM":
            if target is not None and target in stages:
                break
            source, _, name = rest.partition(" AS ")
            stage = stages[name] = Stage(out / name)
            begun = stages.get(_expanded(source, arguments))
            _copy_root(base if begun is None else begun.root, stage.root)
            if begun is not None:
                stage.begun_from(begun)
        else:
            _carry_out(word, rest, stage, stages, context, certificates)
    return stage


def _carry_out(
    word: str, rest: str, stage: Stage, stages: dict[str, Stage], context: Path, certificates: Path | None
) -> None:
    if word == "ENV":
        for pair in shlex.split(_expanded(rest, stage.environment)):
            name, _, value = pair.partition("=")
            stage.environment[name] = value
    elif word == "WORKDIR":
        stage.folder = os.path.join(stage.folder, rest)
        (stage.root / stage.folder.lstrip("/")).mkdir(parents=True, exist_ok=True)
    elif word == "USER":
        stage.user = rest
    elif word == "CMD":
        stage.command = json.loads(rest)
    elif word == "COPY":
        _copy_into(rest, stage, stages, context)
    elif word == "RUN":
        run(stage, ["/bin/sh", "-c", rest], certificates)
    else:
        raise ValueError(f"this does not know the instruction {word}")


def _copy_into(rest: str, stage: Stage, stages: dict[str, Stage], context: Path) -> None:
    *sources, target = shlex.split(rest)
    root = context
    if sources[0].startswith("--from="):
        root = stages[sources.pop(0).removeprefix("--from=")].root
    place = stage.root / os.path.join(stage.folder, target).lstrip("/")
    for source in sources:
        path = root / source.lstrip("/")
        if path.is_dir():
            shutil.copytree(path, place, symlinks=True, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            place.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, place)


def _copy_root(source: Path, target: Path) -> None:
    if target.exists():
        shutil.rmtree(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["cp", "--archive", "--reflink=auto", source, target], check=True)


def run(stage: Stage, command: Sequence[str], certificates: Path | None = None, *, confined: bool = False) -> None:
    """Run a command in a stage.

    Args:
        certificates: those that pip is to trust.
        confined: whether as docker/compose.yaml lets containers run.
    """
    root = shlex.quote(str(stage.root))
    steps = [f"mount --bind {root} {root}", f"mount --rbind /dev {root}/dev", f"mount -t proc proc {root}/proc"]
    if confined:
        steps += [
            f"mount -o remount,bind,ro {root}",
            f"mount -t tmpfs tmpfs {root}/tmp",
            f"if test -d {root}{stage.folder}/build; then mount -t tmpfs -o mode=777 tmpfs {root}{stage.folder}/build; fi",
            f"mount -t tmpfs -o size=64k tmpfs {root}/dev/shm",
        ]
    else:
        steps += [f"touch {root}/etc/resolv.conf", f"mount --bind /etc/resolv.conf {root}/etc/resolv.conf"]
    environment = dict(stage.environment)
    if certificates is not None:
        steps += [f"touch {root}{_CERTIFICATES}", f"mount --bind {certificates} {root}{_CERTIFICATES}"]
        environment["PIP_CERT"] = _CERTIFICATES
    inner = ["/bin/sh", "-c", f"cd {shlex.quote(stage.folder)} && exec {shlex.join(command)}"]
    settings = [f"{name}={value}" for name, value in environment.items()]
    steps.append(f"exec chroot --userspec={stage.user}:{stage.user} {root} env -i {shlex.join([*settings, *inner])}")
    separate = ["--mount", "--pid", "--fork", *(["--net"] if confined else [])]
    subprocess.run(["unshare", *separate, "/bin/sh", "-ec", "\n".join(steps)], check=True)


def _expanded(text: str, values: dict[str, str]) -> str:
    return re.sub(r"\$\{?(\w+)\}?", lambda match: values[match[1]], text)


def main() -> int:
    """Build the stages, and run the command of the last one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dockerfile", type=Path)
    parser.add_argument("--base", type=Path, required=True, help="the root file system in the place of the image")
    parser.add_argument("--out", type=Path, required=True, help="where the stages go")
    parser.add_argument("--target", help="the stage to build; default: the last one")
    parser.add_argument("--certificates", type=Path, help="those that pip is to trust, where a network has its own")
    given = parser.parse_args()
    certificates = given.certificates and given.certificates.resolve()
    context = Path(__file__).resolve().parent.parent
    stage = build(given.dockerfile, context, given.base.resolve(), given.out.resolve(), given.target, certificates)
    size = int(subprocess.run(["du", "-sm", stage.root], check=True, capture_output=True, text=True).stdout.split()[0])
    print(f"{stage.root.name}: {size} MiB\n$ {shlex.join(stage.command)}", flush=True)
    run(stage, stage.command, confined=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
