"""The whole step inside vLLM, with stand-ins for vLLM's sampler and for the device."""

import ast
import logging
import types

import numpy as np
import peers
import pytest

import sluice

torch = pytest.importorskip("torch", reason="torch is not installed")

from sluice.plugins import vllm as plugin  # noqa: E402
from sluice.plugins import vllm_step  # noqa: E402
from vllm_step_engine import (  # noqa: E402
    LONGEST,
    PROCESSORS,
    VOCAB,
    Engine,
    HostSampler,
    params_of,
)

@pytest.fixture
def engine(monkeypatch):
    return Engine(monkeypatch)


def logits_of(rows, seed):
    values = np.random.default_rng(seed).normal(0, 3, (rows, VOCAB)).astype(np.float32)
    return torch.from_numpy(values)


class Expected:
    """A request by itself, by a sluice.Sampler."""

    def __init__(self, tokens, params, prompt=None, mode="raw_logprobs"):
        self.sampler = sluice.Sampler(vocab=VOCAB)
        prompt = len(tokens) if prompt is None else prompt
        self.handle = self.sampler.add(prompt=list(tokens[:prompt]),
                                       **vllm_step.fields_of(params, params.seed, VOCAB, mode))
        self.sampler.accept(self.handle, list(tokens[prompt:]))

    def step(self, row):
        return self.sampler.step(row[None].numpy(), [self.handle])


HARD = {"repetition_penalty": 1.3, "frequency_penalty": 0.4, "presence_penalty": 0.2, "min_p": 0.02,
        "logit_bias": {3: 2.0, 7: -1.0}, "bad_words_token_ids": [[4, 5], [9]], "min_tokens": 3,
        "all_stop_token_ids": {1, 2}, "top_k": 20, "top_p": 0.9}


def test_each_request_gets_the_tokens_that_it_gets_alone(engine):
    prompts = {"a": [1, 2, 3], "b": [4, 5, 6, 7], "c": [8]}
    params = {"a": params_of(seed=5, **HARD), "b": params_of(temperature=0.0),
              "c": params_of(seed=-2, top_k=5)}
    alone = {name: Expected(prompts[name], params[name]) for name in prompts}
    engine.join("a", prompts["a"], params["a"])
    engine.join("b", prompts["b"], params["b"])
    names = ["a", "b"]
    for at in range(12):
        if at == 4:
            engine.join("c", prompts["c"], params["c"])
            names = ["c", "a", "b"]
        if at == 8:
            engine.leave("a")
            names = ["b", "c"]
        logits = logits_of(len(names), at)
        given = engine.step(names, logits)
        for row, name in enumerate(names):
            assert given[name] == alone[name].step(logits[row]).ids[0], (at, name)
    assert dict(vllm_step.counts) == {"steps": 12}


def test_a_prompt_in_pieces_gives_nothing_before_its_end(engine):
    engine.join("long", list(range(10)), params_of(seed=3))
    engine.join("short", [1], params_of(seed=4))
    alone = {"long": Expected(list(range(10)), params_of(seed=3)),
             "short": Expected([1], params_of(seed=4))}
    for at in range(5):
        logits = logits_of(2, at)
        given = engine.step(["long", "short"], logits, piece=4)
        assert ("long" in given) == (at >= 2)
        for row, name in enumerate(["long", "short"]):
            if name in given:
                assert given[name] == alone[name].step(logits[row]).ids[0]
    assert vllm_step.counts["steps"] == 5 and vllm_step.counts["requests that caught up"] == 0


def test_only_pieces_of_prompts_take_no_step_of_the_device(engine):
    engine.join("long", list(range(10)), params_of(logprobs=2))
    assert engine.step(["long"], logits_of(1, 0), piece=4) == {}
    assert engine.last.tokens.tolist() == [[0]] and engine.last.reports[0].tolist() == [[0, 0, 0]]
    assert engine.steps._sampler.steps == 0


def test_a_request_that_comes_back_goes_on(engine):
    prompt, params = [1, 2, 3], params_of(seed=9, **HARD)
    alone = Expected(prompt, params)
    engine.join("a", prompt, params)
    tokens = list(prompt)
    for at in range(4):
        logits = logits_of(1, at)
        tokens.append(engine.step(["a"], logits)["a"])
        assert tokens[-1] == alone.step(logits[0]).ids[0]
    engine.leave("a")  # preempted
    assert engine.steps._sampler.live == 0
    engine.join("again", tokens, params, prompt=3)
    for at in range(4, 8):
        logits = logits_of(1, at)
        assert engine.step(["again"], logits)["again"] == alone.step(logits[0]).ids[0]


@pytest.mark.parametrize("fields, reason", [
    ({"logprobs": -1}, "more than 20 log-probabilities"),
    ({"logprobs": 21}, "more than 20 log-probabilities"),
    ({"logprob_token_ids": [3]}, "log-probabilities of given tokens"),
    ({"thinking_token_budget": 5}, "a thinking budget"),
    ({"min_tokens": 2, "structured_outputs": object()}, "min_tokens with structured outputs"),
    ({"logit_bias": {1: 101.0}}, "a bias beyond 100"),
    ({"logit_bias": {VOCAB: 1.0}}, "values of logit_bias"),
])
def test_vllm_samples_the_steps_of_requests_that_are_refused(engine, caplog, fields, reason):
    caplog.set_level(logging.INFO, "vllm.plugins.sluice")
    params, prompt = params_of(seed=2, frequency_penalty=0.5), [1, 2]
    engine.join("added", prompt, params)
    alone = Expected(prompt, params)
    logits = logits_of(1, 0)
    assert engine.step(["added"], logits)["added"] == alone.step(logits[0]).ids[0]
    engine.join("other", [5], params_of(**fields))
    for at in range(2):
        logits = logits_of(2, 10 + at)
        given = engine.step(["added", "other"], logits)
        assert given == {"added": int(logits[0].argmin()), "other": int(logits[1].argmin())}
        alone.sampler.accept(alone.handle, [given["added"]])
    assert vllm_step.counts[reason] == 2
    assert [record.message for record in caplog.records if "leaves" in record.message] == [
        f"Sluice leaves a step to vLLM: {reason}."]
    engine.leave("other")
    for at in range(3):  # with the tokens that vLLM gave
        logits = logits_of(1, 20 + at)
        assert engine.step(["added"], logits)["added"] == alone.step(logits[0]).ids[0]
    assert vllm_step.counts["steps"] == 4 and vllm_step.counts["requests that caught up"] == 1
    assert engine.steps._sampler.accepted == 2  # and no more of its history


def test_reports_have_the_columns_that_vllm_expects(engine):
    engine.join("two", [1], params_of(seed=1, logprobs=2))
    engine.join("five", [2], params_of(seed=2, logprobs=5, temperature=0.0))
    engine.join("none", [3], params_of(seed=3))
    logits = logits_of(3, 7)
    given = engine.step(["two", "none", "five"], logits)
    ids, logprobs, ranks = engine.last.reports
    assert ids.shape == logprobs.shape == (3, 6) and ranks.shape == (3,)
    values = logits.double().log_softmax(dim=1)
    for row, (name, listed) in enumerate((("two", 2), ("none", None), ("five", 5))):
        if listed is None:
            continue
        token, order = given[name], values[row].argsort(descending=True)
        assert ids[row, 0] == token and ids[row, 1:1 + listed].tolist() == order[:listed].tolist()
        # The sum of the weights is that of 2^-40 units here, and of doubles there.
        assert logprobs[row, 0] == pytest.approx(float(values[row, token]), abs=2e-6)
        assert ranks[row] == int((logits[row] >= logits[row, token]).sum())
        assert (ids[row, 1 + listed:] >= 0).all()  # for a detokenizer that looks at each


def test_a_failing_step_is_vllms_and_three_end_it(engine, caplog, monkeypatch):
    params = params_of(seed=6, presence_penalty=0.5)
    engine.join("a", [1, 2], params)
    monkeypatch.setattr(HostSampler, "fails", True)
    logits = logits_of(1, 0)
    assert engine.step(["a"], logits)["a"] == int(logits[0].argmin())
    monkeypatch.setattr(HostSampler, "fails", False)
    alone = Expected([1, 2, int(logits[0].argmin())], params, prompt=2)
    logits = logits_of(1, 1)
    assert engine.step(["a"], logits)["a"] == alone.step(logits[0]).ids[0]
    monkeypatch.setattr(HostSampler, "fails", True)
    for at in range(4):
        logits = logits_of(1, 2 + at)
        assert engine.step(["a"], logits)["a"] == int(logits[0].argmin())
    assert vllm_step.counts["failures"] == 3 and vllm_step.counts["steps failed"] == 2
    assert "on fire" in caplog.text


def test_requests_that_vllm_makes_up_to_warm_up_are_its_own(engine, caplog):
    caplog.set_level(logging.INFO, "vllm.plugins.sluice")
    engine.sampler.add_request(0, params_of())
    batch = types.SimpleNamespace(idx_mapping_np=np.arange(1), num_reqs=1,
                                  seq_lens_cpu_upper_bound=torch.ones(1, dtype=torch.int32))
    logits = logits_of(1, 0)
    assert engine.sampler(logits, batch).tokens.tolist() == [[int(logits[0].argmin())]]
    engine.join("_warmup_0_", [1], params_of(logprobs=5))
    assert engine.step(["_warmup_0_"], logits)["_warmup_0_"] == int(logits[0].argmin())
    assert dict(vllm_step.counts) == {"requests of the warm-up": 2}
    assert "leaves" not in caplog.text


@pytest.mark.parametrize("processors, words", [
    ((*PROCESSORS, "MyProcessor"), "BadWordsState, MyProcessor"),
    (PROCESSORS[:2], "its logits processors are LogitBiasState, PenaltiesState."),
])
def test_a_sampler_that_does_more_stays_vllms(monkeypatch, caplog, processors, words):
    caplog.set_level(logging.INFO, "vllm.plugins.sluice")
    engine = Engine(monkeypatch, processors=processors)
    assert engine.steps is None and words in caplog.text
    engine.join("a", [1], params_of())
    logits = logits_of(1, 0)
    assert engine.step(["a"], logits)["a"] == int(logits[0].argmin())


def test_processed_reports_stay_vllms(monkeypatch):
    engine = Engine(monkeypatch, mode="processed_logprobs")
    engine.join("a", [1], params_of(logprobs=1))
    engine.step(["a"], logits_of(1, 0))
    assert vllm_step.counts["log-probabilities of processed logits"] == 1


def test_reports_are_taken_over_on_request(engine, monkeypatch):
    monkeypatch.setattr(vllm_step, "takes_logprobs", False)
    engine.join("a", [1], params_of(logprobs=1))
    engine.step(["a"], logits_of(1, 0))
    assert vllm_step.counts["log-probabilities, without logprobs in SLUICE_VLLM"] == 1


def test_the_room_for_tokens_is_bounded(monkeypatch):
    memory = 80 << 30
    assert vllm_step._room(256, 8192, memory) == 8192
    bounded = vllm_step._room(1024, 131072, memory)
    assert 1 < bounded < 131072
    assert bounded * 1024 * vllm_step.BYTES_A_TOKEN <= vllm_step.MEMORY_SHARE * memory
    monkeypatch.setenv("SLUICE_VLLM_TOKENS", "100000")
    assert vllm_step._room(1024, 131072, memory) == 100000
    monkeypatch.setenv("SLUICE_VLLM_TOKENS", "many")
    with pytest.raises(sluice.Error, match="SLUICE_VLLM_TOKENS = many is not allowed"):
        vllm_step._room(1, 1, memory)


def test_a_request_that_outgrows_its_room_goes_on_in_vllm(monkeypatch):
    monkeypatch.setenv("SLUICE_VLLM_TOKENS", "8")
    engine = Engine(monkeypatch)
    params = params_of(seed=1, max_tokens=LONGEST)
    engine.join("a", [1, 2, 3, 4], params)
    alone = Expected([1, 2, 3, 4], params)
    for at in range(7):
        logits = logits_of(1, at)
        token = engine.step(["a"], logits)["a"]
        assert token == (alone.step(logits[0]).ids[0] if at < 4 else int(logits[0].argmin()))
    engine.join("long", list(range(9)), params)
    engine.step(["long"], logits_of(1, 0))
    assert dict(vllm_step.counts) == {"steps": 4, "more than 8 tokens": 4}


def test_a_row_without_a_token_leaves_the_request_in_step(engine):
    params = params_of(seed=3, frequency_penalty=0.7, min_tokens=3, all_stop_token_ids={7})
    engine.join("a", [1, 2], params)
    alone = Expected([1, 2], params)
    for at in range(6):
        logits = logits_of(1, at)
        if at == 1:
            logits[:] = -torch.inf
        token = engine.step(["a"], logits)["a"]
        answer = alone.step(logits[0]).ids[0]
        assert token == max(answer, 0)
        if answer < 0:
            alone.sampler.accept(alone.handle, [0])
    assert vllm_step.counts["requests that caught up"] == 0


def test_raw_logits_are_reported_as_such(monkeypatch):
    engine = Engine(monkeypatch, mode="raw_logits")
    engine.join("a", [1], params_of(logprobs=2))
    logits = logits_of(1, 5)
    token = engine.step(["a"], logits)["a"]
    assert engine.last.reports[1].tolist() == [
        [float(logits[0, token]), *logits[0].sort(descending=True).values[:2].tolist()]]


def test_log_probabilities_without_a_limit_have_the_device_samplers(monkeypatch):
    assert Engine(monkeypatch, max_logprobs=-1).steps.most_logprobs == 128


@pytest.mark.parametrize("fields, reason", [({}, None),
                                            ({"repetition_penalty": 1.1}, "values of prompt")])
def test_ids_beyond_the_vocabulary_stand_for_images(engine, fields, reason):
    engine.join("a", [1, VOCAB + 5, -1], params_of(seed=4, **fields))
    logits = logits_of(1, 0)
    token = engine.step(["a"], logits)["a"]
    if reason:
        assert vllm_step.counts[reason] == 1
    else:
        assert token == Expected([0, 0, 0], params_of(seed=4)).step(logits[0]).ids[0]


def test_a_rank_does_not_fall_back_alone(monkeypatch):
    engine = Engine(monkeypatch, ranks=2)
    engine.join("a", [1], params_of())
    monkeypatch.setattr(HostSampler, "fails", True)
    with pytest.raises(RuntimeError, match="on fire"):
        engine.step(["a"], logits_of(1, 0))


def test_failures_long_ago_do_not_count(engine, monkeypatch):
    monkeypatch.setattr(vllm_step, "STEPS_TO_FORGET_THEM", 2)
    engine.join("a", [1], params_of(seed=1))
    for round in range(4):
        monkeypatch.setattr(HostSampler, "fails", True)
        engine.step(["a"], logits_of(1, 0))
        monkeypatch.setattr(HostSampler, "fails", False)
        for at in range(2):
            engine.step(["a"], logits_of(1, at))
    assert vllm_step.counts["failures"] == 4 and vllm_step.counts["steps"] == 8


def test_a_request_that_cannot_be_removed_ends_nothing(engine, monkeypatch, caplog):
    engine.join("a", [1], params_of())
    monkeypatch.setattr(HostSampler, "fails_to_remove", True)
    engine.leave("a")
    assert "could not be removed" in caplog.text


def test_a_slot_that_is_used_again_has_the_new_request(engine):
    engine.join("a", [1, 2, 3], params_of(seed=1))
    engine.step(["a"], logits_of(1, 0))
    engine.leave("a")
    engine.join("b", [4, 5, 6, 7], params_of(seed=2))  # in the same slot
    logits = logits_of(1, 1)
    assert engine.step(["b"], logits)["b"] == Expected([4, 5, 6, 7],
                                                       params_of(seed=2)).step(logits[0]).ids[0]


def test_logits_of_another_shape_are_vllms(engine):
    engine.join("a", [1], params_of())
    engine.step(["a"], torch.cat([logits_of(1, 0), logits_of(1, 1)], dim=1))
    assert vllm_step.counts == {"logits of another shape": 1}


def test_the_log_has_the_steps_by_reason(engine, caplog):
    caplog.set_level(logging.INFO, "vllm.plugins.sluice")
    vllm_step.counts.update({"steps": 900, "a thinking budget": 99})
    engine.join("a", [1], params_of(seed=1))
    engine.step(["a"], logits_of(1, 0))
    assert ("Sluice sampled 901 of 1000 steps; others: {'a thinking budget': 99}."
            in caplog.messages)


@pytest.mark.parametrize("sources", peers.sources_of("vllm") or [None], ids=str)
def test_vllms_own_functions_have_the_parameters_that_are_replaced(sources):
    if sources is None or plugin.seams_of(sources.version) is None:
        pytest.skip("no wheel of a supported version: SLUICE_PEER_WHEELS names no folder with one")
    seams = [seam for seam in plugin.seams_of(sources.version) if seam.part == "step"]
    assert len(seams) == 5
    for seam in seams:
        assert sources.parameters(seam.module, seam.path) == seam.parameters, seam.path


@pytest.mark.parametrize("sources", peers.sources_of("vllm") or [None], ids=str)
def test_what_is_read_of_vllms_states_is_there(sources):
    """Fields that no signature names; a rename must fail here and not in a running engine."""
    if sources is None or plugin.seams_of(sources.version) is None:
        pytest.skip("no wheel of a supported version: SLUICE_PEER_WHEELS names no folder with one")
    own = {
        "vllm.v1.worker.gpu.states": ("max_model_len", "max_seq_len", "prompt_len", "prefill_len",
                                      "all_token_ids", "req_id_to_index"),
        "vllm.v1.worker.gpu.sample.states": ("num_logprobs", "seeds"),
        "vllm.v1.worker.gpu.sample.sampler": (
            "compute_nans", "logits_processors", "logprobs_mode", "num_speculative_tokens",
            "req_states", "return_sampling_mask", "sampling_states", "trace_replay_state"),
    }
    for module, names in own.items():
        given = {node.attr for node in ast.walk(ast.parse(sources.read(module)))
                 if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)}
        assert set(names) <= given, (module, set(names) - given)
    batch = sources.read("vllm.v1.worker.gpu.input_batch")
    fields = {node.target.id for node in ast.walk(ast.parse(batch))
              if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)}
    assert {"cu_num_logits", "idx_mapping", "idx_mapping_np", "num_reqs", "seq_lens",
            "seq_lens_cpu_upper_bound"} <= fields
    outputs = sources.read("vllm.v1.worker.gpu.sample.output")
    assert all(name in outputs for name in ("sampled_token_ids", "logprobs_tensors", "num_nans",
                                            "num_sampled", "num_rejected"))
