"""Imports of `dali_like.data`."""

from __future__ import annotations

import subprocess
import sys


def run_python(program: str) -> str:
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, timeout=300, check=True
    )
    return result.stdout


def test_importing_the_package_does_not_import_it() -> None:
    assert run_python("import sys, dali_like; print([name for name in sys.modules if 'dali_like.data.' in name])") == "[]\n"


def test_importing_it_loads_no_optional_module() -> None:
    program = "import sys, dali_like.data; print(sorted({'cv2', 'simplejpeg', 'torch', 'PIL'} & set(sys.modules)))"

    assert run_python(program) == "[]\n"


def test_a_composed_dataset_in_memory_needs_no_files_and_no_event_loop() -> None:
    program = (
        "import sys; from dali_like.data import ComposedDataset, DataLoader\n"
        "batches = list(DataLoader(ComposedDataset.source(range(4)).shuffle(), batch_size=2))\n"
        "names = {'asyncio', 'ssl', 'tarfile', 'dali_like.sources.composed.from_files'}\n"
        "print(sorted(names & set(sys.modules)))"
    )

    assert run_python(program) == "[]\n"


def test_samplers_and_collation_need_no_optional_module() -> None:
    program = (
        "import sys; sys.modules['torch'] = sys.modules['cv2'] = sys.modules['simplejpeg'] = None\n"
        "from dali_like.data import *\n"
        "sampler = BatchSampler(RandomSampler(range(4), generator=1), 2, False)\n"
        "print(sorted(int(sum(default_collate(indices))) for indices in sampler) != [])\n"
    )

    assert run_python(program) == "True\n"
