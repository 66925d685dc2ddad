"""What only a GPU can show. Everything else that a GPU runs is tested on the CPU."""

from pathlib import Path

import pytest
import torch

from tests.conftest import taught_model
from tests.decoding.test_decoder import PIECES, tools
from tests.lm.test_static_steps import texts
from toolformer.decoding.decoder import Decoder
from toolformer.lm.language_model import LanguageModel
from toolformer.training import attention

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def test_documents_in_one_kernel_attend_as_one_by_one() -> None:
    for shape in ((4, 2, 64), (9, 3, 64), (8, 8, 128)):
        assert attention._kernel_problem(*shape, torch.bfloat16, torch.device("cuda")) is None


def test_replayed_graphs_continue_prompts_as_a_cpu_does(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    on_cpu = taught_model("llama", *PIECES)
    on_cpu.model.save_pretrained(tmp_path)
    on_cpu.tokenizer.save_pretrained(tmp_path)
    on_gpu = LanguageModel.from_pretrained(tmp_path, "float32", "cuda")
    on_gpu.use_graphs()
    documents = texts(PIECES[:3], 60)
    prompts = [document.text for document in documents]
    found = [
        Decoder(model, tools(), batch_size=16).complete(prompts, documents, max_new_tokens=12)
        for model in (on_cpu, on_gpu)
    ]
    assert found[0] == found[1]
    assert "CUDA graph" not in caplog.text
