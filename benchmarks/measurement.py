"""The record of one run: one system, one workload, one process. It is a row of the CSV file."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields

__all__ = ["COLUMNS", "Measurement"]


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """Results of one run; None if a workload or a system has no such figure.

    The timed part is ``batches`` batches in ``wall_s`` seconds. For a steady workload it follows the warm-up. For a cold one
    it begins with the first ``run()`` or ``next()``, and its CPU figures exclude the first batch.
    """

    workload: str
    system: str
    repeat: int
    batch_size: int
    batches: int | None = None
    wall_s: float | None = None
    samples_per_s: float | None = None
    bytes_per_s: float | None = None
    main_cpu_us_per_batch: float | None = None
    """CPU time of the consumer's process, all its threads, user and system."""
    main_kernel_cpu_us_per_batch: float | None = None
    """The part of it that the kernel took: mapping memory, page faults, reading from pipes and sockets."""
    all_cpu_us_per_batch: float | None = None
    """CPU time of the consumer's process and all processes below it."""
    other_load_cores: float | None = None
    """Cores kept busy by anything else on the machine during the timed part: the noise."""
    import_s: float | None = None
    """Importing the library; numpy is there already."""
    start_s: float | None = None
    """Making the loader and ``build()`` or ``iter()``."""
    first_run_s: float | None = None
    """The first ``run()`` or ``next()``, after that."""
    first_batch_s: float | None = None
    """``start_s + first_run_s``: comparable however a library shares the work between the two."""
    pss_bytes: int | None = None
    """Proportional set size of the whole tree of processes at the end, workers alive."""
    base_pss_bytes: int | None = None
    """The same after importing the library, before the loader was made."""
    processes: str | None = None
    """CPU time and proportional set size of each process, in words."""
    longest_wait_s: float | None = None
    """The longest time that a batch came late, the one with the slow sample left out."""
    restart_s: float | None = None
    """``iter()`` and the first ``next()`` of an epoch that is not the first: the median."""
    epoch_s: float | None = None
    """From ``iter()`` to the end of that epoch: the median."""
    added_bytes: int | None = None
    """Proportional set size of the whole tree at the end, without what this process had before the loader was made."""
    tokens_per_s: float | None = None
    """Tokens of packs, without padding."""
    padding: float | None = None
    """Share of padding in packs."""
    dearest_of_mean: float | None = None
    """The cost of the dearest rank in a step, as a multiple of the mean of all ranks; the mean of the steps."""
    dearest_of_bound: float | None = None
    """The same as a multiple of its lower bound."""
    in_order_of_mean: float | None = None
    """The first of these if each rank had its positions in order."""

    def to_json(self) -> str:
        """Return the measurement as one line of JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, line: str) -> Measurement:
        """Parse a measurement written by `to_json`."""
        return cls(**json.loads(line))


COLUMNS = tuple(field.name for field in fields(Measurement))
