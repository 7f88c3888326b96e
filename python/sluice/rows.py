"""What is in C++ for arrays of the host, and in sluice.tensors or device_head for CUDA tensors.

torch is loaded only when the caller passes a tensor of it.
"""

from textwrap import fill

from sluice import _sluice


def _on_cuda():
    from sluice import tensors

    return tensors


def _with_short_lines(doc):
    """The signature, its first paragraph, in lines that fit a screen."""
    signature, end, text = doc.partition("\n\n")
    return fill(signature, 96, subsequent_indent="    ", break_on_hyphens=False) + end + text


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


def dense_head(weight, hidden, **keywords):
    if getattr(weight, "is_cuda", False):
        from sluice import device_head

        return device_head.dense_head(weight, hidden, **keywords)
    return _sluice.dense_head(weight, hidden, **keywords)


class CertifiedHead(_sluice.CertifiedHead):
    __doc__ = _sluice.CertifiedHead.__doc__

    def __new__(cls, weight=None, *arguments, **keywords):
        if getattr(weight, "is_cuda", False):
            from sluice.device_head import DeviceCertifiedHead

            return DeviceCertifiedHead(weight, *arguments, **keywords)
        return super().__new__(cls)


for _function in (select, mask_, sample, topk, dense_head):
    _function.__doc__ = _with_short_lines(getattr(_sluice, _function.__name__).__doc__)
