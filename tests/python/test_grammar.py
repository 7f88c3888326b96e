"""Grammars and their masks from Python; where the tests have the grammar engine."""

import json
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from engines import MODEL, NEEDS_ENGINE

import sluice

pytestmark = NEEDS_ENGINE

LIBRARY = Path(__file__).parent.parent.parent / "build" / "python-venv"
TOKENS = [b"yes", b"no", b"y", b"e", b"s", None, b""]
STOP = 6
SCHEMA = {"type": "object", "properties": {"age": {"type": "integer", "minimum": 20, "maximum": 99},
                                           "moods": {"type": "array", "maxItems": 3,
                                                     "items": {"enum": ["glad", "sad"]}}},
          "required": ["age", "moods"]}


def compiler_of(tokens=TOKENS, stop_tokens=(STOP,), **keywords):
    try:
        return sluice.GrammarCompiler(tokens, stop_tokens=stop_tokens, library=LIBRARY, **keywords)
    except sluice.UnavailableError as missing:
        pytest.skip(str(missing))


def allowed(matcher, vocab=len(TOKENS)):
    mask = np.zeros((vocab + 31) // 32, np.int32)
    state = matcher.fill_mask(mask)
    bits = np.unpackbits(mask.view(np.uint8), bitorder="little")[:vocab]
    return state, np.flatnonzero(bits).tolist()


def test_a_mask_has_the_tokens_that_may_come():
    matcher = sluice.GrammarMatcher(compiler_of().compile(choices=["yes", "no"]))
    assert allowed(matcher) == ("some", [0, 1, 2])
    assert not matcher.accept(3) and not matcher.accept(-1) and not matcher.accept(99)
    assert matcher.accept(2) and allowed(matcher) == ("some", [3])
    other = matcher.fork()
    assert other.jump_forward() == b"es"
    matcher.rollback(1)
    assert allowed(matcher) == ("some", [0, 1, 2]) and allowed(other) == ("some", [3])
    assert matcher.accept(0) and allowed(matcher) == ("some", [STOP]) and matcher.is_complete
    assert matcher.accept(STOP) and matcher.is_terminated and matcher.accepted == 2
    with pytest.raises(sluice.Error, match="^matcher = one after a stop token is not allowed"):
        allowed(matcher)


def test_every_token_may_come_in_free_text():
    compiler = compiler_of([bytes([i]) for i in range(256)] + [b""], [256])
    matcher = sluice.GrammarMatcher(compiler.compile(regex="(?:.|\\n)*"))
    state, _ = allowed(matcher, 257)
    assert state in ("some", "everything")


@pytest.mark.parametrize("drafts", [0, 3])
def test_a_sampler_draws_texts_of_the_schema(drafts):
    tokenizer = sluice.Tokenizer.from_file(MODEL / "tokenizer.json")
    end = json.loads((MODEL / "config.json").read_text())["eos_token_id"]
    vocab = len(tokenizer) + 100  # more logits than tokens
    grammar = compiler_of(tokenizer, [end], vocab=vocab).compile(json_schema=SCHEMA)
    assert grammar.vocab == vocab and grammar.nbytes > 0
    source = np.random.default_rng(1)
    for seed in range(5):
        sampler = sluice.Sampler(vocab=vocab, max_requests=1)
        request = sampler.add(seed=seed, temperature=1.5)
        matcher, tokens = sluice.GrammarMatcher(grammar), []
        while not matcher.is_terminated:
            proposals = []
            masks = np.zeros((drafts + 1, grammar.mask_words), np.int32)
            matcher.fill_mask(masks[0])
            for at in range(drafts):  # the lowest token that may come, where one may
                bits = np.unpackbits(masks[at].view(np.uint8), bitorder="little")
                token = int(np.flatnonzero(bits)[0])
                if token == end or not matcher.accept(token):
                    break
                proposals.append(token)
                matcher.fill_mask(masks[at + 1])
            matcher.rollback(len(proposals))
            rows = len(proposals) + 1
            logits = source.normal(size=(rows, vocab)).astype(np.float32)
            results = sampler.step(logits, [sluice.StepRequest(
                request, drafts=proposals, bitmask=masks[:rows].reshape(-1))])
            for token in results.ids[results.ids >= 0].tolist():
                assert matcher.accept(token)
                if token != end:
                    tokens.append(token)
        value = json.loads(tokenizer.decode(tokens))
        assert 20 <= value["age"] <= 99 and set(value["moods"]) <= {"glad", "sad"}


def test_a_second_thread_is_refused():
    matcher = sluice.GrammarMatcher(compiler_of().compile(regex="(yes|no)*"))
    wrong = []

    def use():
        for _ in range(2000):
            try:
                matcher.fill_mask(np.zeros(1, np.int32))
            except sluice.Error as error:
                wrong.append(str(error))

    threads = [threading.Thread(target=use) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(wrong) <= {"matcher = in another call is not allowed: one call at a time"}
    assert allowed(matcher)[1] == [0, 1, 2, STOP]


def test_a_grammar_outlives_its_compiler():
    compiler = compiler_of()
    grammar = compiler.compile(choices=["no"])
    assert compiler.cached_bytes > 0
    del compiler
    assert allowed(sluice.GrammarMatcher(grammar)) == ("some", [1])


def test_errors_name_what_is_wrong():
    compiler = compiler_of()
    for keywords, text in [
        ({}, "one of json_schema, json_object, regex, grammar and choices"),
        ({"regex": "("}, "^regex"),
        ({"json_schema": {"type": "strin"}}, "^json_schema"),
        ({"regex": "a", "choices": ["b"]}, "an output has one grammar"),
        ({"regex": "a", "max_whitespace": -1}, "max_whitespace"),
    ]:
        with pytest.raises(sluice.Error, match=text):
            compiler.compile(**keywords)
    with pytest.raises(TypeError, match="no_such"):
        compiler.compile(no_such="a")
    with pytest.raises(sluice.ArgumentTypeError, match="a Tokenizer, or a list of bytes"):
        sluice.GrammarCompiler("abc", stop_tokens=[], library=LIBRARY)
    with pytest.raises(sluice.ArgumentTypeError, match="bytes or None for each token"):
        sluice.GrammarCompiler(["a"], stop_tokens=[], library=LIBRARY)
    with pytest.raises(sluice.Error, match="stop_tokens"):
        sluice.GrammarCompiler([b"a"], stop_tokens=[7], library=LIBRARY)
    with pytest.raises(sluice.UnavailableError, match="nowhere"):
        sluice.GrammarCompiler([b"a"], stop_tokens=[], library="/nowhere")
    matcher = sluice.GrammarMatcher(compiler.compile(choices=["no"]))
    with pytest.raises(sluice.Error, match="^out"):
        matcher.fill_mask(np.zeros(2, np.int32))
    with pytest.raises(sluice.Error, match="^tokens = 1 is not allowed"):
        matcher.rollback(1)


def test_every_answer_matches_whatever_happens_on_the_way():
    compiler_of()  # or skips
    soak = Path(__file__).with_name("grammar_soak.py")
    if not (soak.parent.parent / "server").exists():
        pytest.skip("the sources are not at hand")
    subprocess.run([sys.executable, soak, "--requests", "200", "--slots", "16"], check=True)
