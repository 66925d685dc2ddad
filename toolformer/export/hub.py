"""An exported folder to a repository of the Hugging Face Hub: by default a private one, as a pull request.

The token comes from HF_TOKEN, the address from HF_ENDPOINT. Neither messages nor files hold the token, whatever a server answers.
"""

import os
import re
from pathlib import Path

from toolformer.credentials import MASK
from toolformer.errors import UserError, one_line

TOKEN = "HF_TOKEN"
REPOSITORY = r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}"


def check(repository: str) -> None:
    """UserError for a name that is not OWNER/NAME, or without a token: before anything is written."""
    if not re.fullmatch(REPOSITORY, repository):
        raise UserError(f"--push: {repository!r:.100} is not a repository name; give OWNER/NAME")
    if not os.environ.get(TOKEN, "").strip():
        raise UserError(
            f"--push: set the environment variable {TOKEN} to a token that may write to {repository}"
        )


def push(folder: Path, repository: str, kind: str, *, public: bool = False, commit: bool = False) -> str:
    """Uploads a folder to a repository, which is made if need be; returns the address of the pull request or commit.

    Args:
        kind: `model` or `dataset`.
        public: a new repository is visible to everyone.
        commit: to the main branch instead of a pull request.

    Raises:
        UserError: a wrong name, no token, or the Hub refuses or cannot be reached; the folder stays.
    """
    check(repository)
    token = os.environ[
        TOKEN
    ].strip()  # a line end, as of a file, would be refused and repeated in the refusal
    from huggingface_hub import HfApi

    api = HfApi(endpoint=os.environ.get("HF_ENDPOINT"), token=token)
    try:
        api.create_repo(repository, repo_type=kind, private=not public, exist_ok=True)
        pushed = api.upload_folder(
            repo_id=repository,
            repo_type=kind,
            folder_path=folder,
            commit_message=f"Export of Toolformer, the harness: {kind}",
            create_pr=not commit,
        )
    except Exception as error:  # the client raises its own types and those of the HTTP library
        # Masked before it is cut: half a token is a secret too.
        reason = one_line(Exception(str(error).replace(token, MASK) or type(error).__name__))
        raise UserError(
            f"--push: {repository} was not updated ({reason}); {folder} is written: check {TOKEN} and its rights, then give "
            "the command again with a new folder"
        ) from None
    return str(pushed.pr_url or pushed.commit_url).replace(token, MASK)
