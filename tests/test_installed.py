"""The wheel in an environment of its own does the main job: search, look up, list, export."""

import json
import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
PROBLEM = ["--op", "backward", "--B", "1", "--NH", "1", "--T", "24", "--HS", "32"]


class Installed:
    """A virtual environment with the wheel; this one's packages, but not its autotune, are visible in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        wheels = folder / "wheels"
        pip = [sys.executable, "-m", "pip", "--quiet"]
        _run([*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(wheels), str(ROOT)])
        venv.create(folder / "venv", with_pip=False)
        self.bin = folder / "venv" / "bin"
        (wheel,) = wheels.glob("*.whl")
        _run([*pip, "--python", str(self.bin / "python"), "install", "--no-deps", str(wheel)])

    def run(self, program: str, *arguments: str) -> str:
        # No compiler but the wheel's: nothing of a CUDA toolkit is on the PATH.
        environment = {
            **{
                name: value for name, value in os.environ.items() if not name.startswith(("CUDA", "AUTOTUNE", "PYTHON"))
            },
            "PATH": f"{self.bin}:/usr/bin:/bin",
            "PYTHONPATH": sysconfig.get_path("purelib"),
            "AUTOTUNE_DB": str(self.folder / "autotune.db"),
            "AUTOTUNE_CACHE": str(self.folder / "cache"),
            "AUTOTUNE_NVCC": str(_wheel_nvcc()),
        }
        return _run([str(self.bin / program), *arguments], cwd=self.folder, env=environment)


def _run(command: list[str], **options: Any) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=280, **options)
    assert done.returncode == 0, done.stderr
    return str(done.stdout)


def _wheel_nvcc() -> Path:
    (path,) = (Path(sysconfig.get_path("purelib")) / "nvidia").glob("cu*/bin/nvcc")
    return path


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return Installed(tmp_path_factory.mktemp("installed"))


def test_the_package_brings_its_own_resources(installed: Installed) -> None:
    code = "import autotune.core.resources as r; print(r.resource_root('templates'), r.resource_root('db'))"
    site = next((installed.folder / "venv").glob("lib/python*/site-packages"))
    resources = site / "autotune" / "_resources"
    assert installed.run("python", "-c", code).split() == [str(resources / "templates"), str(resources / "db")]
    assert not (site / "templates").exists()
    assert not (site / "db").exists()
    assert sorted(path.name for path in site.iterdir() if path.name[:8] != "autotune") == []


def test_search_look_up_and_export(installed: Installed) -> None:
    result = json.loads(installed.run("autotune", "search", *PROBLEM, "--device", "cpu", "--trials", "2", "--json"))
    assert result["trials"] == 2
    assert result["outcomes"] == {"ok": 2}
    assert result["kind"] == "estimated"

    found = json.loads(installed.run("autotune", "best", *PROBLEM, "--device", "h200", "--json"))
    assert (found["answer"], found["kind"], found["origin"]) == ("exact", "estimated", "own")
    assert found["ms"] == result["best"]["ms"]
    assert found["compiler"].startswith("nvcc 13.")

    listed = json.loads(installed.run("autotune", "list", "winners", "--json"))
    assert [row["origin"] for row in listed] == ["own", *["shipped"] * (len(listed) - 1)]
    assert len(listed) > 90

    installed.run("autotune", "export", *PROBLEM, "--device", "h200", "-o", "backward.cu")
    text = (installed.folder / "backward.cu").read_text()
    assert found["source_hash"] in text
    assert installed.run("autotune", "show", found["source_hash"])
    assert text.count("int main()") == 1
