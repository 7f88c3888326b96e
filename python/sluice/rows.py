"""select, mask_, sample and topk: in C++ for arrays of the host, in sluice.tensors for CUDA tensors.

torch is loaded by nobody but the caller who passes a tensor of it.
"""

from sluice import _sluice


def _on_cuda():
    from sluice import tensors

    return tensors


def select(logits, params=None, **keywords):
    if getattr(logits, "is_cuda", False):
        return _on_cuda().select(logits, params, **keywords)
    return _sluice.select(logits, params, **keywords)


def mask_(logits, params=None, **keywords):
    if getattr(logits, "is_cuda", False):
        return _on_cuda().mask_(logits, params, **keywords)
    return _sluice.mask_(logits, params, **keywords)


def sample(logits, params=None, **keywords):
    if getattr(logits, "is_cuda", False):
        return _on_cuda().sample(logits, params, **keywords)
    return _sluice.sample(logits, params, **keywords)


def topk(scores, k, **keywords):
    if getattr(scores, "is_cuda", False):
        return _on_cuda().topk(scores, k, **keywords)
    return _sluice.topk(scores, k, **keywords)


for _function in (select, mask_, sample, topk):
    _function.__doc__ = getattr(_sluice, _function.__name__).__doc__
