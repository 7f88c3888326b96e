"""What may be passed as an array; nothing of it is changed behind the caller's back."""

import array
import ctypes
import os
import subprocess
import sys

import numpy as np
import pytest
from conftest import assert_same, random_rows

import sluice

KEYS = {"seed": 5, "top_k": 9, "temperature": 0.9}


def same_as(rows, given):
    assert_same(sluice.sample(given, **KEYS), sluice.sample(rows, **KEYS))


def test_rows_may_lie_apart():
    wide = random_rows(8, 300)
    same_as(wide[:, :257].copy(), wide[:, :257])
    same_as(wide[::3].copy(), wide[::3])
    same_as(np.ascontiguousarray(wide[2:3, 5:9]), wide[2:3, 5:9])
    assert_same(sluice.sample(wide[:, 7].copy(), **KEYS), sluice.sample(wide.T.copy()[7], **KEYS))
    same_as(wide[:, 7:8].copy(), wide[:, 7:8])  # one column: its stride means nothing


def test_padding_is_neither_read_nor_written():
    wide = np.full((3, 12), np.nan, np.float32)
    wide[:, :8] = random_rows(3, 8)
    sluice.mask_(wide[:, :8], top_k=2)
    assert np.isnan(wide[:, 8:]).all() and np.isinf(wide[:, :8]).sum() >= 18


def test_what_has_the_buffer_protocol_is_an_array():
    row = random_rows(1, 9)[0]
    values = array.array("f", row.tolist())
    same_as(row, values)
    same_as(row, memoryview(values))
    sluice.mask_(values, top_k=1)
    assert sum(value > float("-inf") for value in values) == 1


def test_read_only_logits_are_fine_to_read():
    rows = random_rows()
    rows.flags.writeable = False
    same_as(rows.copy(), rows)


def test_bfloat16_is_masked_in_place():
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed")
    rows = random_rows(4, 33).astype(ml_dtypes.bfloat16)
    wide = rows.astype(np.float32)
    sluice.mask_(rows, top_k=5)
    np.testing.assert_array_equal(rows.astype(np.float32), sluice.mask_(wide, top_k=5))


class OnDevice:
    """A matrix [1, 4] of fp32 that says it lies on some device; its memory is never looked at."""

    def __init__(self, device):
        self.device = device

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, **_):
        class Tensor(ctypes.Structure):
            _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32),
                        ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32),
                        ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                        ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
                        ("strides", ctypes.POINTER(ctypes.c_int64)), ("offset", ctypes.c_uint64),
                        ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]

        self.memory = (ctypes.c_float * 4)()
        self.extents = (ctypes.c_int64 * 4)(1, 4, 4, 1)
        extents = ctypes.cast(self.extents, ctypes.POINTER(ctypes.c_int64))
        strides = ctypes.cast(ctypes.addressof(self.extents) + 16, ctypes.POINTER(ctypes.c_int64))
        self.tensor = Tensor(ctypes.addressof(self.memory), *self.device, 2, 2, 32, 1, extents,
                             strides, 0, None, None)
        new = ctypes.pythonapi.PyCapsule_New
        new.restype = ctypes.py_object
        new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return new(ctypes.addressof(self.tensor), b"dltensor", None)


def test_another_device_is_refused():
    assert sluice.select(OnDevice((1, 0)), top_k=1).counts.tolist() == [1]
    with pytest.raises(sluice.ArgumentTypeError) as caught:
        sluice.select(OnDevice((2, 0)), top_k=1)
    assert str(caught.value) == "logits.device = cuda is not allowed: cpu with this backend"
    with pytest.raises(sluice.ArgumentTypeError):
        sluice.select(OnDevice((13, 0)), top_k=1)


def test_calls_run_in_many_threads_at_once():
    from concurrent.futures import ThreadPoolExecutor

    rows = random_rows(64, 999)
    expected = sluice.sample(rows, **KEYS).ids
    shared = sluice.Threads(2)

    def work(i):
        return sluice.sample(rows, **KEYS, threads=shared if i % 2 else None).ids

    with ThreadPoolExecutor(8) as pool:
        for ids in pool.map(work, range(100)):
            np.testing.assert_array_equal(ids, expected)


def test_threads_that_are_busy_do_not_block():
    threads = sluice.Threads(2)
    inner = []

    def select(tokens, prompt_length, logits):
        inner.append(sluice.select(random_rows(), top_k=2, threads=threads).counts.max())

    sampler = sluice.Sampler(vocab=9, threads=threads)
    requests = [sampler.add(processors=[select]) for _ in range(4)]
    sampler.step(random_rows(4, 9), requests)
    assert inner == [2] * 4


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_process_does_without_the_threads():
    code = """if True:
        import os, sys, numpy as np, sluice
        threads = sluice.Threads(3)
        rows = np.zeros((9, 8), np.float32)
        sluice.select(rows, threads=threads)
        child = os.fork()
        ok = sluice.select(rows, top_k=2, threads=threads).counts.tolist() == [2] * 9
        if child == 0:
            sys.exit(0 if ok else 1)
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) or not ok)
    """
    assert subprocess.run([sys.executable, "-W", "ignore", "-c", code], timeout=180).returncode == 0


def test_importing_the_package_does_not_import_numpy():
    code = "import sluice, sys; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_the_reference_is_loaded_when_asked_for():
    code = "import sluice, sys; sys.exit('sluice.reference' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
    with pytest.raises(AttributeError, match="no attribute 'no_such_name'"):
        sluice.no_such_name  # noqa: B018
