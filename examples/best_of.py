"""Rejection sampling by gain: writes the best of several sampled calculator calls into each text, and keeps what gains enough.

    python examples/best_of.py MODEL TEXTS KEPT

TEXTS is a JSONL file of texts with worked sums; KEPT becomes one of texts with calls, as plain text, for any trainer. See
examples/reward.py for the reward.
"""

import json
import sys

from reward import places, rewards
from transformers import AutoModelForCausalLM, AutoTokenizer

from toolformer import Toolformer
from toolformer.tools.calculator import calculate

SAMPLES, THRESHOLD = 8, 0.5
"""Calls per position, and the gain in nats that the best one must reach (τ_f of the calculator in the paper)."""


def main(model: str, texts: str, path: str, samples: int = SAMPLES, threshold: float = THRESHOLD) -> None:
    scorer = Toolformer.from_pretrained(model, ["tools=[calculator]"])
    tokenizer, sampler = (
        AutoTokenizer.from_pretrained(model),
        AutoModelForCausalLM.from_pretrained(model, dtype="float32"),
    )
    kept = 0
    with open(path, "w", encoding="utf-8") as file:
        for place in places(texts):
            prompt = tokenizer(place["prompt"], return_tensors="pt")
            sampled = sampler.generate(**prompt, do_sample=True, max_new_tokens=16, num_return_sequences=samples, pad_token_id=tokenizer.eos_token_id)  # fmt: skip
            completions = tokenizer.batch_decode(
                sampled[:, prompt["input_ids"].shape[1] :], skip_special_tokens=True
            )
            gains = rewards(scorer, completions, [place["text"]] * samples, [place["position"]] * samples)
            gain, best = max(zip(gains, completions, strict=True))
            if gain >= threshold:
                expression, position = best.partition(")]")[0], place["position"]
                call = f" [Calculator({expression}) -> {calculate(expression)}]"
                text = place["text"][:position] + call + place["text"][position:]
                file.write(json.dumps({"text": text, "gain": gain}, ensure_ascii=False) + "\n")
                kept += 1
    print(f"{kept} calls kept")


if __name__ == "__main__":
    main(*sys.argv[1:])
