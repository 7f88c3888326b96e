"""vLLM's own Sampler beside a sluice.Sampler, on the same tensors and the same metadata object.

    python3 tests/python/vllm_sampler.py [--batches N] [--vocab N] [--seed N]

prints how many of N batches of random requests differ, and why: the table of
docs/vllm-differential.md. vLLM's files come from its wheel (peers.py). They run on the CPU by its
native path, torch alone. Every deviation has to have a reason that is found in fp64 from vLLM's own
logits, or `Comparison.unexplained` names it.
"""

import argparse
import collections
import sys
import types
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import numpy as np  # noqa: E402
import peers  # noqa: E402
import torch  # noqa: E402
from vllm_modules import VERSION, loaded  # noqa: E402

import sluice  # noqa: E402
from sluice.metadata_sampler import MetadataSampler, rows_of  # noqa: E402
from sluice.reference import noise  # noqa: E402
from sluice.reference.params import NoiseKey  # noqa: E402

VOCAB = 120
# Of fp32: a relative error of one rounding, and what a sum of VOCAB probabilities may be off by.
ROUNDING, OF_SUM = 2.0**-24, 2e-6
# Of scores, in octaves: a probability, its noise and their quotient are rounded.
OF_SCORE = 2e-6


class HostSampler:
    """A sluice.Sampler in place of a DeviceSampler, which gives the same tokens."""

    def __init__(self, requests):
        self.vocab = VOCAB
        self._sampler = sluice.Sampler(vocab=VOCAB, max_requests=requests)
        for name in ("add", "remove", "accept", "rollback"):
            setattr(self, name, getattr(self._sampler, name))

    def step(self, logits, requests):
        tokens = self._sampler.step(logits.numpy(), requests)
        return types.SimpleNamespace(get=lambda: tokens)


class Generator:
    """Of torch's, what a metadata object is asked for."""

    def __init__(self, seed):
        self._seed = seed

    def initial_seed(self):
        return self._seed


class Batch:
    """Random requests: logits, with ties in a third of the rows, and vLLM's metadata."""

    def __init__(self, vllm, random, rows=16):
        self.rows = rows
        values = random.normal(0, 3, (rows, VOCAB)).astype(np.float32)
        self.has_ties = np.arange(rows) % 3 == 0
        values[self.has_ties] = np.round(2 * values[self.has_ties]) / 2
        self.logits = torch.from_numpy(values)

        def some(share, make, other):
            return [make() if random.random() < share else other for _ in range(rows)]

        def ids(most):
            return random.integers(0, VOCAB, random.integers(0, most + 1)).tolist()

        self.outputs = [ids(12) for _ in range(rows)]
        self.prompts = [ids(12) for _ in range(rows)]
        params = [types.SimpleNamespace(
            min_p=random.choice([0.0, 0.0, 0.02, 0.2]), structured_outputs=None,
            logit_bias={token: float(random.normal(0, 3)) for token in ids(4)},
            min_tokens=int(random.integers(0, 14)) if random.random() < 0.5 else 0,
            all_stop_token_ids=set(ids(3))) for _ in range(rows)]
        update = vllm.interface.BatchUpdate(
            batch_size=rows, removed=[], moved=[],
            added=[(row, params[row], self.prompts[row], self.outputs[row])
                   for row in range(rows)])
        config = types.SimpleNamespace(scheduler_config=types.SimpleNamespace(max_num_seqs=rows))
        builtin = vllm.builtin
        processors = [kind(config, "cpu", False) for kind in (
            builtin.MinTokensLogitsProcessor, builtin.LogitBiasLogitsProcessor,
            builtin.MinPLogitsProcessor)]
        for processor in processors:
            processor.update_state(update)

        def column(values, dtype=torch.float32):
            return torch.tensor(values, dtype=dtype)

        allowed = torch.from_numpy(random.random((rows, VOCAB)) < 0.3)
        allowed[torch.from_numpy(random.random(rows) < 0.6)] = False  # True: it is forbidden
        prompts = torch.full((rows, 12), VOCAB)
        for row, prompt in enumerate(self.prompts):
            prompts[row, :len(prompt)] = torch.tensor(prompt, dtype=torch.int64)
        temperature = some(0.75, lambda: float(random.choice([0.5, 0.7, 1.0, 1.3])), 0.0)
        temperature[0] = 0.7  # neither all greedy nor all random
        temperature[1] = 0.0
        self.metadata = vllm.metadata.SamplingMetadata(
            temperature=column(temperature), all_greedy=False, all_random=False,
            top_p=column(some(0.6, lambda: random.uniform(0.2, 1), 1.0)),
            top_k=column(some(0.6, lambda: int(random.integers(1, 50)), VOCAB), torch.int32),
            generators={row: Generator(int(random.integers(2**62))) for row in range(rows)},
            max_num_logprobs=-1, no_penalties=False, prompt_token_ids=prompts,
            frequency_penalties=column(some(0.5, lambda: random.uniform(-1, 2), 0.0)),
            presence_penalties=column(some(0.5, lambda: random.uniform(-1, 2), 0.0)),
            repetition_penalties=column(some(0.5, lambda: random.uniform(0.8, 1.6), 1.0)),
            output_token_ids=self.outputs, allowed_token_ids_mask=allowed,
            bad_words_token_ids={row: self._bad_words(row, random)
                                 for row in range(0, rows, 2)},
            logitsprocs=vllm.state.LogitsProcessors(processors))

    def _bad_words(self, row, random):
        """Some of which the history is about to complete."""
        tail = self.outputs[row]
        words = [[int(random.integers(VOCAB))]]
        for length in (1, 2):
            if len(tail) >= length:
                words.append([*tail[-length:], int(random.integers(VOCAB))])
        words.append([5, 6, 7])
        return words


def with_noise(vllm, fields, lengths):
    """Makes vLLM draw with Sluice's noise: its exponential variates, row by row."""
    q = np.stack([noise.exponential(noise.noise_bits(
        NoiseKey(of_row["seed"], length, 0), noise.TARGET, np.arange(VOCAB)))
        for of_row, length in zip(fields, lengths)])

    def random_sample(probs, generators, use_fp64_gumbel=False):
        return vllm.topk_topp_sampler.sample_with_exponential_noise(probs, torch.from_numpy(q))

    vllm.topk_topp_sampler.random_sample = random_sample
    return q.astype(np.float64)


def kept_of(tokens, row):
    """Ids to values of a list of log-probabilities: all that is kept."""
    ids = tokens.top_ids[row]
    return {int(token): np.float32(value) for token, value in zip(ids, tokens.top_logprobs[row])
            if token >= 0}


class Comparison:
    """What differs, by reason: rows, but for `adjusted`, which counts tokens."""

    def __init__(self):
        self.counts = collections.Counter()
        self.unexplained = []

    def count(self, what, reason, where):
        self.counts[what, reason or "unexplained"] += 1
        if reason is None:
            self.unexplained.append((what, where))

    def step(self, vllm, batch):
        metadata, logits = batch.metadata, batch.logits
        theirs = vllm.sampler.Sampler("processed_logits")
        adjusted = theirs.apply_logits_processors(logits.clone(), metadata, False)
        metadata.max_num_logprobs = None
        rows = rows_of(metadata, VOCAB)
        fields = [row.fields for row in rows]
        self._adjusted(batch, rows, adjusted.numpy())
        lengths = [len(row.prompt) + len(row.output) for row in rows]
        q = with_noise(vllm, fields, lengths)
        metadata.max_num_logprobs = -1  # all of them are returned
        output = theirs(logits.clone(), metadata)
        kept = output.logprobs_tensors.values.numpy()
        metadata.max_num_logprobs = None
        ours = MetadataSampler(HostSampler(batch.rows))(logits, metadata).get()
        sets = self._lists(batch, rows, {"logprob_mode": "processed_logits"})
        for row in range(batch.rows):
            self._row(row, fields[row], adjusted[row].double().numpy(), set(sets[row]),
                      set(np.flatnonzero(kept[row] > -np.inf).tolist()), q[row],
                      int(ours.ids[row]), int(output.sampled_token_ids[row, 0]))
        self._logprobs(vllm, batch, rows)

    def _lists(self, batch, rows, changes):
        sampler = sluice.Sampler(vocab=VOCAB, max_requests=batch.rows)
        requests = []
        for row in rows:
            params = sluice.SamplingParams(**{**row.fields, "logprobs": VOCAB, **changes})
            handle = sampler.add(params, prompt=row.prompt)
            sampler.accept(handle, row.output)
            requests.append(handle if row.bitmask is None else
                            sluice.StepRequest(handle, bitmask=row.bitmask))
        self.tokens = sampler.step(batch.logits.numpy(), requests)
        return [kept_of(self.tokens, row) for row in range(batch.rows)]

    def _adjusted(self, batch, rows, theirs):
        """Values behind masks, bias and penalties: equal, or one division rounded otherwise."""
        all_kept = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0,
                    "logprob_mode": "processed_logits"}
        for row, ours in enumerate(self._lists(batch, rows, all_kept)):
            repetition = rows[row].fields.get("repetition_penalty", 1)
            bias = rows[row].fields.get("logit_bias", {})
            seen = {*rows[row].prompt, *rows[row].output}
            for token in range(VOCAB):
                mine = ours.get(token, np.float32(-np.inf))
                reason = None
                if mine == theirs[row, token]:
                    reason = "equal"
                elif token in seen and repetition != 1:
                    # x * (1 / r) for x / r: two roundings for one, and what comes behind it.
                    before = abs(float(batch.logits[row, token]) + bias.get(token, 0.0))
                    off = abs(float(mine) - float(theirs[row, token]))
                    most = before / min(repetition, 1) + abs(float(mine))
                    reason = "rounding" if off <= 3 * ROUNDING * most else None
                self.count("adjusted logits", reason, (row, token, mine, theirs[row, token]))

    def _row(self, row, fields, x, ours, theirs, q, token, their_token):
        temperature = fields["temperature"]
        if temperature == 0:
            best = np.flatnonzero(x == x.max())
            reason = ("equal" if token == their_token else
                      "ties" if {token, their_token} <= set(best.tolist()) else None)
            self.count("greedy tokens", reason, row)
            return
        t = x / np.float32(temperature)
        reason = "equal" if ours == theirs else self._why(fields, t, ours, theirs)
        self.count("kept sets", reason, (row, fields, sorted(ours ^ theirs)))
        if ours != theirs:
            return  # what is drawn of different sets says nothing
        if token == their_token:
            reason = "equal"
        else:
            score = t / np.log(2) - np.log2(q)
            is_close = abs(score[token] - score[their_token]) <= OF_SCORE * (
                1 + abs(t[token]) + abs(t[their_token]))
            reason = "rounding" if is_close else None
        self.count("random tokens", reason, (row, token, their_token))

    @staticmethod
    def _why(fields, t, ours, theirs):
        """Why two sets differ, from the logits in fp64."""
        p = np.exp(t - t.max())
        p /= p.sum()
        left = t.copy()
        min_p = fields.get("min_p", 0)
        if min_p > 0:
            threshold = p.max() * min_p
            most = np.abs(t[np.isfinite(t)]).max()
            if np.any(np.abs(p - threshold) <= 8 * ROUNDING * (1 + most) * threshold):
                return "rounding at min-p"
            left[p < threshold] = -np.inf
        k = fields.get("top_k", 0)
        values = np.sort(left)[::-1]
        top_p = fields.get("top_p", 1)
        if 0 < k < VOCAB and values[k - 1] == values[k] > -np.inf:  # vLLM keeps all of them
            others = {left[token] for token in ours ^ theirs}
            is_that = top_p < 1 or (ours < theirs and others == {values[k]})
            return "ties at top-k" if is_that else None
        if 0 < k < VOCAB:
            left[left < values[k - 1]] = -np.inf
        of_left = np.exp(left - left.max())
        of_left /= of_left.sum()
        order = np.argsort(left, kind="stable")
        below = of_left[order].cumsum()  # with itself; dropped where it is at most 1 - p
        if np.any(np.abs(below - (1 - top_p)) <= OF_SUM):
            return "rounding at top-p"
        if len({left[token] for token in ours ^ theirs}) == 1:  # both keep as many of them
            same = left == left[next(iter(ours ^ theirs))]
            if same.sum() > 1 and len(ours) == len(theirs):
                return "ties at top-p"
        return None

    def _logprobs(self, vllm, batch, rows):
        """Raw log-probabilities of the 5 most likely tokens and of a given one, with its rank."""
        token = torch.from_numpy(np.array([row % VOCAB for row in range(batch.rows)]))
        own = vllm.sampler.Sampler
        theirs = own.gather_logprobs(own.compute_logprobs(batch.logits), 5, token)
        sampler = sluice.Sampler(vocab=VOCAB, max_requests=batch.rows)
        requests = [sluice.StepRequest(sampler.add(logprobs=5), forced=int(one)) for one in token]
        ours = sampler.step(batch.logits.numpy(), requests)
        for row in range(batch.rows):
            mine = np.asarray(ours.top_logprobs[row], np.float64)
            other = theirs.values[row].double().numpy()
            x = batch.logits[row].double()
            exact = (x - x.logsumexp(0))[ours.top_ids[row].tolist()].numpy()
            # Ours is rounded in the end; theirs is a sum of as many addends in fp32 before.
            is_close = np.all(np.abs(mine - exact) <= 2 * ROUNDING * (1 + np.abs(exact))) and np.all(
                np.abs(other - exact) <= ROUNDING * (VOCAB + 16 * (1 + np.abs(exact))))
            self.count("log-probabilities", "equal" if np.array_equal(mine, other) else
                       "rounding" if is_close else None, (row, mine, other))
            values = batch.logits[row].numpy()
            at = values[int(token[row])]
            near = np.sum((np.abs(values - at) <= 4 * ROUNDING * (8 + np.abs(values).max()))
                          & (values < at))  # whose log-probability may round to the same
            off = int(theirs.ranks[row]) - int(ours.ranks[row])
            self.count("ranks", "equal" if off == 0 else
                       "rounding" if 0 < off <= near else None, (row, off))
            same = {int(a) for a in ours.top_ids[row][1:]} == {
                int(a) for a in theirs.ids[row][1:]}
            fifth = np.sort(values)[::-1][4]
            self.count("most likely tokens", "equal" if same else
                       "ties" if np.sum(values == fifth) > 1 else None, row)


def compare(vllm, batches, seed=1):
    random = np.random.default_rng(seed)
    comparison = Comparison()
    for _ in range(batches):
        comparison.step(vllm, Batch(vllm, random))
    return comparison


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--batches", type=int, default=200)
    parser.add_argument("--vocab", type=int, default=VOCAB)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    globals()["VOCAB"] = options.vocab
    versions = [one for one in peers.sources_of("vllm") if one.version == VERSION]
    if not versions:
        sys.exit(f"vllm_sampler: SLUICE_PEER_WHEELS names no folder with the wheel of vLLM {VERSION}")
    with loaded(versions[0]) as vllm:
        comparison = compare(vllm, options.batches, options.seed)
    for (what, reason), count in sorted(comparison.counts.items()):
        print(f"| {what} | {reason} | {count} |")
    for what, where in comparison.unexplained[:5]:
        print(what, where)


if __name__ == "__main__":
    main()
