"""vLLM's own sampler beside a Sampler that is fed its metadata: every deviation has a reason."""

import types

import numpy as np
import peers
import pytest

import sluice

torch = pytest.importorskip("torch", reason="torch is not installed")

import vllm_modules  # noqa: E402
import vllm_sampler  # noqa: E402

from sluice.metadata_sampler import rows_of  # noqa: E402

VERSIONS = [sources for sources in peers.sources_of("vllm") if sources.version == vllm_modules.VERSION]


@pytest.fixture(scope="module")
def vllm():
    if not VERSIONS:
        pytest.skip(f"vLLM {vllm_modules.VERSION} is not there: SLUICE_PEER_WHEELS names no folder "
                    "with its wheel")
    with vllm_modules.loaded(VERSIONS[0]) as modules:
        yield modules


def test_random_requests_get_what_vllm_gives_or_a_reason(vllm):
    comparison = vllm_sampler.compare(vllm, 30)
    assert comparison.unexplained == []
    rows = sum(count for (what, _), count in comparison.counts.items() if what == "kept sets")
    assert comparison.counts["kept sets", "equal"] > 0.8 * rows > 200
    # The same noise gives the same token: nothing but rounding could make it another.
    assert comparison.counts["random tokens", "equal"] > 0.99 * comparison.counts[
        "kept sets", "equal"]


@pytest.mark.parametrize("change", ["logits", "draw", "history"])
def test_what_is_not_the_same_has_no_reason(vllm, change, monkeypatch):
    """The comparison sees a difference that is none of vLLM's."""
    batch = vllm_sampler.Batch(vllm, np.random.default_rng(5))
    comparison = vllm_sampler.Comparison()
    if change == "draw":
        key = vllm_sampler.NoiseKey
        monkeypatch.setattr(vllm_sampler, "NoiseKey", lambda seed, position, choice: key(
            seed, position + 1, choice))
    if change == "history":
        for row in range(batch.rows):  # vLLM's penalties count what the processors do not see
            batch.metadata.prompt_token_ids[row, 0] = row
        real = vllm_sampler.rows_of
        monkeypatch.setattr(vllm_sampler, "rows_of", lambda metadata, vocab: [
            row._replace(prompt=[]) for row in real(metadata, vocab)])
    if change == "logits":
        adjusted = vllm.sampler.Sampler.apply_logits_processors
        monkeypatch.setattr(vllm.sampler.Sampler, "apply_logits_processors",
                            lambda self, logits, *others: adjusted(self, logits, *others) + 1e-3)
    comparison.step(vllm, batch)
    assert comparison.unexplained


def test_the_metadata_of_this_version_say_all_that_is_asked(vllm):
    batch = vllm_sampler.Batch(vllm, np.random.default_rng(3))
    batch.metadata.max_num_logprobs = None
    fields = [row.fields for row in rows_of(batch.metadata, vllm_sampler.VOCAB)]
    for name in ("min_p", "logit_bias", "min_tokens", "bad_words", "top_k", "top_p", "seed",
                 "repetition_penalty"):
        assert any(name in of_row for of_row in fields), name


def test_a_processor_of_the_user_is_refused(vllm):
    batch = vllm_sampler.Batch(vllm, np.random.default_rng(3))

    class Own:
        def is_argmax_invariant(self):
            return False

    batch.metadata.max_num_logprobs = None
    batch.metadata.logitsprocs = vllm.state.LogitsProcessors([Own()])
    with pytest.raises(sluice.Error, match="logitsprocs = Own"):
        rows_of(batch.metadata, vllm_sampler.VOCAB)


def test_what_has_no_word_is_refused():
    metadata = types.SimpleNamespace(output_token_ids=[[]], logprob_token_ids={0: [4]})
    with pytest.raises(sluice.Error, match="logprob_token_ids"):
        rows_of(metadata, 10)


def test_a_row_without_support_is_a_status_and_not_a_token(vllm):
    metadata = vllm_sampler.Batch(vllm, np.random.default_rng(3), rows=2).metadata
    logits = torch.full((2, vllm_sampler.VOCAB), -torch.inf)
    theirs = vllm.sampler.Sampler().greedy_sample(logits)
    assert theirs.tolist() == [0, 0]  # vLLM cannot tell it from a token
    metadata.max_num_logprobs = None
    sampler = vllm_sampler.MetadataSampler(vllm_sampler.HostSampler(2))
    ours = sampler(logits, metadata).get()
    assert ours.ids.tolist() == [-1, -1]
    assert ours.statuses.tolist() == [sluice.Status.EMPTY_SUPPORT] * 2
