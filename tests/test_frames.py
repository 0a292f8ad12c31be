"""The call stack from `fit` to the compiled kernel stays short."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from scipy import sparse

from dropmargin import DropoutSVC
from dropmargin.data import kernels

MOST_FRAMES = 13


@pytest.mark.skipif(not kernels.available(), reason="the kernels were not built: no C compiler")
def test_frames_from_fit_to_the_kernel(monkeypatch):
    stacks = []
    original = kernels.CSRKernels.coupled

    def recorded(self, *args):
        frame, names = sys._getframe(), []
        while frame is not None:
            names.append(frame.f_code.co_name)
            if names[-1] == "fit":
                break
            frame = frame.f_back
        stacks.append(names)
        return original(self, *args)

    monkeypatch.setattr(kernels.CSRKernels, "coupled", recorded)
    rng = np.random.default_rng(0)
    X = sparse.csr_array(rng.poisson(0.3, (300, 400)).astype(float))
    DropoutSVC(noise=0.5).fit(X, rng.integers(0, 2, 300))
    assert stacks
    assert max(len(names) for names in stacks) <= MOST_FRAMES, max(stacks, key=len)
