"""Text from Python, and on large vocabularies beside Hugging Face tokenizers where that is installed."""

import importlib.util
import io
import json
import random
import sys
import threading
import time
import unicodedata
from pathlib import Path

import numpy as np
import pytest

import sluice

pytestmark = pytest.mark.skipif(not hasattr(sluice, "Tokenizer"),
                                reason="built without Sluice::text")

FIXTURES = Path(__file__).parent.parent / "fixtures"


def tokenizer_of(name):
    return sluice.Tokenizer.from_file(str(FIXTURES / "tokenizers" / f"{name}.json"))


def test_ids_and_texts():
    tokenizer = tokenizer_of("llama3")
    ids = tokenizer.encode("a word<|end|>", parse_special_tokens=True)
    assert ids[0] == tokenizer.id("<|begin|>")
    assert ids[-1] == tokenizer.id("<|end|>")
    assert tokenizer.id("<|end|>") not in tokenizer.encode("a word<|end|>")
    assert tokenizer.decode(ids) == "a word"
    assert tokenizer.decode(ids, skip_special_tokens=False) == "<|begin|>a word<|end|>"
    assert tokenizer.token(ids[-1]) == b"<|end|>"
    assert tokenizer.token(10**6) is None and tokenizer.is_special(ids[0])
    assert len(tokenizer) > 400


def test_ids_that_no_vocabulary_has():
    detokenizer = sluice.Detokenizer(tokenizer_of("gpt2"))
    assert detokenizer.step([2**32 - 1, -1, 2**62]) == ("", [0, 0, 0], [0, 0, 0])
    assert detokenizer.unknown_ids == 3
    assert detokenizer.step(np.array([2**64 - 1, 2**63], dtype=np.uint64)) == ("", [0, 0], [0, 0])
    assert detokenizer.unknown_ids == 5


def test_files_of_any_kind():
    folder = FIXTURES / "tokenizers"
    cases = json.loads((folder / "model_cases.json").read_text(encoding="utf-8"))
    by_path = sluice.Tokenizer.from_file(folder / "sentencepiece_unigram.model")
    by_bytes = sluice.Tokenizer.from_sentencepiece((folder / "sentencepiece_unigram.model").read_bytes())
    for text, ids in cases["unigram"]["encoded"]:
        assert by_path.encode(text, add_special_tokens=False) == ids
        assert by_bytes.encode(text, add_special_tokens=False) == ids
    special = cases["tiktoken"]["special"]
    for made in cases["tiktoken"]["patterns"].values():
        by_path = sluice.Tokenizer.from_file(folder / "gpt2.tiktoken", pattern=made["pattern"],
                                             special_tokens=special)
        by_bytes = sluice.Tokenizer.from_tiktoken((folder / "gpt2.tiktoken").read_bytes(),
                                                  pattern=made["pattern"], special_tokens=special)
        for text, ids, _ in made["encoded"]:
            assert by_path.encode(text, parse_special_tokens=True) == ids
            assert by_bytes.encode(text, parse_special_tokens=True) == ids
    with pytest.raises(sluice.Error, match="special_tokens"):
        sluice.Tokenizer.from_tiktoken(b"YQ== 0", special_tokens={"<end>": 2**31})
    with pytest.raises(TypeError):
        sluice.Tokenizer.from_file(7)


def test_other_threads_run_meanwhile():
    """A thread counts while another encodes, decodes and renders in one call each."""
    tokenizer = tokenizer_of("gpt2")
    ids = tokenizer.encode("a word " * 200_000)
    template = sluice.ChatTemplate("{% for i in range(99999) %}{{ i }}{% endfor %}")
    for call in (lambda: tokenizer.encode("a word " * 200_000), lambda: tokenizer.decode(ids * 4),
                 lambda: template.render("{}")):
        ended = threading.Event()
        thread = threading.Thread(target=lambda: (call(), ended.set()))  # noqa: B023
        interval = sys.getswitchinterval()
        sys.setswitchinterval(100.0)  # none is interrupted: the others run when one lets them
        try:
            thread.start()
            turns = 0
            while not ended.is_set():
                turns += 1
                time.sleep(0)
        finally:
            sys.setswitchinterval(interval)
        thread.join()
        assert turns > 10


def test_the_clock_is_the_default():
    template = sluice.ChatTemplate("{{ strftime_now('%Y') }}")
    assert int(template.render("{}")) >= 2024
    assert template.render("{}", seconds=0) == "1970"
    with pytest.raises(sluice.Error, match="seconds"):
        template.render("{}", seconds=2**63)


def test_bad_arguments():
    tokenizer = tokenizer_of("gpt2")
    with pytest.raises(sluice.Error, match="utf8_errors"):
        sluice.Detokenizer(tokenizer, utf8_errors="strict")
    with pytest.raises(sluice.Error, match="incomplete"):
        sluice.Detokenizer(tokenizer).finish(incomplete="keep")
    with pytest.raises(sluice.Error, match=r"stops\.size"):
        sluice.StopScanner(["x"] * 17)
    with pytest.raises(sluice.Error, match="path"):
        sluice.Tokenizer.from_file("/nowhere")
    with pytest.raises(sluice.Error, match="decoder"):
        sluice.Tokenizer.from_json("{}", decoder="sp")


def test_a_stream_is_its_parts():
    tokenizer = tokenizer_of("llama3")
    ids = tokenizer.encode("one two 中文 END three", add_special_tokens=False)
    for size in (1, 2, len(ids)):
        stream = sluice.TextStream(tokenizer, stops=["END"])
        detokenizer, scanner = sluice.Detokenizer(tokenizer), sluice.StopScanner(["END"])
        text = ""
        for at in range(0, len(ids), size):
            delta = stream.step(ids[at:at + size])
            released, stop, tokens, out = scanner.step(*detokenizer.step(ids[at:at + size]))
            assert (delta.text, delta.stop, delta.tokens, delta.last_token) == (
                released, stop, tokens, out)
            text += delta.text
            if delta.finish:
                break
        assert text == "one two 中文 "
        assert delta.finish == "stop_string" and delta.stop == "END"
        assert stream.step(ids).text == stream.finish().text == ""


def test_a_stop_token_ends_a_stream():
    tokenizer = tokenizer_of("llama3")
    end = tokenizer.id("<|end|>")
    for options in ({"stop_token_ids": end}, {"stop_token_ids": [end]}, {"stops": ["<|end|>"]}):
        stream = sluice.TextStream(tokenizer, **options)
        delta = stream.step([*tokenizer.encode("a", add_special_tokens=False), end, end])
        assert (delta.text, delta.finish, delta.stop) == ("a", "stop_token", end)
        assert (delta.first_token, delta.last_token) == (0, delta.tokens)


def load(name):
    spec = importlib.util.spec_from_file_location(name, FIXTURES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def peer():
    """The script that makes tokenizers, with 1 MB to train on and 1 MB to compare on."""
    pytest.importorskip("tokenizers")
    made = load("make_tokenizers")
    return made, made.corpus(10, 1_200_000, 60_000), made.corpus(11, 400_000, 60_000)


def without_new_marks(text):
    """For BERT's steps: the tables of punctuation and accents that it is compared with end with
    Unicode 8."""
    return "".join(c for c in text if ord(c) < 0x300 or unicodedata.category(c)[0] not in "PMC")


def noise(character, rng, count):
    """Texts of any characters, and of few that repeat."""
    for _ in range(count):
        size = rng.randint(1, 60)
        kind = rng.randrange(3)
        if kind == 0:
            yield "".join(character(rng) for _ in range(size))
        elif kind == 1:
            yield "".join(rng.choice(" \n\t\r a'sS1é\u00a0\u3000中。!") for _ in range(size))
        else:
            yield rng.choice(["ab", " ", "\n", "中", "1", "!", "😀"]) * size


@pytest.mark.parametrize("family", ["gpt2", "llama3", "qwen", "o200k", "deepseek", "llama2", "gemma",
                                    "wordpiece", "metaspace"])
def test_equals_tokenizers_on_a_large_vocabulary(peer, family):
    made, training, texts = peer
    theirs = made.train(family, 32_500, training)
    ours = sluice.Tokenizer.from_json(theirs.to_str())
    assert len(ours) >= 32_000
    rng = random.Random(family)
    hostile = made.hostile_texts(rng)
    for number, text in enumerate(hostile + texts + list(noise(made.character, rng, 3000))):
        if family == "wordpiece":
            text = without_new_marks(text)
        # Special tokens are in the hostile texts alone: of the others each is encoded once.
        for parses in (True, False) if number < len(hostile) else (number % 2 == 0,):
            theirs.encode_special_tokens = not parses
            expected = theirs.encode(text).ids
            assert ours.encode(text, parse_special_tokens=parses) == expected, text
        assert ours.decode(expected) == theirs.decode(expected), text
    theirs.encode_special_tokens = False
    for number in range(2000):
        ids = [rng.randrange(len(ours)) for _ in range(rng.randint(1, 30))]
        skips = number % 2 == 0
        stream = sluice.Detokenizer(ours, skip_special_tokens=skips, utf8_errors="hf-run")
        text = ""
        at = 0
        while at < len(ids):
            size = rng.randint(1, 5)
            text += stream.step(ids[at:at + size])[0]
            at += size
        assert text + stream.finish() == theirs.decode(ids, skip_special_tokens=skips)


@pytest.mark.parametrize("rule", ["nmt_nfkc", "nmt_nfkc_cf", "identity"])
@pytest.mark.parametrize("model_type", ["unigram", "bpe"])
def test_equals_sentencepiece_on_a_larger_vocabulary(peer, rule, model_type):
    sentencepiece = pytest.importorskip("sentencepiece")
    made, training, texts = peer
    file = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(t.replace("\n", " ") for t in training[:2000]), model_writer=file,
        vocab_size=8000, model_type=model_type, character_coverage=0.99, hard_vocab_limit=False,
        minloglevel=2, byte_fallback=rule == "identity", normalization_rule_name=rule)
    theirs = sentencepiece.SentencePieceProcessor(model_proto=file.getvalue())
    ours = sluice.Tokenizer.from_sentencepiece(file.getvalue())
    rng = random.Random(rule)
    for text in made.hostile_texts(rng) + texts + list(noise(made.character, rng, 2000)):
        if "\0" not in text:
            assert ours.encode(text, add_special_tokens=False) == theirs.encode(text), text


@pytest.mark.parametrize("name", ["chatml", "llama3", "qwen3", "mistral", "gemma", "deepseek",
                                  "language"])
def test_chats_equal_jinja2(name):
    pytest.importorskip("jinja2")
    chats = load("make_chats")
    template = sluice.ChatTemplate((FIXTURES / "chats" / f"{name}.jinja").read_text(encoding="utf-8"))
    for variables, text in chats.cases(name, 200, seed=2):
        variables = json.dumps(variables)
        if text is None:
            with pytest.raises(sluice.Error):
                template.render(variables, seconds=chats.SECONDS)
        else:
            assert template.render(variables, seconds=chats.SECONDS) == text
