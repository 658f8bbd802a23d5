"""The package's own names."""

import subprocess
import sys

import pytest

import autotune


@pytest.mark.parametrize("name", ["search", "export", "kernel", "best"])
def test_functions_stay_functions_whatever_is_imported(name: str) -> None:
    code = (
        "import importlib, autotune\n"
        "for module in ('autotune.search.engine', 'autotune.export', 'autotune.kernel', 'autotune.lookup'):\n"
        "    importlib.import_module(module)\n"
        f"assert callable(autotune.{name}), autotune.{name}\n"
        f"from autotune import {name}\n"
        f"assert callable({name})\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_importing_is_light() -> None:
    code = (
        "import sys, autotune; print(sorted({'numpy', 'optuna', 'sqlalchemy', 'jinja2', 'typer'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, timeout=60, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


def test_an_unknown_name() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'tune'"):
        autotune.tune  # noqa: B018
