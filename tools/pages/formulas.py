"""Formulas as MathML, which browsers draw without a script and without fonts from elsewhere."""

from __future__ import annotations

import re

from latex2mathml.converter import convert

_PRIMED = re.compile(r"<msup>(<mi>[^<]*</mi>)<mi>&#x02032;</mi></msup>")


def mathml(latex: str, display: str = "inline") -> str:
    """A formula of LaTeX; ``display`` is inline or block.

    A prime is high by itself. As a superscript it cannot be read where there is no font for formulas.
    """
    return _PRIMED.sub(r"<mrow>\1<mi>&#x02032;</mi></mrow>", convert(latex, display=display))
