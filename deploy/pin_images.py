"""Adds to every image that is named in deploy/docker and in the pipeline the digest of what its tag means today, or
replaces the one that is there:

    python deploy/pin_images.py

It asks the registry through docker, which needs the plugin buildx and no running daemon. Read the difference before you
commit it: from then on the digest counts, and the tag is only for the reader.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
FILES = ("deploy/docker/Dockerfile", "deploy/docker/compose.yaml", ".github/workflows/ci.yml")
IMAGE = re.compile(r"^( *(?:FROM|image:|container:) )([a-z][a-z0-9./-]*:[\w.-]+)(@sha256:[0-9a-f]{64})?$", re.MULTILINE)
# In a Dockerfile the name of the stage follows.
STAGE = re.compile(r"^(FROM )([a-z][a-z0-9./-]*:[\w.-]+)(@sha256:[0-9a-f]{64})?(?= AS )", re.MULTILINE)


def main() -> int:
    digests: dict[str, str] = {}

    def pinned(found: re.Match[str]) -> str:
        image = found[2]
        if image not in digests:
            digests[image] = digest_of(image)
            print(f"{image}@{digests[image]}")
        return f"{found[1]}{image}@{digests[image]}"

    changed = {ROOT / name: STAGE.sub(pinned, IMAGE.sub(pinned, (ROOT / name).read_text())) for name in FILES}
    for path, text in changed.items():  # only when every answer has come
        path.write_text(text)
    return 0


def digest_of(image: str) -> str:
    command = ["docker", "buildx", "imagetools", "inspect", "--format", "{{json .Manifest}}", image]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{image}: {done.stderr.strip()}")
    digest = str(json.loads(done.stdout)["digest"])
    if not re.fullmatch(r"sha256:[0-9a-f]{64}", digest):
        sys.exit(f"{image}: this is no digest: {digest}")
    return digest


if __name__ == "__main__":
    sys.exit(main())
