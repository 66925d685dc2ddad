"""Puts conf/ into the wheel, as toolformer/conf; everything else stands in pyproject.toml."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithConfiguration(build_py):
    """Copies the Hydra files beside the package's own."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            folder = Path(self.build_lib) / "toolformer" / "conf"
            shutil.copytree(Path(__file__).parent / "conf", folder, dirs_exist_ok=True)


setup(cmdclass={"build_py": BuildWithConfiguration})
