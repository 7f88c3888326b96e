"""Rows made so that one unit decides: what random rows do not hit."""

import c_api
import c_rows
import numpy as np
from c_api import c
from reference_support import needs_library, plain, reference

pytestmark = needs_library

SCALE = reference.temperature.temperature_scale(np.float32(1))


def weights_of(x: np.ndarray) -> np.ndarray:
    return reference.weight.weights(x, np.float32(0), SCALE)


def test_gumbel_scores_to_the_last_bit():
    """Two tokens whose scores are nearly equal: a value a few bits up or down turns the draw."""
    rows, keys = [], []
    for position in range(400):
        key = reference.NoiseKey(seed=3, position=position)
        noise = reference.noise.noise_bits(key, 0, np.arange(2))
        g = reference.noise.gumbel(noise)
        low = int(g[1] > g[0])  # the larger noise gets the lower value
        x = np.float32(0) - np.abs(g[0] - g[1]) / SCALE
        for up in range(-3, 4):
            row = np.zeros(2, np.float32)
            row[low] = np.float32(x)
            for _ in range(abs(up)):
                row[low] = np.nextafter(row[low], np.float32(np.copysign(np.inf, up)))
            rows.append(row)
            keys.append(key)
    logits = np.array(rows)
    own = [token.id for token in reference.sample(logits, key=keys)]
    for backend in c_api.backends():
        batch = c_rows.Rows(logits, [reference.Params()], keys, backend=backend)
        assert own == [result.id for result in batch.sample("gumbel")]
    turned = np.diff(np.reshape(own, (-1, 7)), axis=1).any(axis=1)
    assert turned.mean() > 0.2  # else the scores were not nearly equal


def test_xtc_at_its_threshold():
    """Two tokens of which the second weighs 256 k, about what thr32 = k asks of it:
    W 2^32 >= k (2^40 + W) just fails at 256 k and holds one unit further."""
    x = -np.arange(13.5, 14.2, 2.0**-20, dtype=np.float32)
    weights = weights_of(x)
    rows, params, counted = [], [], []
    for k in range(3000, 4500):
        for weight in (256 * k - 1, 256 * k, 256 * k + 1, 256 * k + 2):
            (at,) = np.nonzero(weights == np.uint64(weight))
            if len(at) > 0:
                rows.append([0.0, x[at[0]]])
                params.append(reference.Params(xtc_probability=1.0, xtc_threshold=k / 2**32))
                counted.append(weight << 32 >= k * ((1 << 40) + weight))
    assert len(rows) > 1000 and 0.2 < np.mean(counted) < 0.8
    logits = np.array(rows, np.float32)
    keys = [reference.NoiseKey()] * len(rows)
    own = [selection.cut for selection in reference.select(logits, params, key=keys)]
    assert [cut.count == 1 for cut in own] == counted
    for backend in c_api.backends():
        cuts, _ = c_rows.Rows(logits, params, keys, backend=backend).select()
        assert [plain(cut) for cut in own] == [c_api.plain(cut) for cut in cuts]


def row_of_mass(mass: int, x: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """A row whose first token is its largest, 2^40, and whose weights sum up to the mass."""
    row, rest = [0.0], mass - (1 << 40)
    while rest > 0:
        at = int(np.searchsorted(-weights.astype(np.int64), -rest))  # the heaviest that fits
        row.append(float(x[at]))
        rest -= int(weights[at])
    return np.array(row, np.float32)


def test_rejection_at_its_bound():
    """A draft without probabilities is accepted iff P 2^32 >= (U + 1) 2^40. Rows where P lies
    within 2^-32 of that, on both sides."""
    x = -np.linspace(0.0, 28.0, 300_000, dtype=np.float32)
    weights = weights_of(x)
    verdicts = []
    params = reference.Params(draft_mode="reject")
    for position in range(60):
        keys = [reference.NoiseKey(seed=5, position=position)] * 2
        u = reference.noise.uniform32(keys[0], reference.noise.ACCEPTANCE)
        if u < 1 << 27:  # the row would be too long
            continue
        for p, is_accepted in ((256 * u + 128, False), (256 * u + 384, True)):
            row = row_of_mass((1 << 80) // p, x, weights)
            logits = np.array([row, row])
            tokens = reference.verify(logits, [0], params, keys=keys)
            assert (tokens[1].id >= 0) == is_accepted
            verdicts.append(is_accepted)
            first_row, ids = np.array([0, 2], np.int64), c_api.int32s([0, 0])
            drafts = c_api.Drafts(first_row.ctypes.data, 2, ids.ctypes.data, 2)
            for backend in c_api.backends():
                batch = c_rows.Rows(logits, [params], keys, backend=backend)
                results, emitted = (c_api.TokenResult * 2)(), np.zeros(1, np.int32)
                modes = (c.c_uint8(1), c.c_uint8(0))
                outputs = (results, 2, emitted, 1)
                c_api.call("sluice_verify", batch.input, drafts, *modes, *outputs, batch.execution)
                assert [t.id for t in tokens] == [result.id for result in results]
    assert len(verdicts) > 80
