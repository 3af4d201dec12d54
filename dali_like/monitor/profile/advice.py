"""Remedies for the hottest lines of a profile."""

from __future__ import annotations

import linecache
import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from dali_like.monitor.profile.profile import HotLine, Profile

__all__ = ["advice_for"]

#: A function, or waiting, is worth advice from these shares of the time on.
_LEAST, _MUCH_WAITING = 0.1, 0.4


class _AdviceRule(NamedTuple):
    """Advice for functions or lines.

    Attributes:
        functions: matches ``file function`` of the function.
        lines: matches the text of the line, which calls a function that has no frame, such as one in C.
        advice: the remedy.
    """

    functions: re.Pattern[str]
    lines: re.Pattern[str]
    advice: str


_RULES = (
    _AdviceRule(
        re.compile(
            r"PIL/(Image|ImageFile|JpegImagePlugin)\.py (open|load|convert|_open|verify|__init__)$|imageio/|torchvision/io/"
        ),
        re.compile(r"\bimdecode\(|\bimread\(|\bdecode_(image|jpeg|png)\(|Image\.open\(|\bimage_from_array|default_loader\("),
        "decode with simplejpeg: dali_like.data.transforms.Decode, or fn.decoders.image behind a source of encoded files",
    ),
    _AdviceRule(
        re.compile(
            r"PIL/Image\.py (resize|thumbnail|reduce)$|torchvision/transforms/.*(resize|_interpolate)|skimage/transform/"
        ),
        re.compile(r"\bresize\(|\bthumbnail\(|\binterpolate\("),
        "resize with an operator, fn.resize, or decode at a lower scale: it runs in the workers without the GIL",
    ),
    _AdviceRule(
        re.compile(
            r"h5py/.*(__init__|make_fid)$|zipfile.*(__init__|_RealGetContents)$|tarfile\.py (__init__|open|next)$|pyarrow/"
        ),
        re.compile(
            r"\bh5py\.File\(|\bZipFile\(|\btarfile\.open\(|\blmdb\.open\(|\bParquetFile\(|\bnp\.load\(|\bnetCDF4\.Dataset\("
        ),
        "open the file once per worker, not for each sample: keep it in an attribute that __getitem__ fills, or open it in "
        "worker_init_fn",
    ),
    _AdviceRule(
        re.compile(r"json/decoder\.py|json/__init__\.py loads$"),
        re.compile(r"\bjson\.loads?\("),
        "parse JSON with a faster library, such as orjson, or store the samples in a binary format",
    ),
    _AdviceRule(
        re.compile(r"numpy/random/"),
        re.compile(r"\bnp\.random\.\w+\(.*size=|\.(standard_)?normal\("),
        "draw random numbers of float32 into one array: rng.random(size, np.float32), or use an operator, fn.random",
    ),
)


def advice_for(profile: Profile) -> list[str]:
    """Return remedies for the hottest functions, the most important first."""
    texts: dict[str, float] = {}
    for line in profile.lines():
        for rule in _RULES:
            if _fits(rule, line):
                texts[rule.advice] = texts.get(rule.advice, 0.0) + line.share
                break
    found = [f"{share:.0%}: {text}" for text, share in sorted(texts.items(), key=lambda pair: -pair[1]) if share >= _LEAST]
    total = profile.total
    if total.wall_ns and (waiting := 1 - total.cpu_ns / total.wall_ns) >= _MUCH_WAITING:
        found.append(
            f"{waiting:.0%} of the time is waiting: let each worker read several samples at a time, with read_threads= or "
            "concurrency="
        )
    return found


def _fits(rule: _AdviceRule, line: HotLine) -> bool:
    name = f"{line.file} {line.function}".replace("\\", "/")
    return bool(rule.functions.search(name) or rule.lines.search(linecache.getline(line.path, line.line)))
