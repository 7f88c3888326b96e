"""sluice.hf inside transformers, on a model of random weights."""

import runpy
from pathlib import Path

import numpy as np
import pytest
from conftest import random_rows

import sluice

torch = pytest.importorskip("torch", reason="torch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")

from sluice import hf  # noqa: E402

VOCAB = 211
FILTERS = [
    {"top_k": 7},
    {"top_p": 0.8},
    {"temperature": 0.7, "top_k": 40, "top_p": 0.9},
    {"temperature": 1.5, "min_p": 0.1},
    {"typical_p": 0.6},
    {"top_k": 30, "top_p": 0.8, "min_p": 0.02},
]
# Left padding, as decoders take it: prompts of 2, 4 and 3 tokens.
PROMPTS = torch.tensor([[0, 0, 5, 6], [7, 8, 9, 10], [0, 11, 12, 13]])
SEEDS = [3, 2**64 - 1, 5]
SAMPLING = {"do_sample": True, "temperature": 0.8, "top_k": 40, "top_p": 0.95, "max_new_tokens": 6}


def make_model(**keywords):
    torch.manual_seed(7)
    config = transformers.LlamaConfig(
        vocab_size=VOCAB, hidden_size=48, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64, pad_token_id=0,
        bos_token_id=1, eos_token_id=None, **keywords)
    return transformers.LlamaForCausalLM(config).eval()


@pytest.fixture(scope="module")
def model():
    return make_model()


def generate(model, prompts=PROMPTS, **keywords):
    return model.generate(prompts, attention_mask=(prompts != 0).long(), **keywords)


def new_tokens(model, prompts=PROMPTS, **keywords):
    return generate(model, prompts, **keywords)[:, prompts.shape[1]:].tolist()


@pytest.mark.parametrize("params", FILTERS, ids=str)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_processor_keeps_what_select_keeps(params, dtype):
    scores = torch.from_numpy(random_rows()).to(getattr(torch, dtype))
    kept = hf.LogitsProcessor(**params)(PROMPTS, scores) > -torch.inf
    counts = sluice.select(scores, profile="hf", **params).counts
    expected = sluice.mask_(scores.clone(), profile="hf", **params) > -torch.inf
    assert kept.equal(expected)
    assert kept.sum(dim=1).tolist() == counts.tolist()


@pytest.mark.parametrize("params", FILTERS, ids=str)
def test_the_processor_is_the_filters_of_transformers(params, model):
    # Every fourth row has ties, of which transformers' top-p keeps some, in the order of its sort.
    # None has a boundary so near p that sums in fp32 and ours in integers differ.
    scores = torch.from_numpy(np.delete(random_rows(seed=4), np.s_[::4], axis=0))
    config = transformers.GenerationConfig(do_sample=True, **{"top_k": 0, **params})
    filters = model._get_logits_processor(config, device="cpu")
    torch.testing.assert_close(hf.LogitsProcessor(**params)(PROMPTS, scores),
                               filters(PROMPTS, scores.clone()), rtol=0, atol=0)


def test_parameters_may_differ_from_row_to_row():
    scores = torch.from_numpy(random_rows(4, seed=2)[1:])
    processor = hf.LogitsProcessor(temperature=[0.5, 0, 2.0], top_k=torch.tensor([3, 4, 5]))
    result = processor(PROMPTS, scores)
    assert (result > -torch.inf).sum(dim=1).tolist() == [3, 1, 5]
    for row, temperature in enumerate([0.5, 1, 2.0]):
        kept = result[row] > -torch.inf
        assert result[row, kept].equal(scores[row, kept] / temperature)


def test_scores_are_written_only_when_asked():
    scores = torch.from_numpy(random_rows())
    before = scores.clone()
    assert hf.LogitsProcessor(top_k=3)(PROMPTS, scores) is not scores
    assert scores.equal(before)
    assert hf.LogitsProcessor(top_k=3, in_place=True)(PROMPTS, scores) is scores
    assert not scores.equal(before)


def test_the_processor_works_inside_generate(model):
    processor = hf.LogitsProcessor(temperature=0.8, top_k=2)
    out = generate(model, do_sample=True, top_k=0, max_new_tokens=6, logits_processor=[processor],
                   output_logits=True, return_dict_in_generate=True)
    for step, logits in enumerate(out.logits):
        drawn = out.sequences[:, PROMPTS.shape[1] + step, None]
        assert (drawn == logits.topk(2).indices).any(dim=1).all()


def test_the_processor_takes_beams_and_refuses_fewer_values_than_rows(model):
    beams = {"num_beams": 2, "max_new_tokens": 3, "do_sample": False}
    wide = new_tokens(model, logits_processor=[hf.LogitsProcessor(top_k=VOCAB)], **beams)
    assert wide == new_tokens(model, **beams)
    with pytest.raises(sluice.Error, match=r"top_k.* = 3 is not allowed: .*6"):
        generate(model, logits_processor=[hf.LogitsProcessor(top_k=[1, 2, 3])], **beams)


def test_each_token_is_the_draw_of_its_own_row_seed_and_position(model):
    sampling = hf.Generate(seed=SEEDS)
    out = generate(model, custom_generate=sampling, output_logits=True,
                   return_dict_in_generate=True, **SAMPLING)
    for row, prompt in enumerate(PROMPTS):
        for step, logits in enumerate(out.logits):
            token = sluice.sample(logits[row], temperature=0.8, top_k=40, top_p=0.95, profile="hf",
                                  seed=SEEDS[row], position=int((prompt != 0).sum()) + step)
            assert out.sequences[row, PROMPTS.shape[1] + step] == token.ids


def test_a_prompt_gives_the_same_alone_as_in_a_padded_batch(model):
    # Padding may change a logit in its last bit; no draw of these stands that close.
    together = new_tokens(model, custom_generate=hf.Generate(seed=SEEDS), **SAMPLING)
    for row, prompt in enumerate(PROMPTS):
        alone = prompt[prompt != 0][None]
        again = new_tokens(model, alone, custom_generate=hf.Generate(seed=SEEDS[row]), **SAMPLING)
        assert again == [together[row]]
    turned = new_tokens(model, PROMPTS.flip(0), custom_generate=hf.Generate(seed=SEEDS[::-1]),
                        **SAMPLING)
    assert turned == together[::-1]


def test_sequences_of_one_prompt_are_its_choices(model):
    several = new_tokens(model, custom_generate=hf.Generate(seed=SEEDS), num_return_sequences=2,
                         **SAMPLING)
    assert several[::2] == new_tokens(model, custom_generate=hf.Generate(seed=SEEDS), **SAMPLING)
    assert several[1::2] != several[::2]


def test_parameters_of_prompts_come_before_those_of_the_config(model):
    sampling = hf.Generate(seed=1, temperature=[0.0, 0.8, 0.8], top_k=[0, 1, 40])
    mixed = new_tokens(model, custom_generate=sampling, **SAMPLING)
    greedy = new_tokens(model, do_sample=False, max_new_tokens=6)
    assert mixed[:2] == greedy[:2]
    alone = new_tokens(model, custom_generate=hf.Generate(seed=1), **SAMPLING)
    assert mixed[2] == alone[2]


def test_unseeded_draws_follow_torch_and_report_their_seeds(model):
    sampling = hf.Generate()
    torch.manual_seed(1)
    first = new_tokens(model, custom_generate=sampling, **SAMPLING)
    seeds = sampling.seeds.tolist()
    second = new_tokens(model, custom_generate=sampling, **SAMPLING)
    torch.manual_seed(1)
    assert first == new_tokens(model, custom_generate=hf.Generate(), **SAMPLING)
    assert first == new_tokens(model, custom_generate=hf.Generate(seed=seeds), **SAMPLING)
    assert first != second


@pytest.mark.parametrize("extra", [{}, {"repetition_penalty": 1.3}, {"min_new_tokens": 3}], ids=str)
def test_greedy_is_that_of_transformers(model, extra):
    plain = {"do_sample": False, "max_new_tokens": 8, **extra}
    assert new_tokens(model, custom_generate=hf.Generate(), **plain) == new_tokens(model, **plain)


def test_processors_of_the_user_stay(model):
    own = transformers.TopKLogitsWarper(1)
    drawn = new_tokens(model, custom_generate=hf.Generate(seed=1), logits_processor=[own],
                       **SAMPLING)
    assert drawn == new_tokens(model, do_sample=False, max_new_tokens=6)


@pytest.mark.parametrize("keywords, message", [
    ({"num_beams": 2}, "num_beams = 2 is not allowed: 1"),
    ({"do_sample": True, "epsilon_cutoff": 0.1}, "epsilon_cutoff = 0.1 is not allowed: off"),
    ({"do_sample": True, "top_p": 1.0, "top_h": 0.4}, "top_h = 0.4 is not allowed: off"),
])
def test_what_sluice_does_not_have_is_refused(model, keywords, message):
    with pytest.raises(sluice.Error, match=message):
        generate(model, max_new_tokens=2, custom_generate=hf.Generate(seed=1), **keywords)


def test_wrong_keywords_are_refused(model):
    with pytest.raises(sluice.Error, match=r"seed\.size = 2 is not allowed: .* 3"):
        generate(model, max_new_tokens=2, custom_generate=hf.Generate(seed=[1, 2]))
    with pytest.raises(sluice.Error, match="seed = -1 is not allowed"):
        generate(model, max_new_tokens=2, custom_generate=hf.Generate(seed=-1))
    with pytest.raises(sluice.ArgumentTypeError, match="position = 3"):
        hf.Generate(position=3)


def test_a_row_that_cannot_be_drawn_from_is_named(model):
    def break_row(input_ids, scores):
        scores[1, 4] = torch.nan
        return scores

    with pytest.raises(sluice.Error, match="scores = nan_input in row 1 is not allowed"):
        generate(model, max_new_tokens=2, custom_generate=hf.Generate(),
                 logits_processor=[break_row])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("kind", ["dither4", "strict"])
def test_the_head_gives_the_largest_logits_of_the_dense_one(dtype, kind):
    torch.manual_seed(5)
    weight = torch.randn(VOCAB, 48).to(getattr(torch, dtype))
    bias = torch.randn(VOCAB)
    hidden = torch.randn(2, 3, 48).to(getattr(torch, dtype))
    logits = hf.CertifiedLmHead(weight, bias, k=9, kind=kind)(hidden)
    dense = torch.from_numpy(sluice.dense_head(weight, hidden.reshape(6, 48), bias=bias))
    assert logits.shape == (2, 3, VOCAB)
    assert logits.reshape(6, VOCAB).equal(sluice.mask_(dense, top_k=9))


def test_generation_with_the_head_is_that_with_the_weights():
    model = make_model()
    greedy = {"do_sample": False, "max_new_tokens": 8}
    wanted = new_tokens(model, **greedy)
    drawn = new_tokens(model, custom_generate=hf.Generate(seed=SEEDS), **SAMPLING)
    before = hf.replace_lm_head(model, k=40)
    assert new_tokens(model, **greedy) == wanted
    assert new_tokens(model, custom_generate=hf.Generate(seed=SEEDS), **SAMPLING) == drawn
    assert model.lm_head.head.stats["rows"] == PROMPTS.shape[0] * (8 + 6)
    model.set_output_embeddings(before)
    assert new_tokens(model, **greedy) == wanted


def test_a_nan_in_a_hidden_state_stays_one():
    hidden = torch.ones(2, 48)
    hidden[1, 3] = torch.nan
    logits = hf.CertifiedLmHead(torch.randn(VOCAB, 48), k=1)(hidden)
    assert logits[1].isnan().all() and not logits[0].isnan().any()


def test_heads_that_cannot_be_replaced_are_refused(model):
    with pytest.raises(sluice.Error, match=r"k = 212 is not allowed: \[1, 211\]"):
        hf.replace_lm_head(model, k=VOCAB + 1)
    capped = make_model()
    capped.config.final_logit_softcapping = 30.0
    with pytest.raises(sluice.Error, match="final_logit_softcapping = 30.0"):
        hf.replace_lm_head(capped)
    with pytest.raises(sluice.ArgumentTypeError, match="model"):
        hf.replace_lm_head(transformers.LlamaModel(model.config))


def test_the_example_runs(capsys):
    example = Path(__file__).parents[2] / "examples" / "python" / "transformers_generate.py"
    runpy.run_path(str(example), run_name="__main__")
    assert np.fromstring(capsys.readouterr().out.split("tokens ")[1], sep=" ").size == 8
