"""The report card: Sluice passes it, and a sampler with one fault fails the check that is about it."""

import json
import types

import numpy as np
import pytest

import sluice
from sluice import conformance
from sluice.conformance import __main__ as command
from sluice.conformance import report
from sluice.conformance.checks import Result, Size
from sluice.conformance.definition import CONVENTIONS, Params, kept_range
from sluice.conformance.samplers import Sampler
from sluice.conformance.statistics import SIGMAS, deviation

SIZE = Size(128, 2, 4000)


def right(logits, temperature, top_k, top_p, min_p, seeds):
    return sluice.sample(logits, temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p,
                         seed=seeds).ids


def keep(logits, temperature, top_k, top_p, min_p):
    return sluice.mask_(logits.copy(), temperature=temperature, top_k=top_k, top_p=top_p,
                        min_p=min_p) > -np.inf


def outcomes(sample, keep=keep, name="one"):
    function = lambda logits, temperature, top_k, top_p, min_p, seeds: sample(
        logits, temperature, top_k, top_p, min_p, seeds)
    if keep is not None:
        function.keep = keep
    return {one.name: one.outcome for one in conformance.run(Sampler(name, function), SIZE)}


def failed(sample=right, keep=keep):
    return {name for name, outcome in outcomes(sample, keep).items() if outcome == "fail"}


def test_sluice_passes_every_check():
    results = conformance.run(conformance.load("sluice"), SIZE)
    assert [one.outcome for one in results] == ["pass"] * len(conformance.CHECKS), results
    assert all("wrong" not in one.sentence and "differ as" not in one.sentence for one in results)


def test_sets_can_be_found_by_drawing():
    found = outcomes(right, None)
    assert found.pop("ties") == "not offered"
    assert set(found.values()) == {"pass"}


def one_less(logits, temperature, top_k, top_p, min_p):
    kept = keep(logits, temperature, top_k, top_p, min_p)
    last = np.where(kept, logits, np.inf).argmin(axis=-1)
    many = kept.sum(axis=-1) > 1
    kept[np.flatnonzero(many), last[many]] = False
    return kept


def one_more(logits, temperature, top_k, top_p, min_p):
    kept = keep(logits, temperature, top_k, top_p, min_p)
    below = np.where(kept, -np.inf, logits).argmax(axis=-1)
    kept[np.arange(len(kept)), below] |= temperature > 0
    return kept


@pytest.mark.parametrize("broken", [one_less, one_more])
def test_a_set_with_a_token_too_few_or_too_many_fails(broken):
    assert failed(keep=broken) >= {"top-k", "top-p", "top-k and top-p", "min-p"}


def test_all_tokens_that_tie_are_noted():
    def with_ties(logits, temperature, top_k, top_p, min_p):
        kept = keep(logits, temperature, top_k, top_p, min_p)
        lowest = np.where(kept, logits, np.inf).min(axis=-1, keepdims=True)
        return logits >= lowest

    found = outcomes(right, with_ties)
    assert found["ties"] == "note" and found["top-k"] == "pass"


def test_a_joint_filter_is_another_convention_and_passes():
    def joint(logits, temperature, top_k, top_p, min_p):
        return sluice.mask_(logits.copy(), temperature=temperature, top_k=top_k, top_p=top_p,
                            min_p=min_p, profile="sglang") > -np.inf

    found = outcomes(right, joint)
    assert {found[name] for name in ("top-k", "top-p", "top-k and top-p")} == {"pass"}


def draws_masked(logits, temperature, top_k, top_p, min_p, seeds):
    return right(np.maximum(logits, -5), temperature, top_k, top_p, min_p, seeds)


def one_seed(logits, temperature, top_k, top_p, min_p, seeds):
    return right(logits, temperature, top_k, top_p, min_p, np.zeros_like(seeds))


def no_seed(logits, temperature, top_k, top_p, min_p, seeds):
    return right(logits, temperature, top_k, top_p, min_p, None)


def by_place(logits, temperature, top_k, top_p, min_p, seeds):
    return right(logits, temperature, top_k, top_p, min_p,
                 seeds + np.arange(len(seeds), dtype=np.uint64) * np.uint64(99991))


def warm(logits, temperature, top_k, top_p, min_p, seeds):
    return right(logits, temperature * np.float32(1.05), top_k, top_p, min_p, seeds)


def neighbours_seed(logits, temperature, top_k, top_p, min_p, seeds):
    return right(logits, temperature, top_k, top_p, min_p, seeds // np.uint64(2))


def not_the_largest(logits, temperature, top_k, top_p, min_p, seeds):
    return right(logits, np.maximum(temperature, 1), top_k, top_p, min_p, seeds)


def highest_id(logits, temperature, top_k, top_p, min_p, seeds):
    ids = right(logits[:, ::-1].copy(), temperature, top_k, top_p, min_p, seeds)
    return logits.shape[1] - 1 - ids


def first_rows_parameters(logits, temperature, top_k, top_p, min_p, seeds):
    given = [np.full_like(one, one[0]) for one in (temperature, top_k, top_p, min_p)]
    return right(logits, *given, seeds)


def ignores_min_p(logits, temperature, top_k, top_p, min_p, seeds):
    return right(logits, temperature, top_k, top_p, np.zeros_like(min_p), seeds)


def few_seeds(logits, temperature, top_k, top_p, min_p, seeds):
    return right(logits, temperature, top_k, top_p, min_p, seeds & np.uint64(0x7fff))


def negative(logits, temperature, top_k, top_p, min_p, seeds):
    return right(logits, temperature, top_k, top_p, min_p, seeds) - logits.shape[1]


def zeroes_its_logits(logits, temperature, top_k, top_p, min_p, seeds):
    logits[:] = 0
    return right(logits, temperature, top_k, top_p, min_p, seeds)


def stops_at_nan(logits, temperature, top_k, top_p, min_p, seeds):
    if np.isnan(logits).any():
        raise RuntimeError("a NaN")
    return right(logits, temperature, top_k, top_p, min_p, seeds)


def spreads_nan(logits, temperature, top_k, top_p, min_p, seeds):
    return right(logits, temperature, top_k, top_p, min_p,
                 seeds + np.uint64(np.isnan(logits).any()))


def overflows(logits, temperature, top_k, top_p, min_p, seeds):
    return right(logits * np.float32(10), temperature * np.float32(10), top_k, top_p, min_p, seeds)


@pytest.mark.parametrize("broken, check", [
    (draws_masked, "masks"), (first_rows_parameters, "mixed"), (ignores_min_p, "min-p"),
    (ignores_min_p, "mixed"), (few_seeds, "repeats"), (negative, "masks"), (negative, "greedy"),
    (zeroes_its_logits, "masks"), (zeroes_its_logits, "greedy"), (one_seed, "repeats"), (no_seed, "repeats"), (no_seed, "batches"),
    (by_place, "batches"), (warm, "distribution"), (one_seed, "distribution"),
    (neighbours_seed, "seeds"), (not_the_largest, "greedy"), (stops_at_nan, "neighbours"),
    (spreads_nan, "neighbours"), (overflows, "extremes")], ids=lambda one: getattr(one, "__name__", one))
def test_a_draw_with_a_fault_fails_the_check_that_is_about_it(broken, check):
    assert check in failed(broken)


def test_the_highest_of_equal_ids_is_noted():
    assert outcomes(highest_id)["greedy"] == "note"


def test_an_id_that_is_none_fails():
    too_large = lambda logits, *rest: np.full(len(logits), logits.shape[1])
    too_few = lambda logits, *rest: np.zeros(len(logits) - 1, int)
    assert "masks" in failed(too_large) and "masks" in failed(too_few)


def test_what_a_signature_lacks_is_not_offered():
    only_k = lambda logits, top_k: right(logits, 1.0, top_k, 1.0, 0.0, None)
    found = {one.name: one.outcome for one in conformance.run(Sampler("k", only_k), SIZE)}
    assert {name for name, outcome in found.items() if outcome == "not offered"} == {
        "top-p", "top-k and top-p", "min-p", "ties", "greedy", "repeats", "batches", "seeds"}
    assert found["mixed"] == "pass"
    assert found["top-k"] == found["distribution"] == "pass"


def test_the_definition_is_that_of_the_library():
    """It shares no code with it: exp and sums of 80 bits, where the library has integers."""
    vllm = next(one for one in CONVENTIONS if one == (
        "of the k kept", "the lowest ids", "the lowest ids", "before top-k"))
    source = np.random.default_rng(8)
    rows = source.normal(0, 3, (60, 200)).astype(np.float32)
    rows[::3] = np.round(rows[::3])
    for at, row in enumerate(rows):
        params = Params(float(source.uniform(0.5, 2)), int(source.integers(0, 60)),
                        float(source.choice([1, 0.9, 0.4])), float(source.choice([0, 0.05])))
        few, many = kept_range(row, params, vllm, 1e-13)
        assert (few == many).all()
        fields = params._asdict()
        assert (keep(row[None], **{name: np.array([value]) for name, value in fields.items()})[0]
                == few).all(), (at, params)


def test_deviations_are_those_of_a_normal_distribution():
    source = np.random.default_rng(4)
    probabilities = source.dirichlet(np.ones(40))
    found = [deviation(source.choice(40, 5000, p=probabilities), probabilities) for _ in range(400)]
    assert abs(np.mean(found)) < 0.2 and 0.85 < np.std(found) < 1.15
    assert deviation(np.zeros(5000, int), probabilities) > SIGMAS
    assert deviation(np.array([1]), np.array([1.0, 0.0])) == np.inf


def sample(logits, seeds):
    """For the command: a sampler of this file, which cuts nothing."""
    return sluice.sample(logits, seed=seeds).ids


def test_the_command_writes_the_card(tmp_path, capsys):
    given = ["--sampler", "test_conformance:sample", "--quick", "--json", str(tmp_path / "a.json"),
             "--html", str(tmp_path / "a.html")]
    assert command.main(given) == 0
    assert "14 checks: 7 passed, 7 not offered" in capsys.readouterr().out
    card = json.loads((tmp_path / "a.json").read_text())
    assert [row["check"] for row in card["rows"]] == [name for name, _, _ in conformance.CHECKS]
    page = (tmp_path / "a.html").read_text()
    assert all(f">{name}</th>" in page for name, _, _ in conformance.CHECKS)


@pytest.mark.parametrize("name, words", [
    ("nothing", "nothing' is not one of sluice, numpy, torch"), ("no_such_module:sample", "No module"),
    ("test_conformance:absent", "no attribute 'absent'")])
def test_a_sampler_that_is_not_there(name, words, capsys):
    assert command.main(["--sampler", name]) == 2
    assert words in capsys.readouterr().err


def test_a_vocabulary_that_is_too_small(capsys):
    with pytest.raises(SystemExit):
        command.main(["--sampler", "sluice", "--vocab", "3"])
    assert "vocab = 3 is not allowed: 64 to 1048576" in capsys.readouterr().err


def test_failures_are_the_exit_status(monkeypatch, capsys):
    monkeypatch.setattr(command, "run", lambda *given: [Result("a", "does", "fail", "it does not")])
    monkeypatch.setattr(command, "load", lambda name: types.SimpleNamespace(name=name))
    assert command.main(["--sampler", "numpy"]) == 1
    assert "1 checks: 1 failed" in capsys.readouterr().out


def test_a_page_escapes_what_it_shows():
    page = report.as_html("<b>", "", [Result("a", "does", "pass", "1 < 2")])
    assert "<b>" not in page and "1 &lt; 2" in page
