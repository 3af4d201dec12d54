"""Sparse matrices of SciPy: as sources of rows, as samples, and as batches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse

from dali_like.data import ComposedDataset, DataLoader
from dali_like.errors import CollateTypeError

DENSE = np.arange(60).reshape(20, 3) * (np.arange(60).reshape(20, 3) % 4 == 0)
WORKERS = [0, 2]


def matrix(kind: Any = scipy.sparse.csr_matrix) -> Any:
    return kind(DENSE)


@pytest.mark.parametrize("kind", [scipy.sparse.csr_matrix, scipy.sparse.csr_array, scipy.sparse.lil_matrix])
@pytest.mark.parametrize("num_workers", WORKERS)
def test_rows_are_stacked_to_sparse_batches(num_workers: int, kind: Any) -> None:
    dataset = ComposedDataset.source(matrix(kind))

    batches = list(DataLoader(dataset, 8, num_workers=num_workers, collate_fn=scipy.sparse.vstack))

    assert len(dataset) == 20
    assert [batch.shape for batch in batches] == [(8, 3), (8, 3), (4, 3)]
    assert (scipy.sparse.vstack(batches).toarray() == DENSE).all()


@pytest.mark.parametrize("num_workers", WORKERS)
def test_rows_become_arrays_by_map(num_workers: int) -> None:
    dataset = ComposedDataset.source(matrix()).map(lambda row: row.toarray()[0])

    assert (np.concatenate(list(DataLoader(dataset, 8, num_workers=num_workers))) == DENSE).all()


@pytest.mark.parametrize("sample", [lambda row: row, lambda row: {"row": row}], ids=["row", "dict"])
@pytest.mark.parametrize("num_workers", WORKERS)
def test_the_default_collation_of_sparse_rows_is_an_error_with_both_ways_out(num_workers: int, sample: Any) -> None:
    batches = iter(DataLoader(ComposedDataset.source(matrix()).map(sample), 4, num_workers=num_workers))

    with pytest.raises(CollateTypeError, match=r"found <class 'scipy.sparse.*vstack.*toarray"):
        next(batches)
