"""The sampling backend of SGLang, on the sampler file of SGLang's own wheels."""

import collections
import logging
import types

import numpy as np
import peers
import pytest
from conftest import random_rows

import sluice

torch = pytest.importorskip("torch", reason="torch is not installed")

from sluice.plugins import sglang as plugin  # noqa: E402

SAMPLER = "sglang.srt.layers.sampler"
BATCHES = "sglang.srt.sampling.sampling_batch_info"
VOCAB = 257
TOP_K_ALL = 1 << 30
VERSIONS = peers.sources_of("sglang")

MaskOutput = collections.namedtuple(
    "MaskOutput", "token_ids lengths selected_logprobs support_logprobs statuses")


class Penalties:
    def __init__(self, **given):
        self.filter = self.merge = lambda other: None


class Logprobs:
    """As SGLang's processor of output logprobs: keeps what it is given."""

    def compute_logprobs(self, logprobs, *lists):
        self.seen = logprobs
        return types.SimpleNamespace(write_output_to=lambda output: None)


def no(*args, **keywords):
    return False


def given(version, backend):
    group = types.SimpleNamespace(device_group=None)
    context = types.SimpleNamespace(
        deterministic=types.SimpleNamespace(rl_on_policy_target=None,
                                            enable_deterministic_inference=False),
        kernel=types.SimpleNamespace(sampling_backend=backend),
        features=types.SimpleNamespace(sampling_mask_max_tokens=64,
                                       enable_custom_logit_processor=False))
    questions = ("get_bool_env_var", "is_cuda", "is_gfx1250_supported", "is_hip", "is_musa",
                 "is_npu", "is_xpu")
    flag = types.SimpleNamespace(get=no)
    return {
        "sglang": {"__version__": version},
        "sglang.kernels.ops.sampling": {"softmax": lambda logits: logits.softmax(dim=-1)},
        "sglang.srt.arg_groups.choices": {"BUILT_IN_SAMPLING_BACKENDS": {"flashinfer", "pytorch"}},
        "sglang.srt.environ": {"envs": types.SimpleNamespace(
            SGLANG_TRACE_SAMPLER_E2E=flag, SGLANG_OPT_USE_GUMBEL_SAMPLE=flag)},
        "sglang.srt.layers.dp_attention": {"is_dp_attention_enabled": no},
        "sglang.srt.layers.logits_processor": {
            "SamplingMaskOutput": MaskOutput,
            "SamplingMaskStatus": types.SimpleNamespace(OK=0, OVERFLOW=1, INVALID=2)},
        "sglang.srt.layers.logprob_processor": {"OutputLogprobProcessor": Logprobs},
        "sglang.srt.runtime_context": {
            "get_exec": lambda: context, "get_server_args": lambda: True,
            "get_parallel": lambda: types.SimpleNamespace(tp_group=group)},
        "sglang.srt.sampling.penaltylib": {"BatchedPenalizerOrchestrator": Penalties},
        "sglang.srt.sampling.sampling_params": {"TOP_K_ALL": TOP_K_ALL},
        "sglang.srt.server_args": {"SAMPLING_BACKEND_CHOICES": {"flashinfer", "pytorch"}},
        "sglang.srt.utils.async_probe": {"sanitize_nan_logits": lambda logits, where: None},
        "sglang.srt.utils.common": {**dict.fromkeys(questions, no), "is_pin_memory_available": no},
        "sglang.srt.utils": {"is_pin_memory_available": no},
    }


@pytest.fixture(params=VERSIONS or [None], ids=str)
def sources(request):
    if request.param is None:
        pytest.skip("SGLang is not there: SLUICE_PEER_WHEELS names no folder with its wheel")
    if not plugin.is_known(request.param.version):
        pytest.skip(f"{request.param} is not a version that the plug-in knows")
    return request.param


@pytest.fixture
def own(sources, monkeypatch):
    """SGLang's sampler.py as it is."""
    monkeypatch.delenv("SLUICE_SGLANG", raising=False)
    with peers.Engine(sources, [SAMPLER, BATCHES], given(sources.version, "sluice")):
        yield __import__(SAMPLER, fromlist=["_"])


@pytest.fixture
def module(own):
    assert plugin.register()
    return own


@pytest.fixture
def sampler(module):
    return module.create_sampler()


def rows_without_ties(rows=60):
    return torch.from_numpy(np.delete(random_rows(rows, VOCAB, seed=3), np.s_[::4], axis=0))


def batch(rows, **fields):
    """What SGLang's SamplingBatchInfo has for rows of different parameters."""
    generator = np.random.default_rng(2)
    top_ks = torch.from_numpy(generator.integers(1, 60, rows).astype(np.int32))
    top_ks[::5] = TOP_K_ALL
    top_ps = torch.from_numpy(generator.uniform(0.3, 1, rows).astype(np.float32))
    top_ps[1::5] = 1
    temperatures = torch.from_numpy(generator.uniform(0.5, 3, rows).astype(np.float32))
    info = {"temperatures": temperatures.view(-1, 1), "top_ks": top_ks, "top_ps": top_ps,
            "min_ps": torch.full((rows,), 0.01), "need_top_k_sampling": True,
            "need_top_p_sampling": True, "need_min_p_sampling": False, "is_all_greedy": False,
            "has_custom_logit_processor": False, "sampling_seed": None, "grammars": None,
            "sampling_mask_batch_indices": None,
            "sampling_support_logprobs_capture_indices": None}
    made = types.SimpleNamespace(**{**info, **fields})
    made.is_any_greedy = bool((made.top_ks <= 1).any())
    return made


def sample(sampler, logits, info, positions=None, logprobs=False):
    positions = torch.arange(len(logits)) if positions is None else positions
    output = types.SimpleNamespace(next_token_logits=logits.clone())
    return sampler(output, info, logprobs, [], [], positions), output


def expected_tokens(logits, info, positions):
    fields = {"top_k": info.top_ks, "top_p": info.top_ps}
    if info.need_min_p_sampling:
        fields["min_p"] = info.min_ps
    temperatures = torch.where(info.top_ks == 1, 0.0, info.temperatures.view(-1))
    return sluice.sample(logits, temperature=temperatures, profile="sglang",
                         seed=info.sampling_seed, position=positions + 1, max_temperature=3,
                         **fields).ids.tolist()


def test_the_backend_can_be_chosen_and_makes_a_sampler(module):
    from sglang.srt.server_args import SAMPLING_BACKEND_CHOICES

    assert SAMPLING_BACKEND_CHOICES == {"flashinfer", "pytorch", "sluice"}
    made = module.create_sampler("sluice")
    assert isinstance(made, module.Sampler) and type(made) is not module.Sampler
    assert type(module.create_sampler("pytorch")) is module.Sampler


@pytest.mark.parametrize("min_p", [False, True])
def test_the_kept_sets_are_those_of_sglang(module, min_p):
    logits = rows_without_ties()
    info = batch(len(logits))
    probs = (logits / info.temperatures).softmax(dim=-1)
    _, weights, ids, _ = module.top_k_top_p_min_p_sampling_from_probs_torch(
        probs, info.top_ks, info.top_ps, info.min_ps, min_p, None, None, return_filtered_probs=True)
    theirs = torch.zeros_like(weights).scatter_(1, ids.long(), weights) > 0
    info.need_min_p_sampling = min_p
    fields = plugin._filters_of(info)
    ours = sluice.mask_(logits.clone(), max_temperature=3, **fields) > -torch.inf
    ours &= probs > 0  # a probability that rounds to 0 in fp32 is not drawn there
    # SGLang sums probabilities in fp32: within 4e-6 of p it may stop a token sooner or later.
    cuts = sluice.select(logits, max_temperature=3, masses=True, **fields)
    margins, totals = cuts.margins.astype(np.float64), cuts.total_masses.astype(np.float64)
    is_clear = torch.from_numpy((margins < 0) | (margins > 4e-6 * totals))
    assert is_clear.float().mean() > 0.9
    assert ours[is_clear].equal(theirs[is_clear])


@pytest.mark.parametrize("logprobs", [False, True])
@pytest.mark.parametrize("min_p", [False, True])
def test_seeded_tokens_are_functions_of_row_seed_and_position(sampler, logprobs, min_p):
    logits = rows_without_ties()
    seeds = torch.arange(len(logits)) * 3
    info = batch(len(logits), sampling_seed=seeds, need_min_p_sampling=min_p)
    positions = torch.arange(len(logits)) + 5
    tokens, _ = sample(sampler, logits, info, positions, logprobs)
    assert tokens.dtype == torch.int32
    assert tokens.tolist() == expected_tokens(logits, info, positions)


def test_logprobs_are_those_of_sglang_and_change_no_token(sampler):
    logits = rows_without_ties()
    info = batch(len(logits))
    torch.manual_seed(3)
    tokens, _ = sample(sampler, logits, info)
    torch.manual_seed(3)
    again, _ = sample(sampler, logits, info, logprobs=True)
    assert tokens.equal(again)
    expected = (logits / info.temperatures).softmax(dim=-1).log()
    torch.testing.assert_close(sampler.output_logprob_processor.seen, expected)


def test_unseeded_tokens_follow_torchs_generator(sampler):
    logits = rows_without_ties()
    info = batch(len(logits))
    torch.manual_seed(3)
    tokens, _ = sample(sampler, logits, info)
    assert not tokens.equal(sample(sampler, logits, info)[0])
    torch.manual_seed(3)
    assert tokens.equal(sample(sampler, logits, info)[0])


def test_greedy_requests_among_others_get_the_largest(sampler):
    logits = rows_without_ties()
    info = batch(len(logits))
    info.top_ks[::2] = 1  # as SGLang writes temperature 0
    info.is_any_greedy = True
    tokens, _ = sample(sampler, logits, info)
    assert tokens[::2].equal(logits[::2].argmax(dim=-1).int())


def test_a_greedy_batch_is_left_to_sglang(sampler, monkeypatch):
    monkeypatch.setattr(plugin, "_draw", None)
    logits = rows_without_ties()
    tokens, _ = sample(sampler, logits, batch(len(logits), is_all_greedy=True))
    assert tokens.equal(logits.argmax(dim=-1))


def test_draws_have_the_distribution_of_what_is_kept(sampler):
    torch.manual_seed(5)
    count = 20000
    logits = torch.full((count, VOCAB), -10.0)
    logits[:, :4] = torch.tensor([0.5, 0.3, 0.15, 0.05]).log()
    info = batch(count, temperatures=torch.ones(count, 1), top_ps=torch.ones(count),
                 top_ks=torch.full((count,), 3, dtype=torch.int32))
    tokens, _ = sample(sampler, logits, info)
    observed = torch.bincount(tokens, minlength=VOCAB)
    expected = torch.tensor([0.5, 0.3, 0.15]) / 0.95 * count
    assert observed[3:].sum() == 0
    # Chi-square of two degrees of freedom: 27.6 is passed once in a million seeds.
    assert ((observed[:3] - expected) ** 2 / expected).sum() < 27.6


def test_sampling_masks_have_what_is_kept(sampler):
    logits = rows_without_ties()
    rows = torch.tensor([1, 4, 20])
    info = batch(len(logits), sampling_mask_batch_indices=rows)
    torch.manual_seed(3)
    tokens, output = sample(sampler, logits, info)
    torch.manual_seed(3)
    info.sampling_mask_batch_indices = None
    assert tokens.equal(sample(sampler, logits, info)[0])
    told = output.sampling_mask_output
    kept = sluice.candidates(logits, temperature=info.temperatures.view(-1), top_k=info.top_ks,
                             top_p=info.top_ps, profile="sglang", max_temperature=3)
    starts = kept.offsets
    for at, row in enumerate(rows.tolist()):
        ids = kept.ids[starts[row]:starts[row + 1]].tolist()
        assert sorted(told.token_ids[at, :told.lengths[at]].tolist()) == ids
        probs = (logits[row] / info.temperatures[row])[ids].softmax(dim=-1)
        chosen = probs[ids.index(tokens[row].item())].log()
        torch.testing.assert_close(told.selected_logprobs[at], chosen)
    assert told.statuses.tolist() == [0, 0, 0]


def batch_of(seeds, ids, drafts=None):
    """SGLang's own SamplingBatchInfo of requests with these seeds."""
    from sglang.srt.sampling.sampling_batch_info import SamplingBatchInfo

    requests = [types.SimpleNamespace(
        rid=name, custom_logit_processor=None, return_sampling_mask=False,
        sampling_logprobs_mode="", sampling_params=types.SimpleNamespace(
            temperature=1.0, top_p=0.9, top_k=20, min_p=0.0, sampling_seed=seed, logit_bias=None,
            custom_params=None)) for seed, name in zip(seeds, ids)]
    return SamplingBatchInfo.from_schedule_batch(
        types.SimpleNamespace(reqs=requests, device="cpu", spec_algorithm=drafts), VOCAB)


def test_requests_have_seeds_without_deterministic_inference(sampler):
    """Also where a batch is cut and two are merged."""
    first, second = batch_of([7, None, -3], "abc"), batch_of([None, 2**62], "de")
    assert first.sampling_seed.tolist()[::2] == [7, -3]
    assert second.sampling_seed[1].item() == 2**62
    drawn = [first.sampling_seed[1].item(), second.sampling_seed[0].item()]
    assert len(set(drawn)) == 2
    assert batch_of([None], "b").sampling_seed.tolist() == drawn[:1]  # on another rank
    first.filter_batch([0, 1], torch.tensor([0, 1]))
    first.merge_batch(second)
    assert first.sampling_seed.tolist() == [7, *drawn, 2**62]
    logits = rows_without_ties()[:4]
    tokens, _ = sample(sampler, logits, batch(4, sampling_seed=first.sampling_seed))
    alone, _ = sample(sampler, logits[:1], batch(4, sampling_seed=first.sampling_seed[:1],
                                                 temperatures=batch(4).temperatures[:1],
                                                 top_ks=batch(4).top_ks[:1],
                                                 top_ps=batch(4).top_ps[:1]))
    assert tokens[0] == alone[0]


def test_seeds_that_are_drawn_are_those_of_one_server(sampler, monkeypatch):
    """They are not to be computed from the id alone, which clients see."""
    first = batch_of([None], "a").sampling_seed
    import sglang.srt.runtime_context as context

    monkeypatch.setattr(context, "get_server_args", lambda: types.SimpleNamespace(random_seed=5))
    second = batch_of([None], "a").sampling_seed
    assert not first.equal(second) and second.equal(batch_of([None], "a").sampling_seed)


def test_batches_with_drafts_have_no_seeds(sampler):
    drafts = types.SimpleNamespace(is_none=lambda: False)
    assert batch_of([7], "a", drafts).sampling_seed is None
    assert batch_of([7], "a", types.SimpleNamespace(is_none=lambda: True)).sampling_seed is not None


def test_greedy_rows_that_tie_get_the_lowest_id_in_any_batch(sampler):
    logits = torch.zeros(20, VOCAB)
    logits[:, [5, 9, 40]] = 3
    info = batch(20, top_ks=torch.full((20,), 1, dtype=torch.int32),
                 sampling_seed=torch.arange(20))
    tokens, _ = sample(sampler, logits, info)
    assert (tokens == 5).all()


def test_other_backends_have_no_seeds(module):
    module.create_sampler("pytorch")
    assert batch_of([7, None], "ab").sampling_seed is None


@pytest.mark.parametrize("logprobs", [False, True])
def test_processors_of_requests_run_once_before_the_draw(module, sampler, monkeypatch, logprobs):
    def ban(logits, info):
        calls.append(1)
        logits[:, 5:] = -torch.inf

    calls = []
    monkeypatch.setattr(module, "apply_custom_logit_processor", ban)
    logits = rows_without_ties()
    logits[:, :5] = 0
    tokens, _ = sample(sampler, logits, batch(len(logits), has_custom_logit_processor=True),
                       logprobs=logprobs)
    assert tokens.max() < 5 and len(calls) == 1


def test_deterministic_inference_is_served_on_request(own, monkeypatch):
    monkeypatch.setenv("SLUICE_SGLANG", "sluice,pytorch")
    assert plugin.register()
    assert type(own.create_sampler("pytorch")) is type(own.create_sampler("sluice"))
    assert type(own.create_sampler("pytorch")) is not own.Sampler


def assert_inert(own, caplog, message):
    with caplog.at_level(logging.INFO, logger="sglang.plugins.sluice"):
        assert not plugin.register()
    assert own._CUSTOM_SAMPLER_FACTORIES == {}
    assert len(caplog.messages) == 1 and message in caplog.messages[0]


def test_an_unknown_version_is_left_alone(own, caplog, monkeypatch):
    import sglang

    monkeypatch.setattr(sglang, "__version__", "0.6.0")
    assert_inert(own, caplog, "Sluice is inert: SGLang 0.6.0 is not one of 0.5.21")


def test_a_changed_sampler_is_left_alone(own, caplog, monkeypatch):
    monkeypatch.setattr(own.Sampler, "_preprocess_logits", lambda self, logits: None)
    assert_inert(own, caplog, "another Sampler._preprocess_logits")


def test_the_variable_turns_it_off(own, caplog, monkeypatch):
    monkeypatch.setenv("SLUICE_SGLANG", "off")
    assert not plugin.register() and not caplog.messages
    monkeypatch.setenv("SLUICE_SGLANG", "flashinfer")
    with pytest.raises(sluice.Error, match="SLUICE_SGLANG = flashinfer is not allowed: off, or"):
        plugin.register()
