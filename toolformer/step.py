"""A step: what is done with which settings and inputs, and the key that names its result.

Every field of the configuration is marked with the steps whose results it decides (`Decides`). `settings_of` collects those
that differ from the schema's defaults, and `Step.key` hashes them with the step's inputs. Code is represented by a `VERSION`
per step, raised by hand in the commit that changes results; a test pins the results of a small run.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from collections.abc import Collection, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

STAGES = {
    "generate": "annotate a corpus with the calls that help (C*)",
    "train": "finetune the model on C* (data=augmented) or on C (data=plain)",
    "evaluate": "run benchmarks with one of the systems",
    "report": "print the paper's tables from the runs",
}
"""The stages in their order, each with what it does: a module of that name in `toolformer.jobs`, and a function in its `steps`.
The results of all but the report are runs."""


class Mark:
    """Metadata of a field's `Annotated` type. A mark on a field that holds a dataclass counts for all fields of that
    dataclass that have no mark of the same kind."""


M = TypeVar("M", bound=Mark)


@dataclasses.dataclass(frozen=True)
class Decides(Mark):
    """The steps whose results a setting decides; none for a setting that decides no result."""

    steps: frozenset[str]

    def __init__(self, *steps: str) -> None:
        object.__setattr__(self, "steps", frozenset(steps))


NOTHING = Decides()


@dataclasses.dataclass(frozen=True)
class ReadBy(Mark):
    """The stages or commands that read a setting, the one that it is listed with first; without it all of them do."""

    stages: tuple[str, ...]

    def __init__(self, *stages: str) -> None:
        object.__setattr__(self, "stages", stages)


@dataclasses.dataclass(frozen=True)
class Private(Mark):
    """A setting that is not copied from a run, which may be a stranger's: it names code, an address or a path.

    Args:
        only_paths: whether values that are not paths are copied.
    """

    only_paths: bool = False


@dataclasses.dataclass(frozen=True)
class Content(Mark):
    """Marks an argument of a tool that names files or folders: their content decides answers, not their path."""


@dataclasses.dataclass(frozen=True)
class ModelName(Mark):
    """Marks an argument of a tool that names a model or its tokenizer: a folder's content decides, else the name."""


@dataclasses.dataclass(frozen=True)
class Code(Mark):
    """Marks an argument of a tool that names a function, `module:function` or `file.py:function`: its file and its
    name decide."""


@dataclasses.dataclass(frozen=True)
class Words(Mark):
    """Marks an argument of a tool that is a command line: its words decide, and the files that they name
    (`--config=FILE`)."""


@dataclasses.dataclass(frozen=True)
class Server(Mark):
    """Marks an argument of a tool with the address of a server whose model another argument names: its path decides."""


@dataclasses.dataclass(frozen=True)
class Setting:
    """A field of a configuration that holds no further fields."""

    path: tuple[str, ...]
    """Its dotted key, in parts."""
    value: Any
    default: Any
    """The schema's; `dataclasses.MISSING` where there is none."""
    marks: Mapping[type[Mark], Mark]

    @property
    def key(self) -> str:
        return ".".join(self.path)

    @property
    def is_default(self) -> bool:
        return bool(normalised(self.value) == normalised(self.default))

    def decides(self, step: str) -> bool:
        """Whether it decides the result of a step."""
        mark = self.marks.get(Decides)
        return isinstance(mark, Decides) and step in mark.steps


def all_settings(
    config: Any, path: tuple[str, ...] = (), marks: Mapping[type[Mark], Mark] | None = None
) -> Iterator[Setting]:
    """Every setting of a configuration, a dataclass that may hold others, also in mappings."""
    fields_marks = _marks(config.__class__)
    for field in dataclasses.fields(config):
        value, field_path = getattr(config, field.name), (*path, field.name)
        field_marks = {**(marks or {}), **fields_marks[field.name]}
        if dataclasses.is_dataclass(value):
            yield from all_settings(value, field_path, field_marks)
        elif isinstance(value, Mapping) and value and all(map(dataclasses.is_dataclass, value.values())):
            for key, part in value.items():
                yield from all_settings(part, (*field_path, str(key)), field_marks)
        else:
            yield Setting(field_path, value, _default(field), field_marks)


def settings_of(config: Any, step: str) -> dict[str, Any]:
    """The settings that decide a step's result and differ from the schema's defaults, nested, in plain types."""
    settings: dict[str, Any] = {}
    for setting in all_settings(config):
        if setting.decides(step) and not setting.is_default:
            *above, name = setting.path
            nested = settings
            for part in above:
                nested = nested.setdefault(part, {})
            nested[name] = normalised(setting.value)
    return settings


def normalised(value: Any) -> Any:
    """A value in plain types, in which equal values are the same: 10.0 becomes 10, a tuple a list."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = dataclasses.asdict(value)
    if isinstance(value, Mapping):
        return {str(key): normalised(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [normalised(part) for part in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


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

    def __post_init__(self) -> None:
        object.__setattr__(self, "settings", normalised(self.settings))
        object.__setattr__(self, "inputs", {name: _input(value) for name, value in self.inputs.items()})

    def __hash__(self) -> int:
        return hash(self._key)

    def key(self, without: Collection[str] = ()) -> str:
        """The name of the result, 16 hexadecimal digits.

        Args:
            without: settings (dotted, `*` for any part: `tool.*.filter_threshold`) and inputs to leave out, also from the
                steps that this one reads. Steps that are equal but for these have equal keys.
        """
        return _digest(self._parts(without)) if without else self._key

    @functools.cached_property
    def _key(self) -> str:
        return _digest(self._parts(()))

    def _parts(self, without: Collection[str]) -> list[Any]:
        inputs = {
            name: _keys(value, without)
            for name, value in self.inputs.items()
            if not _is_left_out(name, without)
        }
        return [self.name, self.version, _kept(self.settings, without), inputs]

    def steps(self) -> Iterator[Step]:
        """The steps that this one reads directly."""
        for value in self.inputs.values():
            yield from (part for part in _listed(value) if isinstance(part, Step))

    def flat(self) -> dict[str, Any]:
        """The settings by dotted key, also those of the steps that it reads: `train.trainer.max_steps`; of several steps of
        one name, `generate[2].filter.baseline` for the second."""
        flat = dict(_dotted(self.settings))
        steps = [*self.steps()]
        for step in steps:
            alike = [other for other in steps if other.name == step.name]
            name = step.name if len(alike) == 1 else f"{step.name}[{alike.index(step) + 1}]"
            flat |= {f"{name}.{key}": value for key, value in step.flat().items()}
        return flat

    def find(self, name: str) -> Step | None:
        """The nearest step of this name that it was made from; of several the first."""
        return next(self.find_all(name), None)

    def find_all(self, name: str) -> Iterator[Step]:
        """The nearest steps of this name that it was made from, in the order in which they were named."""
        for step in self.steps():
            if step.name == name:
                yield step
            else:
                yield from step.find_all(name)

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


@functools.cache
def _marks(cls: Any) -> dict[str, dict[type[Mark], Mark]]:
    """The marks of each field of a dataclass, by their kind."""
    hints = get_type_hints(cls, include_extras=True)
    return {
        field.name: {type(part): part for part in _metadata(hints[field.name]) if isinstance(part, Mark)}
        for field in dataclasses.fields(cls)
    }


def marks_of(cls: type, kind: type[M]) -> dict[str, M | None]:
    """The mark of a kind on each field of a dataclass; None for a field without one."""
    marks = {name: marks.get(kind) for name, marks in _marks(cls).items()}
    return {name: mark if isinstance(mark, kind) else None for name, mark in marks.items()}


def _metadata(hint: Any) -> tuple[Any, ...]:
    return get_args(hint)[1:] if get_origin(hint) is Annotated else ()


def _default(field: dataclasses.Field[Any]) -> Any:
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


def _input(value: Any) -> Any:
    """An input in plain types, but for steps."""
    if isinstance(value, Step):
        return value
    if isinstance(value, list | tuple):
        return [_input(part) for part in value]
    return normalised(value)


def _kept(settings: Mapping[str, Any], without: Collection[str], above: str = "") -> dict[str, Any]:
    if not without:
        return dict(settings)
    kept: dict[str, Any] = {}
    for name, value in settings.items():
        path = f"{above}{name}"
        if _is_left_out(path, without):
            continue
        if not isinstance(value, Mapping):
            kept[name] = value
        elif part := _kept(value, without, f"{path}."):
            kept[name] = part
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


def _keys(value: Any, without: Collection[str]) -> Any:
    """An input in a key: a step by its own key."""
    if isinstance(value, list | tuple):
        return [_keys(part, without) for part in value]
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
