"""`toolformer completion bash`: tab completion."""

from __future__ import annotations

from toolformer.errors import UserError


def main(arguments: list[str]) -> int:
    """Runs the command; returns the exit code."""
    from toolformer.commands import COMMANDS, STAGES
    from toolformer.completion import bash_script, candidates

    if arguments[:1] == ["query"]:
        print("\n".join(candidates(" ".join(arguments[1:]), tuple(STAGES), tuple(COMMANDS))))
        return 0
    if {"-h", "--help"} & set(arguments):
        print("usage: toolformer completion bash\n")
        print('prints the tab completion for bash: eval "$(toolformer completion bash)"')
        return 0
    if arguments != ["bash"]:
        raise UserError("completion: name the shell, bash is the one there is: toolformer completion bash")
    print(bash_script())
    return 0
