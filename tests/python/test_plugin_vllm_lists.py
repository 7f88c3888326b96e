"""The lists of log-probabilities that vLLM's engine process sends: the bytes are vLLM's own."""

import logging
import pickle
import weakref

import numpy as np
import peers
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
for needed in ("msgspec", "zmq", "pydantic", "cloudpickle"):
    pytest.importorskip(needed, reason=f"{needed}, which vLLM's encoder needs, is not installed")

import msgspec  # noqa: E402
from test_plugin_vllm import Platform  # noqa: E402

from sluice.plugins import vllm as plugin  # noqa: E402
from sluice.plugins import vllm_lists  # noqa: E402

OUTPUTS, ENCODER = "vllm.v1.outputs", "vllm.v1.serial_utils"
VERSIONS = [one for one in peers.sources_of("vllm") if plugin.seams_of(one.version)]


class Envs:
    VLLM_MSGPACK_ZERO_COPY_THRESHOLD = 256
    VLLM_ALLOW_INSECURE_SERIALIZATION = False


@pytest.fixture(params=VERSIONS or [None], ids=str)
def vllm(request):
    """(vllm.v1.outputs, vllm.v1.serial_utils), from the files of a wheel."""
    if request.param is None:
        pytest.skip("no wheel of a supported version: SLUICE_PEER_WHEELS names no folder with one")
    given = {"vllm": {"__version__": request.param.version, "envs": Envs},
             "vllm.logger": {"init_logger": logging.getLogger},
             "vllm.multimodal.inputs": {"NestedTensors": object},
             "vllm.platforms": {"current_platform": Platform("cuda")},
             "vllm.utils.torch_utils": {"PIN_MEMORY": False},
             "vllm.v1.utils": {"tensor_data": lambda tensor: tensor.numpy().data}}
    with peers.Engine(request.param, (OUTPUTS, ENCODER), given):
        yield tuple(__import__(name, fromlist=["_"]) for name in (OUTPUTS, ENCODER))


class Replaced:
    """Within `with`, vLLM's two functions are those of the plug-in."""

    def __init__(self, vllm):
        self._lists, self._encoder = vllm[0].LogprobsLists, vllm[1].MsgpackEncoder

    def __enter__(self):
        self._own = self._lists.slice_request, self._encoder.enc_hook
        self._lists.slice_request = vllm_lists.slice_request(self._own[0])
        self._encoder.enc_hook = vllm_lists.enc_hook(self._own[1])

    def __exit__(self, *error):
        self._lists.slice_request, self._encoder.enc_hook = self._own


def step_of(vllm, rows, columns, ids=np.int64, ranks=np.int64, seed=0):
    source = np.random.default_rng(seed)
    values = source.normal(size=(rows, columns)).astype(np.float32)
    values[::3, -1] = -np.inf
    values[::5, 0] = np.nan
    return vllm[0].LogprobsLists(source.integers(0, 200000, (rows, columns)).astype(ids), values,
                                 source.integers(1, 200000, rows).astype(ranks))


def messages_of(vllm, steps, positions=1):
    """One of each step: what the encoder makes of the lists of its requests."""
    class Output(msgspec.Struct, array_like=True):
        name: str
        lists: vllm[0].LogprobsLists

    encoder = vllm[1].MsgpackEncoder()
    decoder = vllm[1].MsgpackDecoder(list[Output])
    messages = []
    for lists in steps:
        cut = lists.cu_num_generated_tokens
        requests = range(len(lists[0]) if cut is None else len(cut) - 1)
        outputs = [Output(f"request {at}", lists.slice_request(at, positions)) for at in requests]
        buffers = [bytes(buffer) for buffer in encoder.encode(outputs)]
        messages.append((buffers, [output.lists for output in decoder.decode(buffers)]))
    return messages


def same(one, other):
    return all(np.array_equal(a, b, equal_nan=a.dtype.kind == "f") and a.dtype == b.dtype
               for a, b in zip(one[:3], other[:3])) and len(one) == len(other) == 4


@pytest.mark.parametrize("rows", [1, 2, 7, 256])
@pytest.mark.parametrize("columns", [1, 2, 3, 6, 17, 21])
def test_the_bytes_are_those_of_vllm(vllm, rows, columns):
    steps = [step_of(vllm, rows, columns), step_of(vllm, rows, columns, np.int32, np.int32, seed=1)]
    own = messages_of(vllm, steps)
    with Replaced(vllm):
        ours = messages_of(vllm, steps)
    assert [message for message, _ in ours] == [message for message, _ in own]
    assert len(own[0][0]) == 1  # all inside of one buffer, as in an engine with 20 of them


@pytest.mark.parametrize("columns", [31, 32, 33, 129])
def test_long_lists_go_in_buffers_of_their_own_as_in_vllm(vllm, columns):
    steps = [step_of(vllm, 9, columns)]
    own = messages_of(vllm, steps)
    with Replaced(vllm):
        ours = messages_of(vllm, steps)
    assert (len(own[0][0]) > 1) == (columns > 31)
    assert ours[0][0] == own[0][0]
    assert all(map(same, own[0][1], ours[0][1]))


def test_a_step_is_not_kept(vllm):
    lists = step_of(vllm, 4, 21)
    with Replaced(vllm):
        made = weakref.ref(lists.slice_request(0, 1)._step)
        assert made() is None
        row = lists.slice_request(0, 1)
        assert row._step is lists.slice_request(3, 1)._step


def test_rows_that_are_not_there_are_empty_as_in_vllm(vllm):
    lists = step_of(vllm, 4, 21)
    with Replaced(vllm):
        assert len(lists.slice_request(4, 1).logprobs) == 0


def test_arrays_that_are_not_contiguous(vllm):
    lists = step_of(vllm, 8, 21)
    wide = [np.asfortranarray(lists[0]), np.repeat(lists[1], 2, axis=1)[:, ::2], lists[2][::1]]
    steps = [vllm[0].LogprobsLists(*wide)]
    own = messages_of(vllm, steps)
    with Replaced(vllm):
        ours = messages_of(vllm, steps)
    assert ours[0][0] == own[0][0]


def test_steps_of_drafts_stay_those_of_vllm(vllm):
    lists = step_of(vllm, 6, 21)
    several = lists._replace(cu_num_generated_tokens=[0, 2, 4, 6])
    with Replaced(vllm):
        for sliced in (lists.slice_request(1, 2), several.slice_request(1, 2),
                       several.slice_request(2, 1)):
            assert type(sliced) is vllm[0].LogprobsLists
        message = messages_of(vllm, [several], positions=2)[0][1]
        assert same(message[1], several.slice_request(1, 2))


def test_a_process_that_encodes_nothing_finds_lists(vllm):
    lists = step_of(vllm, 5, 21)
    own = [lists.slice_request(at, 1) for at in range(5)]
    with Replaced(vllm):
        ours = [lists.slice_request(at, 1) for at in range(5)]
        for one, theirs in zip(ours, own):
            ids, values, ranks, cut = one
            assert cut is None and same((ids, values, ranks, cut), theirs)
            assert same(one, theirs) and len(one) == 4
            assert np.array_equal(one.logprob_token_ids, theirs.logprob_token_ids)
            assert np.array_equal(one.sampled_token_ranks, theirs.sampled_token_ranks)
            assert same(one.slice_request(0, 1), theirs)
            assert same(pickle.loads(pickle.dumps(one)), theirs)


def test_two_steps_in_turn_are_not_mixed_up(vllm):
    first, second = step_of(vllm, 4, 21, seed=1), step_of(vllm, 4, 21, seed=2)
    own = [[step.slice_request(at, 1) for step in (first, second)] for at in range(4)]
    encoder = vllm[1].MsgpackEncoder()
    decoder = vllm[1].MsgpackDecoder(vllm[0].LogprobsLists)
    with Replaced(vllm):
        ours = [[step.slice_request(at, 1) for step in (first, second)] for at in range(4)]
        encoder = vllm[1].MsgpackEncoder()
        for at in (3, 0, 2, 1):
            for of in (1, 0):
                assert same(decoder.decode(encoder.encode(ours[at][of])), own[at][of])
