"""The filter of scored calls, from the configuration."""

from toolformer.annotation.merge import Chance
from toolformer.annotation.results import KeepRules
from toolformer.errors import UserError
from toolformer.jobs import instantiate
from toolformer.jobs.config import Config


def thresholds(config: Config) -> dict[str, float]:
    """τ_f, the gain in nats that a call must reach, of each tool in use."""
    return {key: instantiate.tool_settings(config, key).filter_threshold for key in config.tools}


def rules(config: Config) -> KeepRules:
    """How scored calls are filtered. UserError for a tool that is not in use, or a probability above 1."""
    shares = dict(config.filter.chance or {})
    if unknown := sorted(set(shares) - set(config.tools)):
        raise UserError(
            f"filter.chance.{unknown[0]}: {unknown[0]} is not among tools={','.join(config.tools)}"
        )
    if wrong := next((tool for tool, share in shares.items() if not 0 <= share <= 1), None):
        raise UserError(f"filter.chance.{wrong} is {shares[wrong]:g}; a probability is from 0 to 1")
    return KeepRules(
        thresholds(config), config.filter.baseline, config.filter.leak == "drop", Chance(shares, config.seed)
    )
