"""The package's own names."""

import pkgutil
import subprocess
import sys

import pytest

import autotune


def test_no_name_of_the_api_is_a_module() -> None:
    modules = {module.name for module in pkgutil.iter_modules(autotune.__path__)}
    assert modules.isdisjoint(autotune.__all__)
    assert dir(autotune) == sorted(autotune.__all__)


@pytest.mark.parametrize("name", autotune.__all__)
def test_names_are_imported_on_first_use(name: str) -> None:
    assert getattr(autotune, name) is getattr(autotune, name)


def test_importing_is_light() -> None:
    code = (
        "import sys, autotune; print(sorted({'numpy', 'optuna', 'sqlalchemy', 'jinja2', 'typer'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, timeout=60, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


def test_an_unknown_name() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'tune'"):
        autotune.tune  # noqa: B018


@pytest.mark.parametrize("name", ["torch", "transformers"])
def test_integrations_are_found_by_name_and_say_what_they_need(name: str) -> None:
    code = f"import sys; sys.modules['torch'] = None; import autotune; assert 'torch' in sys.modules; autotune.{name}"
    done = subprocess.run([sys.executable, "-c", code], check=False, timeout=60, capture_output=True, text=True)
    assert done.returncode == 1
    assert "autotune.torch needs PyTorch" in done.stderr.strip().splitlines()[-1]
