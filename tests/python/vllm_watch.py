"""Inside of vLLM's worker processes: what each request was given is noted, and given again on the CPU.

vLLM makes `Watch` a part of its worker (`worker_extension_cls`), and LLM.collective_rpc calls its
methods in every worker.
"""

import zlib


class Record:
    """What a request of vLLM was given: its parameters, logits, tokens and reports."""

    def __init__(self, fields, prompt, output):
        self.fields, self.prompt, self.output, self.steps = fields, prompt, output, []


class Watch:
    def sluice_watch(self, every):
        """Has vLLM's sampler note every `every`th request."""
        import numpy as np
        from vllm.v1.worker.gpu.sample.sampler import Sampler

        from sluice.plugins import vllm_step

        self.sluice_records, self.sluice_pieces = records, _ = [], [0]
        pieces, live, added = self.sluice_pieces, {}, [0]
        add, call = vllm_step.Steps.add, Sampler.__call__

        def noted_add(steps, sampler, slot, params):
            prompt_length, tokens = steps._tokens.get(slot, (0, None))
            add(steps, sampler, slot, params)
            live.pop(slot, None)
            added[0] += 1
            if tokens is None or added[0] % every:
                return
            fields = vllm_step.fields_of(params, sampler.sampling_states.seeds.np[slot],
                                         steps._vocab, sampler.logprobs_mode)
            live[slot] = Record(fields, list(tokens[:prompt_length]), list(tokens[prompt_length:]))
            records.append(live[slot])

        def noted_call(sampler, logits, batch):
            slots = batch.idx_mapping_np.tolist()
            lengths = batch.seq_lens_cpu_upper_bound.numpy()[:len(slots)]
            reads = lengths < sampler.req_states.prefill_len.np[batch.idx_mapping_np]
            pieces[0] += int(reads.sum())
            rows = [row for row, slot in enumerate(slots) if slot in live and not reads[row]]
            before = logits[rows].clone()
            taken = vllm_step.counts["steps"]
            output = call(sampler, logits, batch)
            if not rows:
                return output
            is_ours = vllm_step.counts["steps"] > taken
            before, tokens = before.float().cpu().numpy(), output.sampled_token_ids[rows, 0].tolist()
            reports = output.logprobs_tensors
            if reports is not None:
                reports = [np.asarray(part[rows].cpu()) for part in reports[:3]]
            for at, row in enumerate(rows):
                report = None if reports is None else [part[at] for part in reports]
                live[slots[row]].steps.append((before[at], tokens[at], report, is_ours))
            return output

        vllm_step.Steps.add, Sampler.__call__ = noted_add, noted_call

    def sluice_replay(self, vocab):
        """Gives the noted requests' tokens again, by a sluice.Sampler on the CPU from the logits of
        each step; an assertion fails where one of Sluice's steps is not given again. The records
        are empty afterwards."""
        import numpy as np

        import sluice
        from sluice.plugins import vllm_step

        ours = others = different = reported = checksum = 0
        for record in self.sluice_records:
            sampler = sluice.Sampler(vocab=vocab)
            handle = sampler.add(prompt=record.prompt, **record.fields)
            sampler.accept(handle, record.output)
            for logits, token, report, is_ours in record.steps:
                answer = sampler.step(logits[None], [handle])
                checksum = zlib.crc32(token.to_bytes(8, "little"), checksum)
                if is_ours:
                    assert answer.ids[0] == token, (record.fields, answer.ids[0], token)
                    ours += 1
                else:
                    others += 1
                    different += int(answer.ids[0] != token)
                if answer.ids[0] != token:
                    sampler.rollback(handle, 1)
                    sampler.accept(handle, [token])
                if is_ours and (listed := record.fields.get("logprobs")) is not None:
                    ids, values, rank = report
                    assert ids[0] == token and rank == answer.ranks[0]
                    assert values[0] == answer.logprobs[0]
                    if listed:
                        assert ids[1:1 + listed].tolist() == answer.top_ids[0, 1:1 + listed].tolist()
                        np.testing.assert_array_equal(values[1:1 + listed],
                                                      answer.top_logprobs[0, 1:1 + listed])
                    reported += 1
        result = {"requests": len(self.sluice_records), "tokens": ours, "reports": reported,
                  "preempted": sum(bool(record.output) for record in self.sluice_records),
                  "tokens of vLLM": others, "of which differ": different,
                  "pieces of prompts": self.sluice_pieces[0], "checksum": checksum,
                  "counts": dict(vllm_step.counts)}
        self.sluice_records.clear()
        return result

    def sluice_free_slots(self):
        """How many requests have room in the DeviceSampler, and in vLLM."""
        steps = self.model_runner.sampler._sluice_steps
        return [steps._sampler.free_slots, self.model_runner.max_num_reqs]
