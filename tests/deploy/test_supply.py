"""The programs of `deploy/` name what comes from elsewhere exactly: images by digest, packages by hash."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
DIGEST = "sha256:" + "0123456789abcdef" * 4
# An answer of the registry, as docker prints it.
DOCKER = f"""#!/bin/sh
[ "$1 $2 $3" = "buildx imagetools inspect" ] || exit 9
echo '{{"mediaType":"application/vnd.oci.image.index.v1+json","digest":"{DIGEST}","size":10}}'
"""
BACKEND = """
from pathlib import Path

def prepare_metadata_for_build_wheel(directory, config_settings=None):
    info = Path(directory) / "sample-1.dist-info"
    info.mkdir()
    info.joinpath("METADATA").write_text("Metadata-Version: 2.1\\nName: sample\\nVersion: 1\\nRequires-Dist: part\\n")
    return info.name

def build_wheel(directory, config_settings=None, metadata_directory=None):
    raise SystemExit("this is never built")
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name in ("deploy", ".github/workflows"):
        shutil.copytree(ROOT / name, tmp_path / name)
    return tmp_path


def pin_images(project: Path, docker: str) -> subprocess.CompletedProcess[str]:
    programs = project / "bin"
    programs.mkdir(exist_ok=True)
    (programs / "docker").write_text(docker)
    (programs / "docker").chmod(0o755)
    environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}
    command = [sys.executable, str(project / "deploy/pin_images.py")]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_one_command_writes_the_digests(project: Path) -> None:
    done = pin_images(project, DOCKER)
    assert done.returncode == 0, done.stderr
    dockerfile = (project / "deploy/docker/Dockerfile").read_text()
    assert re.search(rf"^FROM python:[\w.-]+@{DIGEST} AS base$", dockerfile, re.MULTILINE)
    assert "FROM base AS build\n" in dockerfile and "FROM base\n" in dockerfile
    compose = yaml.safe_load((project / "deploy/docker/compose.yaml").read_text())
    assert compose["services"]["postgres"]["image"].endswith(f"@{DIGEST}")
    assert compose["services"]["worker"]["image"] == "horsies", "built here, and in no registry"
    pipeline = yaml.safe_load((project / ".github/workflows/ci.yml").read_text())
    assert pipeline["jobs"]["demo"]["container"].endswith(f"@{DIGEST}")
    assert pipeline["jobs"]["versions"]["services"]["postgres"]["image"] == "postgres:${{ matrix.postgres }}"
    before = [(project / name).read_bytes() for name in ("deploy/docker/Dockerfile", "deploy/docker/compose.yaml")]
    assert pin_images(project, DOCKER).returncode == 0
    after = [(project / name).read_bytes() for name in ("deploy/docker/Dockerfile", "deploy/docker/compose.yaml")]
    assert before == after, "a digest is replaced, not added a second time"


def test_without_an_answer_no_file_is_changed(project: Path) -> None:
    done = pin_images(project, "#!/bin/sh\necho 'no such host' >&2\nexit 1\n")
    assert done.returncode == 1 and "no such host" in done.stderr and "Traceback" not in done.stderr
    for name in ("deploy/docker/Dockerfile", "deploy/docker/compose.yaml", ".github/workflows/ci.yml"):
        assert (project / name).read_bytes() == (ROOT / name).read_bytes()


def a_wheel(directory: Path, content: str) -> None:
    with zipfile.ZipFile(directory / "part-2-py3-none-any.whl", "w") as wheel:
        wheel.writestr("part.py", content)
        wheel.writestr("part-2.dist-info/METADATA", "Metadata-Version: 2.1\nName: part\nVersion: 2\n")
        wheel.writestr("part-2.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr("part-2.dist-info/RECORD", "part.py,,\n")


@pytest.mark.slow("pip installs a package four times")
def test_the_hashes_of_an_installation_let_nothing_else_in(tmp_path: Path) -> None:
    """Really: the file of another content under the same name and version is refused by pip."""
    (tmp_path / "backend.py").write_text(BACKEND)
    (tmp_path / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    )
    (tmp_path / "constraints.txt").write_text("part==2\n")
    a_wheel(tmp_path, "GOOD = True\n")
    environment = {**os.environ, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path)}
    script = [sys.executable, str(ROOT / "deploy/hashes.py"), "", str(tmp_path)]
    told = subprocess.run(script, env=environment, capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stdout + told.stderr
    assert re.fullmatch(r"part==2 --hash=sha256:[0-9a-f]{64}\n", told.stdout)
    (tmp_path / "requirements.txt").write_text(told.stdout)

    def install(target: str) -> subprocess.CompletedProcess[str]:
        command = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--require-hashes",
            "--only-binary",
            ":all:",
            "--no-cache-dir",
        ]
        command += ["--disable-pip-version-check", "--target", str(tmp_path / target), "-r", "requirements.txt"]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    assert install("good").returncode == 0 and (tmp_path / "good/part.py").exists()
    a_wheel(tmp_path, "GOOD = False\n")
    refused = install("bad")
    assert refused.returncode != 0 and "DO NOT MATCH THE HASHES" in refused.stderr
    assert not (tmp_path / "bad/part.py").exists()
