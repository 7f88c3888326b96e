"""Does a sampler keep what it promises? Checks of exact sets, ties, masks, draws, seeds and batches.

    python -m sluice.conformance --sampler torch
    python -m sluice.conformance --sampler my_package:sample --html card.html

A sampler is a function of rows of logits. It is held to a definition in this package that shares no
code with Sluice's own (definition.py), so Sluice is checked as the others are.
"""

from sluice.conformance.checks import CHECKS, run
from sluice.conformance.samplers import NAMES, load

__all__ = ["CHECKS", "NAMES", "load", "run"]
