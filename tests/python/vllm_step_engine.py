"""Stand-ins for vLLM's sampler and slots, and for the device: what the tests of the whole step share."""

import types

import numpy as np
import torch

import sluice
from sluice.device_sampler import TokenTable
from sluice.plugins import vllm_step

VOCAB, SLOTS, LONGEST = 50, 4, 64


class HostSampler:
    """A sluice.Sampler in the place of a DeviceSampler."""

    fails = False
    fails_to_remove = False

    def __init__(self, *, vocab, max_logprobs, **options):
        assert options["goes_on_with_zero"] and not options["bitmasks"]
        self.vocab, self.options = vocab, options
        self._sampler = sluice.Sampler(vocab=vocab, max_temperature=options["max_temperature"])
        self.live = 0
        self.accepted = 0
        self.steps = 0

    def add(self, *, prompt, **fields):
        self.live += 1
        return self._sampler.add(prompt=prompt, **fields)

    def remove(self, handle):
        if self.fails_to_remove:
            raise RuntimeError("the device is on fire")
        self.live -= 1
        self._sampler.remove(handle)

    def accept(self, handle, tokens):
        self.accepted += len(tokens)
        self._sampler.accept(handle, tokens)

    @staticmethod
    def new_table(rows, listed):
        tokens = torch.empty((rows, 1), dtype=torch.int64)
        if listed < 0:
            return TokenTable(tokens, None, None, None)
        return TokenTable(tokens, torch.empty((rows, 1 + listed), dtype=torch.int64),
                          torch.empty((rows, 1 + listed)), torch.empty(rows, dtype=torch.int64))

    def step(self, logits, requests, *, table):
        if self.fails:
            raise RuntimeError("the device is on fire")
        self.steps += 1
        tokens = self._sampler.step(logits.float().numpy(), requests)
        for request, token in zip(requests, tokens.ids):
            if token < 0:
                self._sampler.accept(request, [0])
        made = self.new_table(len(requests), table)
        made.tokens[:, 0] = torch.from_numpy(np.maximum(tokens.ids, 0))
        if table >= 0:
            made.ids.zero_()
            made.logprobs.fill_(-torch.inf)
            made.ids[:, 0] = made.tokens[:, 0]
            made.ranks.zero_()
            if tokens.logprobs is not None:
                made.logprobs[:, 0] = torch.from_numpy(tokens.logprobs)
                made.ranks[:] = torch.from_numpy(tokens.ranks.astype(np.int64))
            width = 0 if tokens.top_ids is None else min(tokens.top_ids.shape[1], 1 + table)
            if width > 1:
                ids = torch.from_numpy(tokens.top_ids[:, 1:width].astype(np.int64))
                made.ids[:, 1:width] = ids.clamp(min=0)
                made.logprobs[:, 1:width] = torch.from_numpy(tokens.top_logprobs[:, 1:width])
        return types.SimpleNamespace(table=made)


class OnHost:
    def __init__(self, values):
        self.gpu = values
        self.np = values.numpy()


class States:
    """As RequestState of vLLM."""

    def __init__(self):
        self.max_model_len = LONGEST
        self.req_id_to_index = {}
        self.free = list(range(SLOTS))
        self.prompt_len = OnHost(torch.zeros(SLOTS, dtype=torch.int32))
        self.prefill_len = OnHost(torch.zeros(SLOTS, dtype=torch.int32))
        self.all_token_ids = OnHost(torch.zeros((SLOTS, LONGEST), dtype=torch.int32))
        self.total_len = np.zeros(SLOTS, int)
        self.max_seq_len = np.zeros(SLOTS, np.int32)

    def add_request(self, req_id, prompt_len, all_token_ids, num_computed_tokens, max_tokens):
        slot = self.req_id_to_index[req_id] = self.free.pop()
        self.prompt_len.np[slot], self.prefill_len.np[slot] = prompt_len, len(all_token_ids)
        self.all_token_ids.np[slot, :len(all_token_ids)] = all_token_ids
        self.total_len[slot] = len(all_token_ids)
        self.max_seq_len[slot] = prompt_len + max_tokens

    def remove_request(self, req_id):
        slot = self.req_id_to_index.pop(req_id, None)
        if slot is not None:
            self.free.append(slot)
        return slot


def named(name):
    return type(name, (), {})()


class Sampler:
    """As Sampler of vLLM: its own step gives the least likely token."""

    def __init__(self, vllm_config, max_num_reqs, vocab_size, device, req_states):
        self.req_states, self.logprobs_mode = req_states, vllm_config.mode
        self.compute_nans, self.return_sampling_mask = False, False
        self.trace_replay_state, self.num_speculative_tokens = None, 1
        self.logits_processors = [named(name) for name in vllm_config.processors]
        self.sampling_states = types.SimpleNamespace(
            seeds=OnHost(torch.zeros(SLOTS, dtype=torch.int64)),
            num_logprobs=np.full(SLOTS, -1, np.int32))

    def add_request(self, req_idx, sampling_params):
        self.sampling_states.seeds.np[req_idx] = sampling_params.seed
        listed = sampling_params.logprobs
        self.sampling_states.num_logprobs[req_idx] = -1 if listed is None else listed

    def __call__(self, logits, input_batch):
        return SamplerOutput(logits.argmin(dim=1, keepdim=True), None, None, None, None)


class SamplerOutput(types.SimpleNamespace):
    def __init__(self, sampled_token_ids, logprobs_tensors, num_nans, num_sampled, num_rejected):
        super().__init__(tokens=sampled_token_ids, reports=logprobs_tensors)


def get_num_sampled_and_rejected(num_sampled, *rest):
    return num_sampled, num_sampled


PROCESSORS = ("LogitBiasState", "PenaltiesState", "BadWordsState")


def params_of(**fields):
    return types.SimpleNamespace(**{
        "temperature": 0.9, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "seed": 1, "logprobs": None,
        "repetition_penalty": 1.0, "frequency_penalty": 0.0, "presence_penalty": 0.0,
        "logit_bias": None, "allowed_token_ids": None, "bad_words_token_ids": None,
        "min_tokens": 0, "all_stop_token_ids": set(), "logprob_token_ids": None,
        "thinking_token_budget": None, "structured_outputs": None, "max_tokens": 30, **fields})


class Engine:
    """vLLM's part: slots, prompts in pieces, and the tokens of each step."""

    def __init__(self, monkeypatch, mode="raw_logprobs", processors=PROCESSORS, ranks=1,
                 max_logprobs=20):
        monkeypatch.setattr(vllm_step, "_names_of_vllm", lambda: (
            lambda ids, logprobs, ranks: (ids, logprobs, ranks), SamplerOutput,
            lambda logits: logits.isnan().sum(dim=1), get_num_sampled_and_rejected))
        monkeypatch.setattr(vllm_step, "DeviceSampler", HostSampler)
        monkeypatch.setattr(vllm_step.torch.cuda, "get_device_properties",
                            lambda device: types.SimpleNamespace(total_memory=80 << 30))
        monkeypatch.setattr(vllm_step, "counts", type(vllm_step.counts)())
        monkeypatch.setattr(vllm_step, "takes_logprobs", True)
        sampler = type("Sampler", (), {
            "__init__": vllm_step.init(Sampler.__init__),
            "add_request": vllm_step.add_request(Sampler.add_request),
            "__call__": vllm_step.call(Sampler.__call__)})
        states = type("States", (States,), {
            "add_request": vllm_step.add_tokens(States.add_request),
            "remove_request": vllm_step.remove_request(States.remove_request)})
        self.states = states()
        config = types.SimpleNamespace(
            mode=mode, processors=processors,
            model_config=types.SimpleNamespace(max_logprobs=max_logprobs),
            parallel_config=types.SimpleNamespace(tensor_parallel_size=ranks))
        monkeypatch.setattr(vllm_step.torch, "device",
                            lambda name: types.SimpleNamespace(type="cuda"))
        self.sampler = sampler(config, SLOTS, VOCAB, "cuda", self.states)
        self.computed = {}  # tokens of each request that the model has seen

    @property
    def steps(self):
        return self.sampler._sluice_steps

    def join(self, name, tokens, params, prompt=None):
        self.states.add_request(name, len(tokens) if prompt is None else prompt, list(tokens), 0,
                                params.max_tokens)
        self.sampler.add_request(self.states.req_id_to_index[name], params)
        self.computed[name] = 0

    def leave(self, name):
        self.states.remove_request(name)
        del self.computed[name]

    def step(self, names, logits, piece=100):
        """Prompts go in pieces; gives the tokens of requests after their last piece."""
        slots = np.array([self.states.req_id_to_index[name] for name in names])
        for name, slot in zip(names, slots):
            self.computed[name] = min(self.computed[name] + piece, self.states.total_len[slot])
        lengths = np.array([self.computed[name] for name in names], np.int32)
        padded = np.concatenate([lengths, np.zeros(3, np.int32)])
        batch = types.SimpleNamespace(
            idx_mapping_np=slots, num_reqs=len(names), seq_lens=torch.from_numpy(lengths),
            seq_lens_cpu_upper_bound=torch.from_numpy(padded), cu_num_logits=None,
            idx_mapping=None)
        output = self.sampler(logits, batch)
        given = {}
        for row, (name, slot) in enumerate(zip(names, slots)):
            if lengths[row] < self.states.prefill_len.np[slot]:
                continue
            given[name] = int(output.tokens[row, 0])
            self.states.all_token_ids.np[slot, self.states.total_len[slot]] = given[name]
            self.states.total_len[slot] += 1
        self.last = output
        return given
