"""Tensors of torch: in through DLPack, without a copy."""

import numpy as np
import pytest
from conftest import assert_same, random_rows

import sluice

torch = pytest.importorskip("torch", reason="torch is not installed")

KEYS = {"seed": 5, "top_k": 9}


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_a_tensor_gives_what_its_values_do(backend, dtype):
    rows = torch.from_numpy(random_rows()).to(getattr(torch, dtype))
    wide = rows.float().numpy()
    assert_same(sluice.sample(rows, **KEYS, backend=backend),
                sluice.sample(wide, **KEYS, backend=backend))
    assert_same(sluice.sample(rows[:, 3:90], **KEYS), sluice.sample(wide[:, 3:90], **KEYS))
    assert_same(sluice.sample(rows[0], **KEYS), sluice.sample(wide[0], **KEYS))


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_a_tensor_is_masked_in_place(dtype):
    rows = torch.from_numpy(random_rows(4, 33)).to(getattr(torch, dtype))
    wide = rows.float().numpy().copy()
    assert sluice.mask_(rows, top_k=5) is rows
    np.testing.assert_array_equal(rows.float().numpy(), sluice.mask_(wide, top_k=5))


def test_parameters_may_be_tensors():
    rows = random_rows(3)
    cuts = sluice.select(rows, top_k=torch.tensor([1, 2, 3]), top_p=torch.ones(3))
    assert cuts.counts.tolist() == [1, 2, 3]
    assert sluice.select(rows, top_k=torch.tensor(2)).counts.tolist() == [2, 2, 2]


def test_a_tensor_of_another_type_is_refused():
    with pytest.raises(sluice.ArgumentTypeError) as caught:
        sluice.select(torch.zeros(3, dtype=torch.int64))
    assert str(caught.value) == "logits.dtype = int64 is not allowed: float32, bfloat16 or float16"
    with pytest.raises(sluice.Error, match=r"logits\.strides"):
        sluice.select(torch.zeros(4, 6)[:, ::2])


def test_results_become_tensors_without_a_copy():
    tokens = sluice.sample(random_rows(), **KEYS)
    ids = torch.from_numpy(tokens.ids)
    tokens.ids[0] = -7
    assert ids[0] == -7


def test_dense_head_takes_tensors():
    weight, hidden = torch.randn(9, 5).bfloat16(), torch.randn(2, 5)
    np.testing.assert_array_equal(sluice.dense_head(weight, hidden),
                                  sluice.dense_head(weight.float().numpy(), hidden.numpy()))
