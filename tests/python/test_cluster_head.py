"""ClusterHead: the dense head's first tokens, and sets within what was requested."""

import numpy as np
import pytest

import sluice
from sluice.research import ClusterHead

VOCAB, DIM, CENTRES = 900, 32, 30


@pytest.fixture(scope="module")
def planted():
    """Rows that lie in clusters, with a bias, and hidden states next to some of their centres."""
    random = np.random.default_rng(4)
    centres = random.normal(size=(CENTRES, DIM))
    weight = centres[np.arange(VOCAB) % CENTRES] + 0.05 * random.normal(size=(VOCAB, DIM))
    hidden = centres[:8] + 0.3 * random.normal(size=(8, DIM))
    bias = 0.1 * random.normal(size=VOCAB)
    return tuple(a.astype(np.float32) for a in (weight, bias, hidden))


@pytest.mark.parametrize("metric", ["euclidean", "spherical"])
def test_the_first_tokens_are_the_dense_heads(planted, metric):
    weight, bias, hidden = planted
    head = ClusterHead(weight, bias, metric=metric, clusters=CENTRES)
    opened = []
    for state, logits in zip(hidden, sluice.dense_head(weight, hidden, bias=bias)):
        found = head.topk(state, 10)
        order = np.argsort(-logits, kind="stable")[:10]
        np.testing.assert_array_equal(found["ids"], order)
        np.testing.assert_array_equal(found["logits"], logits[order])
        opened.append(found["rows_opened"])
    assert min(opened) < VOCAB / 4  # or the clusters were of no use


def test_softmax_and_nucleus_are_within_what_was_requested(planted):
    weight, bias, hidden = planted
    head = ClusterHead(weight, bias, clusters=CENTRES)
    for state, logits in zip(hidden, sluice.dense_head(weight, hidden, bias=bias)):
        weights = np.exp(logits.astype(np.float64) - logits.max())
        softmax = weights / weights.sum()
        found = head.softmax(state, 0.1)
        lost = 1.0 - softmax[found["ids"]].sum()
        assert lost <= found["epsilon"] + 1e-9 and found["epsilon"] <= 0.1
        order = np.argsort(-logits, kind="stable")
        size = np.searchsorted(np.cumsum(softmax[order]), 0.8) + 1
        np.testing.assert_array_equal(head.topp(state, 0.8)["ids"], order[:size])


def test_a_file_is_of_one_head(planted, tmp_path):
    weight, bias, hidden = planted
    head = ClusterHead(weight, bias, clusters=CENTRES, fine_tokens=np.arange(50, dtype=np.int32), fine_clusters=5)
    head.save(tmp_path / "clusters")
    assert (tmp_path / "clusters").stat().st_size == head.nbytes
    again = ClusterHead(weight, bias, file=tmp_path / "clusters")
    assert again.clusters == head.clusters
    np.testing.assert_array_equal(again.topk(hidden[0], 3)["ids"], head.topk(hidden[0], 3)["ids"])
    with pytest.raises(sluice.Error, match="of another head"):
        ClusterHead(weight, bias + 1, file=tmp_path / "clusters")
    sluice.CertifiedHead(weight, kind="strict").save(tmp_path / "planes")
    with pytest.raises(sluice.Error, match="planes of a certified head"):
        ClusterHead(weight, bias, file=tmp_path / "planes")


def test_what_is_not_allowed_is_named(planted):
    weight, bias, hidden = planted
    head = ClusterHead(weight, bias, clusters=CENTRES)
    for call, name in ((lambda: head.topk(hidden[0], 0), "k"), (lambda: head.softmax(hidden[0], 2.0), "epsilon"),
                       (lambda: head.topp(hidden[0], 0.0), "p"), (lambda: head.topk(hidden, 1), "hidden.rows"),
                       (lambda: ClusterHead(weight, metric="cubic"), "metric"),
                       (lambda: ClusterHead(weight, clusters=0), "clusters")):
        with pytest.raises(sluice.Error, match=name):
            call()
    assert head.topk(np.full(DIM, np.nan, np.float32), 1)["reason"] == "hidden"
