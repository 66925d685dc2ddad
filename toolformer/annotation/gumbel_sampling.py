"""Random draws of tokens that their key alone decides.

A token is the one with the largest p_i / E_i, where the E_i are exponential random numbers (the Gumbel-max trick). To
invert the distribution function would draw from the same distribution, but all of its thousands of steps move when one
logit is rounded otherwise: of two ways to compute the same logits in float32, one in five hundred draws would give another
token, against two in a million here (measured with SmolLM2-135M). So the calls stay the same in batches of another shape.
"""

import hashlib

import numpy as np
import torch

# The finalizer of SplitMix64 (Steele, Lea and Flood, 2014), in torch's signed integers: they wrap around as unsigned do.
_GAMMA = 0x9E3779B97F4A7C15 - 2**64
_FIRST = 0xBF58476D1CE4E5B9 - 2**64
_SECOND = 0x94D049BB133111EB - 2**64
_ENTRIES_AT_ONCE = {"cpu": 210_000}
"""By device, elsewhere 6.4 million: an entry of the vocabulary takes some forty bytes per draw, which should fit a CPU's cache."""


def draw_keys(seed: int, document: str, tool: str, position: int, sample: int, count: int) -> np.ndarray:
    """[count] int64: the keys of a sample's first, second, ... draw; they depend on nothing else."""
    key = f"{seed}|{document}|{tool}|{position}|{sample}".encode("utf-8", "surrogatepass")
    digest = hashlib.sha256(key).digest()
    generator = np.random.Philox(key=int.from_bytes(digest[:16], "big"))
    return generator.random_raw(count).astype(np.uint64).view(np.int64)


def draw(
    logits: torch.Tensor, keys: torch.Tensor, rows: torch.Tensor, temperature: float = 1.0
) -> torch.Tensor:
    """Tokens drawn from softmax(logits / temperature), the n-th from `logits[rows[n]]`.

    `logits` are [*, vocabulary], `keys` int64 [draws]; returns [draws]. Cheapest with `rows` in rising order.
    """
    tokens = []
    count = max(1, _ENTRIES_AT_ONCE.get(logits.device.type, 6_400_000) // logits.shape[-1])
    for some, of_some in zip(rows.split(count), keys.split(count), strict=True):
        first, last = int(some.min()), int(some.max())
        probabilities = (logits[first : last + 1].float() / temperature).softmax(-1)
        drawn = probabilities[some.to(logits.device) - first]
        tokens.append((drawn / exponentials(of_some.to(logits.device), logits.shape[-1])).argmax(-1))
    return torch.cat(tokens)


def exponentials(keys: torch.Tensor, size: int) -> torch.Tensor:
    """[draws, size] float64 with mean one: the i-th of a key is a hash of the key and i."""
    z = _mixed(torch.arange(size, device=keys.device) * _GAMMA) ^ keys[:, None]
    z = _mixed(z)
    # 53 bits, the middle of each step: neither zero nor one.
    uniform = ((z >> 11) & (2**53 - 1)).double().add_(0.5).mul_(2.0**-53)
    return uniform.log_().neg_()


def _mixed(z: torch.Tensor) -> torch.Tensor:
    z = z ^ _shifted(z, 30)
    z *= _FIRST
    z ^= _shifted(z, 27)
    z *= _SECOND
    z ^= _shifted(z, 31)
    return z


def _shifted(z: torch.Tensor, bits: int) -> torch.Tensor:
    """The unsigned shift to the right."""
    return (z >> bits).bitwise_and_(2 ** (64 - bits) - 1)
