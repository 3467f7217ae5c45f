"""Prints what an installation with the pinned versions needs on this system and this Python, each with the hash of its
file, for an installation that refuses everything else:

    python deploy/hashes.py binary,metrics,otel,uvloop > requirements.txt
    pip install --require-hashes --only-binary :all: -r requirements.txt
    pip install --no-deps .

Run it where it will be installed (for an image, in its base image): the file of a package differs by platform. Its
directory is the one of the project, or the second argument.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]


def main(extras: str, project: Path) -> int:
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch) / "report.json"
        command = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--dry-run", "--quiet"]
        command += ["--ignore-installed", "--only-binary", ":all:", "--report", str(report)]
        command += [
            "--constraint",
            str(project / "constraints.txt"),
            f"{project}[{extras}]" if extras else str(project),
        ]
        done = subprocess.run(command, check=False)
        if done.returncode != 0:
            return done.returncode
        found = json.loads(report.read_text())["install"]
    for item in sorted(found, key=lambda item: str(item["metadata"]["name"]).lower()):
        if "archive_info" in (origin := item["download_info"]):  # the project itself is a directory
            name, version = item["metadata"]["name"], item["metadata"]["version"]
            print(f"{name}=={version} --hash=sha256:{origin['archive_info']['hashes']['sha256']}")
    return 0


if __name__ == "__main__":
    given = [*sys.argv[1:], ""][0], Path(sys.argv[2]) if len(sys.argv) > 2 else ROOT
    sys.exit(main(*given))
