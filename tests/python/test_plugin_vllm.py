"""The plug-in for vLLM, against the sampler files of vLLM's own wheels."""

import logging
import types

import numpy as np
import peers
import pytest
from conftest import random_rows

import sluice

torch = pytest.importorskip("torch", reason="torch is not installed")

from sluice.plugins import vllm as plugin  # noqa: E402

FILTERS = "vllm.v1.sample.ops.topk_topp_sampler"
V1 = "vllm.v1.sample.sampler"
RUNNER = "vllm.v1.worker.gpu.sample.sampler"
STATES = "vllm.v1.worker.gpu.sample.states"
HEAD = "vllm.model_executor.layers.logits_processor"
VOCAB = 257
VERSIONS = peers.sources_of("vllm")


class Platform:
    def __init__(self, name="cpu"):
        self.name = name

    def __getattr__(self, question):
        return lambda *args: question == f"is_{self.name}"


class OnHost:
    """As vLLM's UvaBackedTensor: numpy for the host, a tensor for the device."""

    def __init__(self, size, dtype):
        self.gpu = torch.zeros(size, dtype=dtype)
        self.np = self.gpu.numpy()

    def copy_to_uva(self):
        pass


class PluggableLayer(torch.nn.Module):
    register = staticmethod(lambda name: lambda layer: layer)


def apply_temperature(logits, mapping, temperature):
    rows = temperature[mapping]
    logits /= torch.where(rows == 0, 1.0, rows)[:, None]


def given(version, platform):
    return {
        "vllm": {"__version__": version},
        "vllm._aiter_ops": {"rocm_aiter_ops": types.SimpleNamespace(is_enabled=lambda: False)},
        "vllm.config.model": {
            "PROCESSED_LOGPROBS_MODES": ("processed_logits", "processed_logprobs")},
        "vllm.logger": {"init_logger": logging.getLogger},
        "vllm.model_executor.custom_op": {"PluggableLayer": PluggableLayer},
        "vllm.platforms": {"current_platform": platform,
                           "CpuArchEnum": types.SimpleNamespace(RISCV=1, POWERPC=2)},
        "vllm.triton_utils": {"HAS_TRITON": False},
        "vllm.v1.worker.gpu.buffer_utils": {"UvaBackedTensor": OnHost},
        "vllm.v1.worker.gpu.sample.gumbel": {"apply_temperature": apply_temperature},
    }


class Vllm:
    """vLLM's files of one version, loaded, with the plug-in where it was registered."""

    def __init__(self, platform):
        modules = {}
        for name in (FILTERS, V1, RUNNER, STATES, HEAD):
            modules[name] = __import__(name, fromlist=["_"])
        self.filters, self.v1, self.runner = modules[FILTERS], modules[V1], modules[RUNNER]
        self.states, self.head, self.platform = modules[STATES], modules[HEAD], platform

    def v1_sampler(self, mode="raw_logprobs"):
        return self.filters.TopKTopPSampler(mode)

    def runner_sampler(self, requests, mode="raw_logprobs"):
        """The model runner's sampler, with (temperature, top_k, top_p, seed) of its requests."""
        sampler = object.__new__(self.runner.Sampler)
        sampler.logprobs_mode, sampler.use_fp64_gumbel = mode, False
        sampler.use_flashinfer = sampler.use_xpu_sampler = sampler.return_sampling_mask = False
        sampler.logits_processors = []
        sampler.thinking_budget_state = types.SimpleNamespace(apply=lambda logits, ctx: None)
        sampler.sampling_states = self.states.SamplingStates(len(requests), VOCAB)
        sampler.needs_logits_processing = np.array([
            sampler.sampling_states.add_request(at, types.SimpleNamespace(
                temperature=temperature, top_k=k, top_p=p, min_p=0.0, seed=seed, logprobs=None))
            for at, (temperature, k, p, seed) in enumerate(requests)])
        return sampler

    def run(self, sampler, logits, mapping, positions):
        mapping = torch.tensor(mapping)
        return sampler.sample(logits, mapping, mapping, mapping.numpy(), torch.tensor(positions),
                              None, None, None)


@pytest.fixture(params=VERSIONS or [None], ids=str)
def sources(request):
    if request.param is None:
        pytest.skip("vLLM is not there: SLUICE_PEER_WHEELS names no folder with its wheel")
    if plugin.seams_of(request.param.version) is None:
        pytest.skip(f"{request.param} is not a version that the plug-in knows")
    return request.param


@pytest.fixture
def own(sources, monkeypatch):
    """vLLM as it is."""
    monkeypatch.delenv("SLUICE_VLLM", raising=False)
    platform = Platform()
    real = (FILTERS, V1, RUNNER, STATES, HEAD)
    with peers.Engine(sources, real, given(sources.version, platform)):
        yield Vllm(platform)
        plugin.unregister()


@pytest.fixture
def patched(own, monkeypatch):
    monkeypatch.setenv("SLUICE_VLLM", "top_k_top_p,draw,head")
    assert plugin.register()
    return own


def rows_without_ties(rows=60):
    return torch.from_numpy(np.delete(random_rows(rows, VOCAB, seed=3), np.s_[::4], axis=0))


def filters_of(rows):
    generator = np.random.default_rng(2)
    k = torch.from_numpy(generator.integers(1, 60, rows).astype(np.int32))
    k[::5] = VOCAB  # off
    p = torch.from_numpy(generator.uniform(0.3, 1, rows).astype(np.float32))
    p[1::5] = 1
    return k, p


@pytest.mark.parametrize("which", ["k", "p", "kp"])
def test_the_kept_sets_are_those_of_vllm(own, which):
    logits = rows_without_ties()
    k, p = filters_of(len(logits))
    k, p = k if "k" in which else None, p if "p" in which else None
    theirs = own.filters.apply_top_k_top_p(
        logits.clone(), None if k is None else k.clone(), p) > -torch.inf
    assert plugin.register()
    ours = own.filters.apply_top_k_top_p(logits.clone(), k, p) > -torch.inf
    # vLLM sums probabilities in fp32: within 4e-6 of p it may stop a token sooner or later.
    cuts = sluice.select(logits, top_k=k, top_p=p, masses=True)
    margins, totals = cuts.margins.astype(np.float64), cuts.total_masses.astype(np.float64)
    is_clear = torch.from_numpy((margins < 0) | (margins > 4e-6 * totals)
                                | (cuts.margins == np.iinfo(cuts.margins.dtype).max))
    assert is_clear.float().mean() > 0.9
    assert ours[is_clear].equal(theirs[is_clear])


def test_of_tied_tokens_the_lowest_ids_are_kept(patched):
    logits = torch.zeros(2, VOCAB)
    kept = patched.filters.apply_top_k_top_p(logits, torch.tensor([5, VOCAB], dtype=torch.int32),
                                             torch.tensor([1.0, 0.5])) > -torch.inf
    assert kept[0].nonzero()[:, 0].tolist() == list(range(5))
    assert kept[1].nonzero()[:, 0].tolist() == list(range((VOCAB + 1) // 2))


def test_what_has_imported_the_filters_by_name_is_replaced_too(patched):
    assert patched.states.apply_top_k_top_p is patched.filters.apply_top_k_top_p
    assert patched.runner.apply_top_k_top_p is patched.filters.apply_top_k_top_p


def generators(seeds):
    return {row: torch.Generator().manual_seed(seed) for row, seed in seeds.items()}


def test_a_seeded_request_draws_the_same_in_any_batch(patched):
    logits = rows_without_ties()
    k, p = filters_of(len(logits))
    sampler = patched.v1_sampler()
    seeded = generators({3: 11, 7: 12})
    first, _ = sampler(logits.clone(), seeded, k.clone(), p)
    second, _ = sampler(logits.clone(), seeded, k.clone(), p)
    alone = generators({0: 12})
    for tokens in (first, second):  # the generator moves on with each token
        token, returned = sampler(logits[7:8].clone(), alone, k[7:8].clone(), p[7:8])
        assert token.tolist() == [tokens[7].item()] and returned is None
    assert not first.equal(second)


def test_unseeded_requests_follow_torchs_generator(patched):
    logits, sampler = rows_without_ties(), patched.v1_sampler()
    torch.manual_seed(4)
    first, _ = sampler(logits.clone(), {}, None, None)
    torch.manual_seed(4)
    assert first.equal(sampler(logits.clone(), {}, None, None)[0])
    assert not first.equal(sampler(logits.clone(), {}, None, None)[0])


@pytest.mark.parametrize("runner", ["v1", "v2"])
def test_draws_have_the_distribution_of_what_is_kept(patched, runner):
    torch.manual_seed(5)
    count = 20000
    logits = torch.full((count, VOCAB), -10.0)
    logits[:, :4] = torch.tensor([0.5, 0.3, 0.15, 0.05]).log()
    if runner == "v1":
        k = torch.full((count,), 3, dtype=torch.int32)
        tokens, _ = patched.v1_sampler()(logits, {}, k, torch.full((count,), 0.9))
    else:
        sampler = patched.runner_sampler([(1.0, 3, 0.9, 5)])
        tokens, _ = patched.run(sampler, logits, [0] * count, list(range(count)))
    observed = torch.bincount(tokens, minlength=VOCAB)
    expected = torch.tensor([0.5, 0.3, 0.15]) / 0.95 * count
    assert observed[3:].sum() == 0
    # Chi-square of two degrees of freedom: 27.6 is passed once in a million seeds.
    assert ((observed[:3] - expected) ** 2 / expected).sum() < 27.6


@pytest.mark.parametrize("mode", ["processed_logits", "processed_logprobs"])
def test_processed_modes_return_what_is_kept_and_draw_the_same(patched, mode):
    logits = rows_without_ties()
    k, p = filters_of(len(logits))
    seeds = {row: row for row in range(len(logits))}
    raw, nothing = patched.v1_sampler()(logits.clone(), generators(seeds), k.clone(), p)
    tokens, returned = patched.v1_sampler(mode)(logits.clone(), generators(seeds), k.clone(), p)
    masked = sluice.mask_(logits.clone(), top_k=k, top_p=p)
    expected = masked if mode == "processed_logits" else masked.log_softmax(dim=-1)
    assert nothing is None and tokens.equal(raw) and returned.equal(expected)


def test_greedy_and_random_requests_share_a_batch(patched, monkeypatch):
    monkeypatch.setattr(patched.v1.Sampler, "greedy_sample",
                        staticmethod(lambda logits: logits.argmax(dim=-1)))
    logits = rows_without_ties()
    k, p = filters_of(len(logits))
    temperature = torch.full((len(logits),), 0.8)
    temperature[::2] = 0
    metadata = types.SimpleNamespace(
        all_greedy=False, all_random=False, temperature=temperature, generators=generators({1: 9}),
        top_k=k, top_p=p, logitsprocs=types.SimpleNamespace(argmax_invariant=[]))
    sampler = patched.v1.Sampler()
    sampled, _ = sampler.sample(logits.clone(), metadata)
    assert sampled.dtype == torch.int64
    assert sampled[::2].equal(logits[::2].argmax(dim=-1))
    kept = sluice.mask_(logits / 0.8, top_k=k, top_p=p) > -torch.inf
    assert kept.gather(1, sampled[:, None])[1::2].all()


def test_the_second_runner_draws_as_sample_does(patched):
    logits = rows_without_ties(8)
    requests = [(0.8, 20, 0.9, 3), (0.0, 0, 1.0, 4), (1.0, 0, 1.0, -5), (1.7, 7, 1.0, 2**62)]
    sampler = patched.runner_sampler(requests)
    mapping, positions = [3, 1, 0, 2, 0, 3], [4, 5, 6, 7, 8, 9]
    sampled, _ = patched.run(sampler, logits.clone(), mapping, positions)
    assert sampled.dtype == torch.int64
    for row, (request, position) in enumerate(zip(mapping, positions)):
        temperature, k, p, seed = requests[request]
        scaled = logits[row] / (temperature or 1)  # vLLM divides
        token = sluice.sample(scaled, temperature=float(temperature > 0), top_k=k, top_p=p,
                              seed=seed % 2**64, position=position + 1)
        assert sampled[row] == token.ids


def test_the_second_runner_masks_when_somebody_looks(patched):
    logits = rows_without_ties()
    requests = [(1.0, 20, 0.6, 3)]
    expected = sluice.mask_(logits.clone(), top_k=20, top_p=0.6)
    mapping, positions = [0] * len(logits), list(range(len(logits)))
    sampler = patched.runner_sampler(requests, "processed_logprobs")
    drawn, processed = patched.run(sampler, logits.clone(), mapping, positions)
    assert processed.equal(expected)
    sampler = patched.runner_sampler(requests)
    assert drawn.equal(patched.run(sampler, logits.clone(), mapping, positions)[0])
    sampler.return_sampling_mask = True
    again, processed = patched.run(sampler, logits.clone(), mapping, positions)
    assert processed.equal(expected) and again.equal(drawn)


def test_a_row_that_cannot_be_drawn_from_gives_token_0(patched):
    logits = torch.full((2, VOCAB), -torch.inf)
    logits[1, 3] = torch.nan
    assert patched.v1_sampler()(logits, {}, None, None)[0].tolist() == [0, 0]


def test_the_head_has_the_defined_order_of_additions(patched):
    torch.manual_seed(6)
    weight, hidden = torch.randn(VOCAB, 40).bfloat16(), torch.randn(5, 40).bfloat16()
    bias = torch.randn(VOCAB)
    method = patched.head.UnquantizedEmbeddingMethod()
    lm_head = types.SimpleNamespace(weight=weight, quant_method=method)
    layer = object.__new__(patched.head.LogitsProcessor)
    for some in (None, bias):
        logits = layer._apply_head(lm_head, hidden, some)
        expected = sluice.dense_head(weight, hidden, bias=None if some is None else bias.numpy())
        assert logits.numpy().tobytes() == expected.tobytes()
        assert logits[2:3].equal(layer._apply_head(lm_head, hidden[2:3], some))


def test_the_head_is_left_alone_unless_asked_for(own):
    before = own.head.LogitsProcessor._apply_head
    assert plugin.register()
    assert own.head.LogitsProcessor._apply_head is before


def attributes(own):
    return [own.filters.apply_top_k_top_p, own.states.apply_top_k_top_p,
            own.filters.TopKTopPSampler.forward_native, own.runner.Sampler._sample_random]


def test_unregister_puts_everything_back(own):
    before = attributes(own)
    assert plugin.register() and plugin.register()
    assert all(now is not then for now, then in zip(attributes(own), before))
    plugin.unregister()
    assert all(now is then for now, then in zip(attributes(own), before))


def assert_inert(own, caplog, message):
    before = attributes(own)
    with caplog.at_level(logging.INFO, logger="vllm.plugins.sluice"):
        assert not plugin.register()
    assert all(now is then for now, then in zip(attributes(own), before))
    assert len(caplog.messages) == 1 and message in caplog.messages[0]


def test_an_unknown_version_is_left_alone(own, caplog, monkeypatch):
    import vllm

    monkeypatch.setattr(vllm, "__version__", "1.2.3")
    assert_inert(own, caplog, "Sluice is inert: vLLM 1.2.3 is not one of 0.31")


def test_a_changed_function_is_left_alone_with_all_others(own, caplog, monkeypatch):
    monkeypatch.setattr(own.runner.Sampler, "_sample_random", lambda self, logits: None)
    assert_inert(own, caplog, "_sample_random: its parameters are self, logits")


def test_a_missing_function_is_left_alone_with_all_others(own, caplog, monkeypatch):
    monkeypatch.delattr(own.filters.TopKTopPSampler, "forward_cuda")
    assert_inert(own, caplog, "forward_cuda")


def test_platforms_that_it_cannot_serve_are_left_alone(own, caplog):
    own.platform.name = "xpu"
    assert_inert(own, caplog, "neither CUDA nor a CPU")


def test_the_variable_turns_it_off(own, monkeypatch, caplog):
    monkeypatch.setenv("SLUICE_VLLM", "off")
    assert not plugin.register() and not caplog.messages
    monkeypatch.setenv("SLUICE_VLLM", "top_k_top_p,logprobs")
    with pytest.raises(sluice.Error, match="logprobs only with step"):
        plugin.register()
    monkeypatch.setenv("SLUICE_VLLM", "step")
    with pytest.raises(sluice.Error, match="step only with draw"):
        plugin.register()
    monkeypatch.setenv("SLUICE_VLLM", "top_k_top_p,drwa")
    with pytest.raises(sluice.Error, match="SLUICE_VLLM = drwa is not allowed: off, or some of"):
        plugin.register()
