"""Tab completion in bash: commands by name, configuration by Hydra's own completion."""

from __future__ import annotations

from collections.abc import Sequence

_SCRIPT = """_toolformer() {
    local line="${COMP_LINE:0:COMP_POINT}"
    local IFS=$'\\n'
    COMPREPLY=($(toolformer completion query "${line#* }" 2>/dev/null))
    if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} != *[=./] ]]; then COMPREPLY[0]+=" "; fi
}
COMP_WORDBREAKS=${COMP_WORDBREAKS//=}
COMP_WORDBREAKS=${COMP_WORDBREAKS//:}
complete -o nospace -o default -F _toolformer toolformer"""


def bash_script() -> str:
    """What `eval "$(toolformer completion bash)"` runs."""
    return _SCRIPT


def candidates(line: str, stages: Sequence[str], commands: Sequence[str]) -> list[str]:
    """Possible words for the last word of `line`, which begins after `toolformer `."""

    command, blank, rest = line.lstrip().partition(" ")
    if not blank:
        return [name for name in [*stages, *commands] if name.startswith(command)]
    if command == "tool":
        from toolformer.config import compose

        return [key for key in sorted(compose("evaluate", []).tool) if key.startswith(rest)]
    if command not in stages and command not in ("demo", "index", "run"):
        return []
    from hydra._internal.core_plugins.bash_completion import BashCompletion
    from hydra._internal.hydra import Hydra
    from hydra._internal.utils import create_config_search_path
    from hydra.core.global_hydra import GlobalHydra

    from toolformer.config import CONF, register

    register()
    GlobalHydra.instance().clear()
    hydra = Hydra.create_main_hydra2(
        task_name="completion", config_search_path=create_config_search_path(str(CONF))
    )
    stage = command if command in stages else "generate"
    return list(BashCompletion(hydra.config_loader)._query(config_name=stage, line=rest))
