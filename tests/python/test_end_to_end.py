"""bench/end_to_end.py on a tiny decoder and the CPU: every tail of Sluice decodes, and its tokens
are the reference's; the kernels of a GPU's step compute what plain torch does."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

BENCH = Path(__file__).resolve().parents[2] / "bench"
TAILS = {"k50-p0.9": {"sluice", "sluice-certified", "sluice-requests", "torch-sort"},
         "no-filter": {"sluice", "sluice-certified"},
         "greedy": {"sluice", "sluice-certified", "torch-argmax"}}

if not BENCH.is_dir():
    pytest.skip("bench/ is not beside the tests", allow_module_level=True)


@pytest.fixture(autouse=True)
def bench_folder(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCH))


def decoded(*arguments):
    import end_to_end

    options = end_to_end.parsed(["--device", "cpu", "--context", "8", "--rounds", "1",
                                 "--steps", "2", "--batch", "1", "--batch", "3", *arguments])
    return end_to_end.run(options, sys.stderr)


@pytest.mark.parametrize("model", ["tiny", "tiny-moe"])
def test_every_tail_decodes_and_says_who_is_wrong(model, tmp_path):
    path = tmp_path / "report.json"
    rows = decoded("--model", model, "--json", str(path))
    for batch in (1, 3):
        names = {task: {row["peer"] for row in rows
                        if row["task"] == task and row["batch"] == batch} for task in TAILS}
        assert names == TAILS
    for row in rows:
        if row["peer"] in ("skipped", "no-head"):
            continue
        assert row["wrong_rows"] == 0 and row["rows_checked"] == row["batch"], row
    assert [row for row in rows if row["peer"] == "skipped"][0]["gap_percent"] == 0
    assert json.loads(path.read_text(encoding="utf-8"))["rows"] == rows


def test_tokens_that_are_not_the_references_are_counted():
    from decode_tails import Batch

    logits = torch.zeros((2, 40))
    logits[:, 3] = 9
    batch = Batch(2, {"temperature": 0.0}, torch.arange(2))
    assert batch.wrong_tokens(logits.numpy(), torch.tensor([3, 4]).numpy()) == 1
    assert batch.wrong_draws(logits.numpy(), torch.tensor([3, 4]).numpy(), "vllm") == 1


def test_the_softmax_has_the_entropy_that_is_asked_for():
    from decode_model import head_deviation
    from end_to_end import spread_of_softmax

    generator = torch.Generator().manual_seed(5)
    vocab, width = 30000, 256
    hidden = torch.randn((64, width), generator=generator)
    hidden *= width ** 0.5 / hidden.norm(dim=-1, keepdim=True)
    for nats in (3.0, 6.0):
        head = torch.randn((vocab, width), generator=generator) * head_deviation(vocab, width, nats)
        # The deviation comes from eight rows, whose means have a deviation of 0.35 nats at 3.
        assert abs(spread_of_softmax(hidden @ head.T)["entropy"] - nats) < 0.8


def test_what_is_in_the_cache_is_what_is_attended_to():
    from decode_model import SHAPES, Decoder

    def hidden_after(steps, context):
        decoder = Decoder(SHAPES["tiny"], 2, context, torch.device("cpu"), 3.0)
        decoder.begin(2)
        with torch.no_grad():
            for step in range(steps):
                decoder.feed(torch.tensor([step, 9 + step]))
                decoder.advance()
                found = decoder.hidden(2)
        return decoder, found

    decoder, found = hidden_after(3, 4)
    assert decoder.positions.tolist() == [3, (1 << 20) + 3]
    decoder.caches[0].zero_()
    decoder.feed(torch.tensor([2, 11]))
    decoder.advance()
    with torch.no_grad():
        assert not torch.equal(decoder.hidden(2), found)


FUSED = """
import sys
sys.path.insert(0, sys.argv[1])
import torch
from decode_kernels import Fused
from decode_model import Plain

torch.manual_seed(1)
def near(a, b):  # bfloat16 has 8 bits, and torch rounds where the kernels do not
    assert (a.float() - b.float()).norm() < 1e-2 * a.float().norm(), (a, b)

x, parts, gain = torch.randn(3, 40), torch.randn(3, 2, 40), torch.rand(40)
both = [x.clone().bfloat16() for _ in range(2)]
near(*(ops.add_norm(mine, parts.bfloat16(), gain.bfloat16(), 1e-5)
       for ops, mine in zip((Plain, Fused), both)))
near(*both)
near(*(ops.swiglu(parts.bfloat16().view(3, 80)) for ops in (Plain, Fused)))
caches = [[torch.zeros(3, 2, 5, 16).bfloat16() for _ in range(2)] for _ in range(2)]
qkv, positions = torch.randn(3, 8 * 16).bfloat16(), torch.tensor([7, 1, 2])
near(*(ops.rotate(qkv, positions, *mine, 4, 13.0) for ops, mine in zip((Plain, Fused), caches)))
near(caches[0][0], caches[1][0])
near(caches[0][1], caches[1][1])
for experts, top, rows in ((8, 2, 5), (16, 4, 20)):  # in float32: the interpreter's products are
    x, scores = torch.randn(rows, 40), torch.randn(rows, experts)
    up, down = torch.randn(experts, 2 * 24, 40) / 6, torch.randn(experts, 40, 24) / 5
    near(*(ops.experts(x, scores, up, down, top) for ops in (Plain, Fused)))
"""


def test_the_fused_kernels_are_what_plain_torch_computes():
    pytest.importorskip("triton", reason="triton is not installed")
    done = subprocess.run([sys.executable, "-c", FUSED, str(BENCH)], capture_output=True, text=True,
                          env={**os.environ, "TRITON_INTERPRET": "1"}, timeout=300)
    if "only 0-dimensional arrays" in done.stderr:
        pytest.skip("triton's interpreter does not work with this numpy")
    assert done.returncode == 0, done.stderr


def test_shapes_are_those_of_the_models():
    from decode_model import SHAPES

    billions = {}
    for name, shape in SHAPES.items():
        attention = shape.width * shape.dim * (2 * shape.heads + 2 * shape.kv)
        each = 3 * shape.width * shape.inner
        layers = shape.layers * (attention + max(shape.experts, 1) * each)
        active = shape.layers * (attention + max(shape.top, 1) * each)
        both = shape.vocab * shape.width
        billions[name] = round((layers + 2 * both) / 1e9, 1), round((active + both) / 1e9, 1)
    assert billions["8b-128256"] == (8.0, 7.5)
    assert billions["8b-151936"] == (8.2, 7.6)
    assert billions["20b-a3b"] == (20.9, 3.6)
    assert billions["4b"][1] == 3.9  # its embeddings are its head
