"""Masks of a JSON schema for a sampler, step by step, where xgrammar is installed."""

import json
import sys
from pathlib import Path

import numpy as np

import sluice

MODEL = Path(__file__).parent.parent.parent / "models" / "default"
schema = {"type": "object", "properties": {"age": {"type": "integer", "minimum": 20, "maximum": 99}},
          "required": ["age"]}
source = np.random.default_rng(7)


def model(rows, vocab):
    return source.normal(size=(rows, vocab)).astype(np.float32)


try:
    # [masks]
    tokenizer = sluice.Tokenizer.from_file(MODEL / "tokenizer.json")
    compiler = sluice.GrammarCompiler(tokenizer, stop_tokens=[0])
    grammar = compiler.compile(json_schema=schema)  # kept: the next one takes microseconds

    sampler = sluice.Sampler(vocab=grammar.vocab, max_requests=1)
    request = sampler.add(temperature=1.2, seed=1)
    matcher = sluice.GrammarMatcher(grammar)
    mask, tokens = np.empty(grammar.mask_words, np.int32), []
    while not matcher.is_terminated:
        matcher.fill_mask(mask)  # while the model computes the logits
        logits = model(1, grammar.vocab)
        token = int(sampler.step(logits, [sluice.StepRequest(request, bitmask=mask)]).ids[0])
        matcher.accept(token)
        tokens.append(token)
    text = tokenizer.decode(tokens)  # {"age": 59}
    # [masks]
except sluice.UnavailableError as error:
    print(error)
    sys.exit(0)
assert 20 <= json.loads(text)["age"] <= 99, text
