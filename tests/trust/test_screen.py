"""Screening: uploads whose norm is not finite."""

from __future__ import annotations

import torch

from fedtaco.trust import finite_rows


def test_upload_with_an_overflowing_norm_is_not_finite():
    uploads = torch.ones(3, 4)
    uploads[1] = 1e30
    assert finite_rows({"update": uploads}).tolist() == [True, False, True]


def test_every_tensor_of_an_upload_must_be_finite():
    buffers = torch.ones(3, 2)
    buffers[2, 1] = torch.nan
    assert finite_rows({"update": torch.ones(3, 4), "buffers": buffers}).tolist() == [True, True, False]
