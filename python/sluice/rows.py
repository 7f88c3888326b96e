"""The calls that C++ has for arrays of the host, and sluice.tensors or device_head for CUDA tensors.

torch is loaded only when the caller passes a tensor of it.
"""

import re

from sluice import _sluice


def _on_cuda():
    from sluice import tensors

    return tensors


def _arguments(doc):
    """The names and defaults of a signature, without its types: "(logits, *, seed=None)"."""
    kept, depth, is_type = [], 0, False
    for part in re.split(r"(: | = |, |[\[\](){}])", doc[doc.index("(") + 1 :]):
        if depth == 0 and part in (", ", " = ", ")", ": "):
            is_type = part == ": "
            if part != ": ":
                kept.append(part.replace(" = ", "="))
            if part == ")":
                return "(" + "".join(kept)
        elif not is_type:
            kept.append(part)
        depth += (part in tuple("[({")) - (part in tuple("])}"))


def _describe(function, of):
    """Gives a function the text and the arguments that nanobind wrote for its twin in C++."""
    signature, _, text = of.__doc__.partition("\n\n")
    function.__text_signature__ = _arguments(signature)  # read by help() and inspect.signature()
    if text:
        function.__doc__ = text


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
    _describe(_function, getattr(_sluice, _function.__name__))
_describe(CertifiedHead.__new__, _sluice.CertifiedHead.__init__)
