"""Sweeps as Hydra writes them: `decoding.k=0,1,3,10` on the command line, hydra.sweeper.params in an experiment."""

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException

from toolformer.errors import UsageError, UserError
from toolformer.stages.config.composition import as_typed, compose
from toolformer.stages.config.messages import one_line

_OF_HYDRA = re.compile(r"[+~]*hydra[./@=:](?!searchpath=)")  # every job finds the user's own files

_EXTRAS = {"joblib": "launchers", "submitit": "launchers", "ray": "ray"}
"""The extra that installs each launcher's plugin."""


@dataclass(frozen=True)
class Sweep:
    """A command line, taken apart."""

    fixed: tuple[str, ...]
    """Overrides that every job has."""
    choices: Mapping[str, Sequence[str]]
    """Keys with the overrides that they are swept over, of the command line and of the experiment."""
    of_hydra: tuple[str, ...]
    """Overrides of Hydra itself: the launcher and its settings."""

    def jobs(self, stage: str, stages: Mapping[str, Sequence[str]]) -> list[list[str]]:
        """The overrides of each job of a stage; what `stages` claims for other stages is not swept over."""
        elsewhere = {key for keys in stages.values() for key in keys} - set(stages.get(stage, ()))
        chosen = [values for key, values in self.choices.items() if key not in elsewhere]
        return [[*self.fixed, *job] for job in itertools.product(*chosen)]


def parse(stage: str, overrides: Sequence[str]) -> Sweep:
    """The sweep that overrides and their experiment describe; the command line goes before the experiment.

    UserError for a broken override, or a launcher that is not installed.
    """
    overrides = [as_typed(word) for word in overrides]
    of_hydra = tuple(filter(_OF_HYDRA.match, overrides))
    _check_launcher(of_hydra)
    fixed, choices = _taken_apart([word for word in overrides if word not in of_hydra])
    params = compose(stage, [*fixed, *of_hydra], with_hydra=True).hydra.sweeper.get("params") or {}
    kept, swept = _taken_apart([f"{key}={value}" for key, value in params.items()])
    swept |= {word.partition("=")[0]: [word] for word in kept}
    for word in fixed:
        swept.pop(word.lstrip("+~").partition("=")[0], None)
    return Sweep(tuple(fixed), swept | choices, of_hydra)


def _check_launcher(of_hydra: Sequence[str]) -> None:
    """Hydra's own message names no package, and of Ray's launcher there is none before the first job."""
    chosen = dict(word.partition("=")[::2] for word in of_hydra).get("hydra/launcher", "")
    plugin = {"slurm": "submitit"}.get(chosen, chosen.partition("_")[0])
    there = find_spec("hydra_plugins") and find_spec(f"hydra_plugins.hydra_{plugin}_launcher")
    if plugin in _EXTRAS and not there:
        extra = _EXTRAS[plugin]
        more = " and pip install --no-deps hydra-ray-launcher==1.2.2" if plugin == "ray" else ""
        raise UserError(
            f"hydra/launcher={chosen} is not installed: pip install -e '.[{extra}]' (or make setup EXTRA={extra}){more}"
        )


def _taken_apart(overrides: Sequence[str]) -> tuple[list[str], dict[str, list[str]]]:
    try:
        parsed = OverridesParser.create().parse_overrides(list(overrides))
    except HydraException as error:
        raise UsageError(one_line(error)) from error
    fixed, choices = [], {}
    for override, text in zip(parsed, overrides, strict=True):
        if override.is_discrete_sweep():
            key = override.get_key_element()
            choices[key] = [f"{key}={value}" for value in override.sweep_string_iterator()]
        elif override.is_sweep_override():
            raise UsageError(f"{text}: a sweep needs its values one by one, as KEY=1,2,3")
        else:
            fixed.append(text)
    return fixed, choices
