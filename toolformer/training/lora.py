"""LoRA by peft: small adapters are trained, and merged into the saved weights.

The frozen weights may be bfloat16; adapters are float32, and so are the merged weights.
"""

from pathlib import Path
from typing import Any

import torch

from toolformer.errors import UserError, one_line


def with_adapters(model: Any, rank: int, alpha: int | None) -> Any:
    """The model with adapters on all linear layers but the output head, and on experts as peft maps them.

    Call this while the model is in main memory. UserError for a model without such layers, or whose adapters peft cannot run or
    merge.
    """
    from peft import LoraConfig, get_peft_model

    configuration = LoraConfig(
        r=rank,
        lora_alpha=alpha if alpha is not None else 2 * rank,
        lora_dropout=0.0,
        target_modules="all-linear",
        task_type="CAUSAL_LM",
    )
    try:
        adapted = get_peft_model(model, configuration)
        # Tried before the training, not after it; the adapters begin as zeros, which change no weight.
        with torch.no_grad():
            adapted(input_ids=torch.zeros(1, 2, dtype=torch.long), use_cache=False)
        adapted.merge_adapter()
        adapted.unmerge_adapter()
    except (ValueError, TypeError, AttributeError, RuntimeError) as cause:
        raise UserError(
            f"trainer.lora_rank: this model takes no adapters ({one_line(cause, 120)}); leave trainer.lora_rank out"
        ) from cause
    return adapted


def save_merged(model: Any, folder: Path) -> None:
    """Writes the model with its adapters merged, in float32; it ends with that, and leaves its memory to whatever reads the folder."""
    merged = model.to("cpu").float().merge_and_unload()
    merged.save_pretrained(folder)
    merged.to("meta")
