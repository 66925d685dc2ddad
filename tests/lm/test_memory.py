"""Sizes of batches: by the device, and half of one when its memory is full."""

import pytest
import torch

from toolformer.errors import UserError
from toolformer.lm.memory import BatchSize, batch_rows, batch_tokens


def test_batches_follow_the_device() -> None:
    assert [batch_tokens(device) for device in ("cpu", "cuda", "cuda:1")] == [2048, 8192, 8192]
    assert [batch_rows(torch.device(device)) for device in ("cpu", "cuda:1")] == [32, 64]


def test_a_size_is_halved_once(caplog: pytest.LogCaptureFixture) -> None:
    size = BatchSize("engine.batch_tokens", 2048)
    tried: list[int] = []

    def work() -> int:
        tried.append(size.value)
        if size.value > 1000:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return size.value

    with pytest.raises(UserError, match=r"full at engine.batch_tokens=1024; .* set a lower number"):
        size.attempt(work)
    assert tried == [2048, 1024]
    assert caplog.messages == ["the GPU's memory is full; going on with engine.batch_tokens=1024"]
