"""GGUF file -> a folder that AutoModelForCausalLM and AutoTokenizer load: safetensors in float32, fast tokenizer.

Runs as a separate process (`python -m toolformer.data.assets.convert FILE.gguf FOLDER [--bos]`), so that the memory of the
conversion, three times the float32 weights, is returned to the system.
"""

import functools
import sys
from pathlib import Path
from typing import Any


def add_bos(tokenizer: Any) -> None:
    """Makes a fast tokenizer begin every text with its BOS token, also after saving and loading.

    Gemma needs it: without BOS its perplexity on plain English is about 70 times higher.
    """
    from tokenizers.processors import TemplateProcessing

    if tokenizer("x").input_ids[:1] == [tokenizer.bos_token_id]:
        return
    bos = tokenizer.bos_token
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single=f"{bos} $A", pair=f"{bos} $A {bos} $B", special_tokens=[(bos, tokenizer.bos_token_id)]
    )


def convert(gguf_file: Path, folder: Path, bos: bool) -> None:
    """Dequantises to float32 and saves; `bos`: the tokenizer begins every text with BOS.

    Not bfloat16: 4-bit weights times their scales do not fit into its 8 bits.
    """
    import gguf
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    # Transformers parses the file three times, for tokenizer, configuration and weights, half a minute each.
    gguf.GGUFReader = functools.lru_cache(gguf.GGUFReader)  # type: ignore[misc, assignment]
    source, name = str(gguf_file.parent), gguf_file.name
    tokenizer = AutoTokenizer.from_pretrained(source, gguf_file=name)
    if bos:
        add_bos(tokenizer)
    tokenizer.save_pretrained(folder)
    model: Any = AutoModelForCausalLM.from_pretrained(source, gguf_file=name, dtype=torch.float32)
    # Transformers treats the dequantised model as quantised and refuses to save it.
    model.hf_quantizer = None
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.save_pretrained(folder)


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]), bos="--bos" in sys.argv[3:])
