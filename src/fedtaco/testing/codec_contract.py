"""The contract of codecs: one function per rule, whose docstring states the rule."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from fedtaco.codecs import Codec, Stream
from fedtaco.methods import NamedTensors, Scaffold, Taco
from fedtaco.testing.checks import assert_same, run_checks
from fedtaco.testing.engines import ReversedEngine, through_bytes
from fedtaco.testing.small_federation import final_state

LENGTHS = (1, 7, 512, 1301)
"""Lengths of the vectors on which codecs are checked."""
REPEATS = 400
"""Number of times a vector is encoded where the mean is checked."""
DEVIATIONS = 5
"""Number of standard deviations by which a mean may differ from what is expected."""
ROUNDING = 1e-12


def check_codec(codec: Codec) -> None:
    """Check that a codec fulfils the contract of codecs.

    Parameters
    ----------
    codec
        The codec to check, with the parameters it is to be checked with.

    Raises
    ------
    AssertionError
        If the codec breaks a rule; the message explains the first one.

    Examples
    --------
    >>> from fedtaco import TopK
    >>> check_codec(TopK(ratio=0.2))
    """
    run_checks(CODEC_CONTRACT, codec)


def vectors_keep_length_and_type(codec: Codec) -> None:
    """A decoded vector has the length and type of the encoded one, and a vector of zeros stays zero."""
    for dtype in (torch.float32, torch.float64):
        for vector in _vectors(dtype):
            decoded = _decoded(codec, vector)
            same = decoded.shape == vector.shape and decoded.dtype == vector.dtype
            assert same, f"{codec.name}: {len(vector)} numbers of {dtype} become {len(decoded)} of {decoded.dtype}"
            assert vector.any() or not decoded.any(), f"{codec.name}: a vector of zeros does not stay zero"


def payloads_have_a_fixed_form(codec: Codec) -> None:
    """Names, shapes and types of a payload depend on the length of the vector alone, and it survives the network."""
    for length in LENGTHS:
        forms = set()
        for vector in _vectors(torch.float32, length):
            payload = codec.encode(vector, _stream())
            forms.add(tuple(sorted((name, one.shape, one.dtype) for name, one in payload.items())))
            arrived = codec.decode(through_bytes(payload), length, _stream())
            same = torch.equal(arrived, codec.decode(payload, length, _stream()))
            assert same, f"{codec.name}: sending a payload as bytes changes it"
        assert len(forms) == 1, f"{codec.name}: the form of a payload depends on the values of the vector"


def random_numbers_come_from_the_stream(codec: Codec) -> None:
    """The same stream gives the same payload, and vectors are not changed."""
    for vector in _vectors(torch.float64):
        before = vector.clone()
        first, second = (codec.encode(vector, _stream()) for _ in range(2))
        same = all(torch.equal(first[name], second[name]) for name in first)
        assert same, f"{codec.name}: encoding a vector twice gives two payloads"
        assert torch.equal(vector, before), f"{codec.name}: encoding changes the vector"


def broken_uploads_are_recognised(codec: Codec) -> None:
    """If the numbers of a payload are NaN, so are some of the decoded vector, and the server drops it."""
    payload = codec.encode(torch.ones(LENGTHS[-1]), _stream())
    broken = {name: one * torch.nan if one.is_floating_point() else one for name, one in payload.items()}
    decoded = codec.decode(broken, LENGTHS[-1], _stream())
    assert not torch.isfinite(decoded).all(), f"{codec.name}: a payload of NaN is decoded as finite numbers"


def unbiased_codecs_are_right_on_average(codec: Codec) -> None:
    """Without error feedback, decoded vectors have the right mean, and the error that ``noise`` states."""
    if codec.error_feedback:
        return
    for vector in _vectors(torch.float64, LENGTHS[-1]):
        decoded = torch.stack([_decoded(codec, vector, number) for number in range(REPEATS)])
        errors = decoded - vector
        squares = errors.square().sum(1)
        deviation = math.sqrt(float(squares.mean()) / REPEATS)
        bias = float(torch.linalg.vector_norm(errors.mean(0)))
        is_unbiased = bias <= DEVIATIONS * deviation + ROUNDING
        assert is_unbiased, f"{codec.name}: decoded vectors are wrong on average, so it needs error feedback"
        slack = DEVIATIONS * float(squares.std()) / math.sqrt(REPEATS) + ROUNDING
        bound = codec.noise * float(vector.square().sum()) + slack
        assert squares.mean() <= bound, f"{codec.name}: the squared error is above what noise states"


def contractions_shrink_the_error(codec: Codec) -> None:
    """With error feedback, the error is always shorter than the vector, as ``noise`` states, at most 1."""
    if not codec.error_feedback:
        return
    assert codec.noise <= 1, f"{codec.name}: noise is {codec.noise:g}, so what is left out would grow"
    for vector in _vectors(torch.float64):
        error, total = (vector - _decoded(codec, vector)).square().sum(), vector.square().sum()
        assert error <= codec.noise * total + ROUNDING, f"{codec.name}: the error is longer than noise states"


def runs_are_reproducible(codec: Codec) -> None:
    """Neither a second run nor the order in which clients are run changes a result, and runs stay finite."""
    for method in (Taco(), Scaffold()):
        if codec.is_sparse and not codec.error_feedback and method.estimates_from is not None:
            continue
        first = final_state(method, codec=codec)
        assert torch.isfinite(first.server.weights).all(), f"{codec.name}: the model is not finite"
        assert_same(first, final_state(method, codec=codec), f"{codec.name}: two runs differ")
        backwards = final_state(method, codec=codec, engine=ReversedEngine)
        assert_same(first, backwards, f"{codec.name}: the order in which clients run changes the result")


CODEC_CONTRACT: tuple[Callable[[Codec], None], ...] = (
    vectors_keep_length_and_type,
    payloads_have_a_fixed_form,
    random_numbers_come_from_the_stream,
    broken_uploads_are_recognised,
    unbiased_codecs_are_right_on_average,
    contractions_shrink_the_error,
    runs_are_reproducible,
)


def _vectors(dtype: torch.dtype, *lengths: int) -> list[Tensor]:
    """Return random, one-hot, constant and zero vectors, and a random one with a few large numbers."""
    generator = torch.Generator().manual_seed(5)
    vectors = []
    for length in lengths or LENGTHS:
        random = torch.randn(length, generator=generator, dtype=torch.float64)
        one_hot = torch.zeros(length, dtype=torch.float64).index_fill_(0, torch.tensor([length // 2]), -3.0)
        constant, zero = torch.full_like(random, 0.25), torch.zeros_like(random)
        vectors += [one.to(dtype) for one in (random, one_hot, constant, zero, random**5)]
    return vectors


def _stream(client: int = 0) -> Stream:
    return Stream(seed=3, vector="train/update", round=client + 1, client=client)


def _decoded(codec: Codec, vector: Tensor, number: int = 0) -> Tensor:
    """Return a vector after compression, with random numbers that depend on ``number``."""
    stream = _stream(number)
    payload: NamedTensors = codec.encode(vector, stream)
    return codec.decode(payload, len(vector), stream)
