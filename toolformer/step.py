"""A step: what is done with which settings and inputs, and the key that names its result.

One mechanism says what decides a result. Every field of the configuration is marked with the steps that it decides
(`Decides`), here `settings_of` collects them, and `Step.key` hashes them with the step's inputs. Code is represented by a
`VERSION` per step, raised by hand in the commit that changes results; a test pins the results of a small run.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from collections.abc import Collection, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Annotated, Any, get_args, get_origin, get_type_hints


@dataclasses.dataclass(frozen=True)
class Decides:
    """Marks a setting with the steps whose results it decides; none for a setting that decides no result.

    As metadata of a field's `Annotated` type; without it, what is said of the field that holds its dataclass; else the
    attribute `decides` of the dataclass that declares it.
    """

    steps: frozenset[str]

    def __init__(self, *steps: str) -> None:
        object.__setattr__(self, "steps", frozenset(steps))


NOTHING = Decides()


@dataclasses.dataclass(frozen=True)
class Step:
    """A unit of work, identified by everything that decides its result.

    Args:
        name: the kind of work, and the name of the folder that holds its results.
        version: of the code; raised when results change.
        settings: the settings that decide the result, nested as in the configuration.
        inputs: what the step reads, by name: other steps, lists of them, or content hashes.
    """

    name: str
    version: int
    settings: Mapping[str, Any]
    inputs: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __hash__(self) -> int:
        return hash(self._key)

    def key(self, without: Collection[str] = ()) -> str:
        """The name of the result, 16 hexadecimal digits.

        Args:
            without: settings (dotted, `*` for any part: `tool.*.filter_threshold`) and inputs to leave out, also from the
                steps that this one reads. Steps that are equal but for these have equal keys.
        """
        if not without:
            return self._key
        return _digest(self._parts(without))

    @functools.cached_property
    def _key(self) -> str:
        return _digest(self._parts(()))

    def _parts(self, without: Collection[str]) -> list[Any]:
        inputs = {
            name: _named(value, without)
            for name, value in self.inputs.items()
            if not _is_left_out(name, without)
        }
        return [self.name, self.version, _kept(self.settings, without), inputs]

    def steps(self) -> Iterator[Step]:
        """The steps that this one reads directly."""
        for value in self.inputs.values():
            yield from (part for part in _listed(value) if isinstance(part, Step))

    def flat(self) -> dict[str, Any]:
        """The settings by dotted key, also those of the steps that it reads: `train.trainer.max_steps`."""
        flat = dict(_dotted(self.settings))
        for part in self.steps():
            flat |= {f"{part.name}.{key}": value for key, value in part.flat().items()}
        return flat

    def find(self, name: str) -> Step | None:
        """The nearest step of this name that it was made from."""
        for part in self.steps():
            if step := part if part.name == name else part.find(name):
                return step
        return None

    def all_steps(self) -> Iterator[Step]:
        """This step and all that it was made from."""
        yield self
        for step in self.steps():
            yield from step.all_steps()

    def as_json(self) -> dict[str, Any]:
        """The step in plain types; `of_json` reads it."""
        inputs = {name: _plain(value) for name, value in self.inputs.items()}
        return {"name": self.name, "version": self.version, "settings": self.settings, "inputs": inputs}

    @classmethod
    def of_json(cls, value: Any) -> Step:
        """The step that `as_json` wrote. ValueError if it is anything else."""
        try:
            name, version, settings, inputs = (
                value[key] for key in ("name", "version", "settings", "inputs")
            )
            if not (isinstance(name, str) and isinstance(version, int) and isinstance(settings, dict)):
                raise ValueError("not a step")
            return cls(name, version, settings, {key: _from_plain(part) for key, part in inputs.items()})
        except (TypeError, KeyError, AttributeError) as error:
            raise ValueError("not a step") from error


def settings_of(config: Any, step: str) -> dict[str, Any]:
    """The settings of a configuration that decide a step's result, nested, in plain types."""
    return _settings(config, step, None)


def _settings(config: Any, step: str, inherited: Decides | None) -> dict[str, Any]:
    chosen: dict[str, Any] = {}
    for name, (own, declared) in _markers(config.__class__).items():
        marker = own or inherited or declared
        value = getattr(config, name)
        if dataclasses.is_dataclass(value):
            if nested := _settings(value, step, marker):
                chosen[name] = nested
        elif isinstance(value, Mapping) and value and all(map(dataclasses.is_dataclass, value.values())):
            several = {key: _settings(part, step, marker) for key, part in value.items()}
            if any(several.values()):
                chosen[name] = several
        elif marker and step in marker.steps:
            chosen[name] = _values(value)
    return chosen


@functools.cache
def _markers(cls: type) -> dict[str, tuple[Decides | None, Decides | None]]:
    """Of each field of a dataclass its own mark, and that of the class which declares it."""
    hints = get_type_hints(cls, include_extras=True)
    declared = {
        name: vars(base).get("decides")
        for base in reversed(cls.__mro__)
        for name in vars(base).get("__annotations__", {})
    }
    return {
        field.name: (_marker(hints[field.name]), declared[field.name]) for field in dataclasses.fields(cls)
    }


def _marker(hint: Any) -> Decides | None:
    if get_origin(hint) is not Annotated:
        return None
    return next((part for part in get_args(hint)[1:] if isinstance(part, Decides)), None)


def _values(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    if isinstance(value, Mapping):
        return {str(key): _values(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_values(part) for part in value]
    return value


def _kept(settings: Mapping[str, Any], without: Collection[str], above: str = "") -> dict[str, Any]:
    if not without:
        return dict(settings)
    kept: dict[str, Any] = {}
    for name, value in settings.items():
        path = f"{above}{name}"
        if _is_left_out(path, without):
            continue
        kept[name] = _kept(value, without, f"{path}.") if isinstance(value, Mapping) else value
    return kept


def _dotted(settings: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in settings.items():
        if isinstance(value, Mapping) and value:
            yield from _dotted(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value


def _is_left_out(path: str, without: Collection[str]) -> bool:
    return any(fnmatchcase(path, pattern) for pattern in without)


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


def _named(value: Any, without: Collection[str]) -> Any:
    """An input in a key: a step by its own key."""
    if isinstance(value, list | tuple):
        return [_named(part, without) for part in value]
    return value.key(without) if isinstance(value, Step) else value


def _plain(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return {"step": value.as_json()} if isinstance(value, Step) else value


def _from_plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_from_plain(part) for part in value]
    if isinstance(value, dict) and value.keys() == {"step"} and isinstance(value["step"], dict):
        return Step.of_json(value["step"])
    return value


def _digest(parts: Any) -> str:
    text = json.dumps(parts, sort_keys=True, default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
