"""Compression of uploads: what a client sends, what the server uses of it, and what the client remembers.

Between a method's ``finish`` and the server, each uploaded vector with the size of the model passes through the codec::

    v = vector + residual            if the codec has error feedback
    payload = encode(v)              what is sent
    vector as it is used = decode(payload)
    residual = v - decode(payload)

Residuals are part of the client's memory. Like the rest of it, they stay as they were if the client is absent or its
upload is not used, and are zero if the memory is lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from time import perf_counter

import torch
from torch import Tensor

from fedtaco.client import dry_run
from fedtaco.codecs import Codec, Stream
from fedtaco.cohort import ClientJob, ClientResult, CohortResults, Instructions
from fedtaco.methods import Constants, Method, NamedTensors
from fedtaco.models import split_memory
from fedtaco.settings.run_spec import RunSpec

RESIDUAL = "residual/"
"""Prefix of the names under which a client's memory holds what a codec left out."""


@dataclass(frozen=True)
class CompressedUpload:
    """One client's upload after compression."""

    payload: NamedTensors
    """What is sent; the parts of a vector are named ``vector/part``."""
    upload: NamedTensors
    """The upload as it is used."""
    memory: NamedTensors
    """What the client remembers after the round."""


@dataclass(frozen=True)
class Compression:
    """Compresses the uploads of a run."""

    spec: RunSpec
    constants: Constants

    @property
    def method(self) -> Method:
        """The method whose uploads are compressed."""
        return self.spec.method

    @property
    def codec(self) -> Codec:
        """How vectors are encoded."""
        return self.spec.codec

    def initial_residuals(self, instructions: Instructions, memory: NamedTensors) -> NamedTensors:
        """Return the residuals before a client's first round; ``memory`` is the rest of its memory."""
        if not self.codec.error_feedback or instructions.phase == "survey":
            return {}
        upload, _ = dry_run(self.method, instructions, self.constants, memory)
        vectors = {name: vector for name, vector in upload.items() if self._encodes(vector, instructions)}
        return {f"{RESIDUAL}{name}": torch.zeros_like(one) for name, one in vectors.items() if self._feeds_back(name)}

    def compress(
        self, instructions: Instructions, job: ClientJob, upload: NamedTensors, memory: NamedTensors
    ) -> CompressedUpload:
        """Compress one client's upload.

        Parameters
        ----------
        instructions, job
            What the client was asked; the job's memory is that before the round, with residuals.
        upload, memory
            The upload and the client's new memory, as the method's ``finish`` returned them.
        """
        if self.codec.is_lossless:
            return CompressedUpload(upload, upload, memory)
        payload, used, residuals = self._encode(instructions, job.client, upload, job.memory)
        if instructions.phase == "train":
            own, _ = split_memory(job.memory)
            numbers = self.constants.in_round(instructions.round)
            local = instructions.context_without_samples(job.row, numbers, own, job.steps)
            memory = {**memory, **self.method.mirror(used, local), **residuals}
        return CompressedUpload(payload, used, memory)

    def compress_cohort(self, instructions: Instructions, jobs: Sequence[ClientJob], results: CohortResults) -> int:
        """Compress the uploads of a cohort, in place, and return the number of bytes that the clients send.

        ``jobs`` are in the order of the rows of ``results``. The time it takes counts as the client's.
        """
        total = results.buffers.nbytes
        if self.codec.is_lossless:
            return total + sum(matrix.nbytes for matrix in results.vectors.values())
        for job in jobs:
            started = perf_counter()
            upload = {name: matrix[job.row] for name, matrix in results.vectors.items()}
            compressed = self.compress(instructions, job, upload, results.memories[job.client])
            for name, tensor in compressed.upload.items():
                results.vectors[name][job.row] = tensor
            results.memories[job.client] = compressed.memory
            total += sum(tensor.nbytes for tensor in compressed.payload.values())
            seconds = results.seconds[job.client]
            if seconds is not None:
                results.seconds[job.client] = seconds + perf_counter() - started
        return total

    def compress_result(self, instructions: Instructions, job: ClientJob, result: ClientResult) -> ClientResult:
        """Return what a client on another machine sends and remembers; its upload is the payload."""
        started = perf_counter()
        compressed = self.compress(instructions, job, result.upload, result.memory)
        seconds = None if result.seconds is None else result.seconds + perf_counter() - started
        return replace(result, upload=compressed.payload, memory=compressed.memory, seconds=seconds)

    def payload_template(self, instructions: Instructions, upload: NamedTensors) -> NamedTensors:
        """Return the payload of an upload of zeros: names, shapes and types of what honest clients send."""
        zeros = {name: torch.zeros_like(tensor, device="cpu") for name, tensor in upload.items()}
        payload, _, _ = self._encode(instructions, 0, zeros, {f"{RESIDUAL}{name}": one for name, one in zeros.items()})
        return payload

    def decompress(
        self, instructions: Instructions, client: int, payload: NamedTensors, template: NamedTensors
    ) -> NamedTensors:
        """Return an upload as it is used; ``template`` contains the names, shapes and types of uploads.

        Raises
        ------
        ValueError
            If no client that follows the codec could have sent the payload.
        """
        upload = {}
        for name, tensor in template.items():
            if self._encodes(tensor, instructions):
                prefix = f"{name}/"
                parts = {key.removeprefix(prefix): one for key, one in payload.items() if key.startswith(prefix)}
                upload[name] = self.codec.decode(parts, len(tensor), self._stream(name, instructions, client))
            else:
                upload[name] = payload[name]
        return upload

    def _encode(
        self, instructions: Instructions, client: int, upload: NamedTensors, memory: NamedTensors
    ) -> tuple[NamedTensors, NamedTensors, NamedTensors]:
        """Return the payload of an upload, the upload as it is used, and the new residuals."""
        payload: dict[str, Tensor] = {}
        used: dict[str, Tensor] = {}
        residuals: dict[str, Tensor] = {}
        for name, tensor in upload.items():
            if not self._encodes(tensor, instructions):
                payload[name] = used[name] = tensor
                continue
            key, stream = f"{RESIDUAL}{name}", self._stream(name, instructions, client)
            wanted = tensor + memory[key] if self._feeds_back(name) else tensor
            parts = self._encode_vector(wanted, stream)
            payload |= {f"{name}/{part}": encoded for part, encoded in parts.items()}
            used[name] = self.codec.decode(parts, len(wanted), stream)
            if self._feeds_back(name):
                residuals[key] = wanted - used[name]
        return payload, used, residuals

    def _encode_vector(self, vector: Tensor, stream: Stream) -> NamedTensors:
        """Return the payload of a vector; that of one that is not finite contains NaN, so that the server drops it."""
        if torch.isfinite(vector).all():
            return self.codec.encode(vector, stream)
        parts = self.codec.encode(torch.zeros_like(vector), stream)
        return {name: one * torch.nan if one.is_floating_point() else one for name, one in parts.items()}

    def _encodes(self, tensor: Tensor, instructions: Instructions) -> bool:
        """Return whether an uploaded tensor is encoded: small ones, such as single numbers, are sent as they are."""
        return not self.codec.is_lossless and tensor.shape == instructions.broadcast.start.shape

    def _feeds_back(self, name: str) -> bool:
        return self.codec.error_feedback and name != self.method.estimates_from

    def _stream(self, name: str, instructions: Instructions, client: int) -> Stream:
        return Stream(self.spec.settings["seed"], f"{instructions.phase}/{name}", instructions.round, client)


def without_residuals(job: ClientJob) -> ClientJob:
    """Return the job as engines and methods see it."""
    rest = {name: one for name, one in job.memory.items() if not name.startswith(RESIDUAL)}
    return replace(job, memory=rest) if len(rest) < len(job.memory) else job
