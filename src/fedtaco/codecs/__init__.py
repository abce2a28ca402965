"""Codecs: compression of uploads, which combines with every method."""

from collections.abc import Sequence
from typing import Any

from fedtaco.codecs.base import NO_CODEC, Codec, NoCodec, Stream
from fedtaco.codecs.q4 import Q4
from fedtaco.codecs.q8 import Q8
from fedtaco.codecs.randk import RandK
from fedtaco.codecs.sign import Sign
from fedtaco.codecs.topk import TopK
from fedtaco.errors import InvalidInput
from fedtaco.parameters import domains
from fedtaco.registry import Registry

CODECS: Registry[Codec] = Registry(Codec, [NoCodec, Q8, Q4, TopK, RandK, Sign])
"""Every registered codec by name."""


def parse_codec(spec: str | Codec | type[Codec], allowed: Sequence[str] | None = None) -> Codec:
    """Return a codec from an instance, a class, or a text that describes it.

    Parameters
    ----------
    spec
        The setting ``compress``. As a text, ``name`` or ``name:ratio``, where the name of a user's own codec is
        ``package.module:Class``.
    allowed
        The own codecs that may be imported; any by default.

    Returns
    -------
    Codec
        The codec with this ratio.

    Raises
    ------
    InvalidInput
        If there is no such codec, it has no ratio, or the ratio is not valid.

    Examples
    --------
    >>> parse_codec("topk:0.01")
    TopK(ratio=0.01)
    """
    if not isinstance(spec, str):
        return CODECS.instance(spec)
    name, options = CODECS.split_options(spec)
    if ":" in name and allowed is not None and name not in allowed:
        raise InvalidInput(f"compress is '{spec}', and the codec '{name}' is not one of fedtaco's and is not allowed.")
    codec = CODECS.find(name)
    if not options:
        return codec()
    try:
        (ratio,) = map(float, options)
    except ValueError:
        ratio = None
    if ratio is None or "ratio" not in domains(codec):
        form = f"'{name}:0.1'" if "ratio" in domains(codec) else f"'{name}'"
        raise InvalidInput(f"compress is '{spec}', which is not valid; write it as {form}.")
    parameters: dict[str, Any] = {"ratio": ratio}
    return codec(**parameters)


def codec_text(codec: Codec) -> str:
    """Return the text for which :func:`parse_codec` returns this codec, if its class can be imported.

    Raises
    ------
    InvalidInput
        If the codec has a parameter that the text cannot contain.
    """
    for name in domains(codec):
        if name != "ratio":
            raise InvalidInput(f"The codec {codec.name} has the parameter '{name}'; a codec may only have a ratio.")
    return CODECS.spec(codec) + str(codec).removeprefix(codec.name)


__all__ = [
    "CODECS",
    "NO_CODEC",
    "Q4",
    "Q8",
    "Codec",
    "NoCodec",
    "RandK",
    "Sign",
    "Stream",
    "TopK",
    "codec_text",
    "parse_codec",
]
