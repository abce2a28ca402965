"""Every codec fulfils the contract; a codec that breaks a rule is found out."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch
from sketches import Rounded

from fedtaco.codecs import CODECS, Q8, Codec, NoCodec, RandK, TopK
from fedtaco.testing import CODEC_CONTRACT, check_codec

SUBJECTS = [*(cls() for cls in CODECS.values()), TopK(0.01), TopK(1), RandK(0.5), RandK(1), Rounded()]


@pytest.mark.parametrize("check", CODEC_CONTRACT, ids=lambda check: check.__name__)
@pytest.mark.parametrize("codec", SUBJECTS, ids=str)
def test_codec_fulfils_the_contract(codec, check):
    check(codec)


@dataclass(frozen=True)
class Broken(NoCodec):
    name = "broken"


class Truncated(Broken):
    """Rounds towards zero and claims to be unbiased."""

    noise = 1.0

    def decode(self, payload, length, stream):
        return payload["numbers"].trunc()


class Understated(Q8):
    noise = 1e-9


class OfTheValues(Broken):
    def encode(self, vector, stream):
        return {"numbers": vector[vector != 0]}

    def decode(self, payload, length, stream):
        return payload["numbers"].new_zeros(length)


class Doubled(Broken):
    error_feedback = True
    noise = 1.0

    def decode(self, payload, length, stream):
        return 2.5 * payload["numbers"]


class Unseeded(Broken):
    def encode(self, vector, stream):
        return {"numbers": vector * (1 + 1e-6 * torch.randn(1, dtype=vector.dtype))}


class Cleaning(Broken):
    def decode(self, payload, length, stream):
        return payload["numbers"].nan_to_num()


class Single(Broken):
    def decode(self, payload, length, stream):
        return payload["numbers"].float()


@pytest.mark.parametrize(
    ("codec", "complaint"),
    [
        (Truncated(), "wrong on average"),
        (Understated(), "above what noise states"),
        (OfTheValues(), "the form of a payload depends on the values"),
        (Doubled(), "the error is longer than noise states"),
        (Unseeded(), "encoding a vector twice gives two payloads"),
        (Cleaning(), "decoded as finite numbers"),
        (Single(), "numbers of torch.float64 become"),
    ],
    ids=lambda one: type(one).__name__,
)
def test_a_codec_that_breaks_a_rule_is_found_out(codec, complaint):
    with pytest.raises(AssertionError, match=complaint):
        check_codec(codec)


def test_a_codec_without_hooks_is_explained():
    @dataclass(frozen=True)
    class Empty(Codec):
        name, summary = "empty", "does nothing"

    with pytest.raises(AssertionError, match=r"Empty is a codec and must define encode\(\)"):
        check_codec(Empty())


def test_codecs_are_frozen():
    assert replace(TopK(0.5), ratio=0.25) == TopK(0.25)
