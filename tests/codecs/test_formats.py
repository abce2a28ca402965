"""The formats of the codecs: hand-computed payloads, exact numbers of bytes, and payloads that are refused."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from run_helpers import assert_same_model

import fedtaco
from fedtaco import parameter
from fedtaco.codecs import Q4, Q8, RandK, Sign, Stream, TopK, parse_codec
from fedtaco.errors import InvalidInput

STREAM = Stream(seed=0, vector="train/update", round=1, client=0)
MODEL = 44_426
"""Number of parameters of the CNN for 28 x 28 images."""


def payload_bytes(spec, length=MODEL):
    return sum(part.nbytes for part in parse_codec(spec).encode(torch.randn(length), STREAM).values())


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("none", 177_704),
        ("q8", 44_774),
        ("q4", 22_561),
        ("topk:0.01", 8 * 445),
        ("topk:0.5", 4 * 22_213 + 5_554),
        ("randk:0.01", 4 * 445),
        ("sign", 5_558),
    ],
)
def test_the_number_of_bytes_is_exact(spec, expected):
    assert payload_bytes(spec) == expected


def test_levels_of_a_bucket_are_those_of_its_own_scale():
    """In a bucket whose numbers are multiples of σ/S, nothing is rounded, whatever the random numbers are."""
    for codec, highest in ((Q8(), 127), (Q4(), 7)):
        levels = torch.arange(-highest, highest + 1, dtype=torch.float64)
        vector = torch.cat([levels / highest * 0.5, torch.zeros(512 - len(levels)), levels / highest * 1e-6])
        payload = codec.encode(vector.double(), STREAM)
        assert payload["scales"].tolist() == [0.5, 1e-6]
        assert torch.allclose(codec.decode(payload, len(vector), STREAM), vector.double(), rtol=1e-12, atol=0)


@pytest.mark.parametrize(("codec", "levels"), [(Q8(), 127), (Q4(), 7)], ids=str)
def test_each_number_is_right_on_average(codec, levels):
    """The mean of R decoded numbers is within five standard deviations, each at most σ / (2S √R)."""
    vector, repeats = torch.randn(700, generator=torch.Generator().manual_seed(2), dtype=torch.float64), 1000
    streams = [Stream(0, "train/update", number, 0) for number in range(1, repeats + 1)]
    mean = torch.stack([codec.decode(codec.encode(vector, stream), 700, stream) for stream in streams]).mean(0)
    scales = codec.encode(vector, STREAM)["scales"].repeat_interleave(512)[:700]
    assert ((mean - vector).abs() <= 5 * scales / (2 * levels * repeats**0.5)).all()


def test_a_number_is_rounded_up_as_often_as_it_should_be():
    vector = torch.tensor([1.0, *[0.3 / 7] * 500])
    decoded = Q4().decode(Q4().encode(vector, STREAM), 501, STREAM)[1:]
    assert set((7 * decoded).round().tolist()) == {0, 1}
    assert 0.2 < float((decoded > 0).float().mean()) < 0.4


@pytest.mark.parametrize("ratio", [0.25, 0.03])
def test_topk_sends_the_largest_and_of_equal_ones_the_first(ratio):
    vector = torch.tensor([1.0, -4, 1, 3, -1, 1, 0, 0] * 20)
    payload = TopK(ratio).encode(vector, STREAM)
    decoded = TopK(ratio).decode(payload, 160, STREAM)
    if ratio == 0.25:
        assert torch.equal(decoded, vector.where(vector.abs() >= 3, torch.zeros(160)))
        assert payload["places"].dtype == torch.uint8
    else:
        assert decoded.nonzero().flatten().tolist() == [1, 9, 17, 25, 33]
        assert payload["places"].tolist() == [1, 9, 17, 25, 33]


def test_randk_shares_its_coordinates_over_clients_but_not_over_rounds():
    first, other, later = (Stream(0, "train/update", number, client) for number, client in ((1, 0), (1, 5), (2, 0)))
    vector = torch.ones(1000)
    one, two, three = (RandK(0.1).decode(RandK(0.1).encode(vector, s), 1000, s) for s in (first, other, later))
    assert torch.equal(one, two)
    assert not torch.equal(one, three)
    assert one.unique().tolist() == [0, 10] and int((one > 0).sum()) == 100


def test_the_error_of_signs_is_that_of_the_formula():
    vector = torch.randn(1001, dtype=torch.float64)
    decoded = Sign().decode(Sign().encode(vector, STREAM), 1001, STREAM)
    expected = vector.square().sum() - vector.abs().sum() ** 2 / 1001
    assert (vector - decoded).square().sum() == pytest.approx(float(expected), rel=1e-12)


def changed(codec, length=100, **parts):
    """Return the error for a payload of which some parts are replaced by functions of the honest ones."""
    payload = dict(codec.encode(torch.arange(1.0, length + 1), STREAM))
    payload |= {name: change(payload[name].clone()) for name, change in parts.items()}
    with pytest.raises(ValueError, match=r"\w") as caught:
        codec.decode(payload, length, STREAM)
    return str(caught.value)


def set_first(value):
    return lambda tensor: tensor.index_fill_(0, torch.tensor([0]), value)


def set_last(value):
    return lambda tensor: tensor.index_fill_(0, torch.tensor([len(tensor) - 1]), value)


def test_payloads_that_nobody_would_send_are_refused():
    assert changed(Q8(), levels=set_first(-128)) == "a level is above 127"
    assert changed(Q4(), levels=set_first(0)) == "a level is above 7"
    assert changed(Q4(), length=101, levels=set_last(0x81)) == "the unused bits are not empty"
    assert changed(Q8(), scales=set_first(-1.0)) == "a scale is negative"
    assert changed(Sign(), scale=set_first(-1.0)) == "the scale is negative"
    assert changed(Sign(), signs=set_last(255)) == "the unused bits are not empty"
    places = "its indices are not increasing numbers from 0 to 99"
    for change in (set_first(-1), set_last(100), set_last(2**31 - 1), lambda one: one.flip(0), lambda one: one * 0):
        assert changed(TopK(0.03), places=change) == places
    assert changed(TopK(0.5), places=set_first(255)) == "it marks 58 places for 50 values"
    assert changed(TopK(0.5), places=set_last(255)) == "the unused bits are not empty"


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ("zip", r"There is no codec 'zip'.* Known: none, q4, q8, randk, sign, topk\."),
        ("topk:2", r"topk.ratio is 2.0; it must be a number above 0 and at most 1\."),
        ("randk:0", r"randk.ratio is 0.0; it must be a number above 0 and at most 1\."),
        ("topk:nan", r"topk.ratio is nan; it must be"),
        ("topk:much", r"compress is 'topk:much', which is not valid; write it as 'topk:0.1'\."),
        ("topk:0.1:0.2", r"compress is 'topk:0.1:0.2', which is not valid; write it as 'topk:0.1'\."),
        ("q8:0.1", r"compress is 'q8:0.1', which is not valid; write it as 'q8'\."),
        ("nowhere:Codec", r"Cannot import 'nowhere' for the codec 'nowhere:Codec'"),
        ("", r"There is no codec ''"),
    ],
)
def test_what_is_not_a_codec_is_explained(spec, sentence):
    with pytest.raises(InvalidInput, match=sentence):
        parse_codec(spec)


@pytest.mark.parametrize("spec", ["none", "q8", "topk:0.05", "randk:0.123456789", "sign"])
def test_the_text_of_a_codec_describes_it(spec):
    assert str(parse_codec(spec)) == spec


def test_codecs_are_given_as_objects_classes_or_text(tmp_path):
    quick = {"dataset": "digits", "clients": 6, "rounds": 2, "local_steps": 2, "engine": "serial"}
    by_text = fedtaco.run("fedavg", compress="topk:0.2", **quick)
    by_object = fedtaco.run("fedavg", compress=TopK(ratio=0.2), out=tmp_path / "run", **quick)
    assert_same_model(by_text.model, by_object.model)
    assert fedtaco.load(tmp_path / "run").summary["compress"] == "topk:0.2"
    assert_same_model(
        fedtaco.run("fedavg", compress=Q8, **quick).model, fedtaco.run("fedavg", compress="q8", **quick).model
    )


def test_a_codec_with_another_parameter_than_a_ratio_is_refused():
    @dataclass(frozen=True)
    class Coarse(Q8):
        name, summary = "coarse", "has a parameter that its text cannot contain"
        step: float = parameter(0.1, "size of a step", low=0)

    with pytest.raises(InvalidInput, match="The codec coarse has the parameter 'step'"):
        fedtaco.run("fedavg", compress=Coarse(), dataset="digits", rounds=1, local_steps=1)
