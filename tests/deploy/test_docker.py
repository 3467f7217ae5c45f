"""The Dockerfile and the compose file, read without running anything: not root, small, healthy, and with command lines
that the command understands."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import yaml

from tests.deploy.command_lines import parsed
from tests.each import each

ROOT = Path(__file__).parents[2]
DIRECTORY = ROOT / "deploy/docker"
COMPOSE: dict[str, Any] = yaml.safe_load((DIRECTORY / "compose.yaml").read_text())
OURS = ("worker", "scheduler", "metrics")
FULL = re.compile(r"[a-z]+:\d+\.\d+(\.\d+)?-[a-z-]+(@sha256:[0-9a-f]{64})?")
KNOWN = {"FROM", "ARG", "ENV", "RUN", "COPY", "WORKDIR", "USER", "STOPSIGNAL", "EXPOSE", "HEALTHCHECK"}
KNOWN |= {"ENTRYPOINT", "CMD"}


def instructions() -> list[tuple[str, str]]:
    text = "\n".join(line for line in (DIRECTORY / "Dockerfile").read_text().splitlines() if not line.startswith("#"))
    lines = re.sub(r"\\\n\s*", " ", text).splitlines()
    return [(name, rest) for name, _, rest in (line.partition(" ") for line in lines if line)]


def last(name: str) -> str:
    return [rest for instruction, rest in instructions() if instruction == name][-1]


def seconds(text: str) -> int:
    found = re.fullmatch(r"(\d+)s", text)
    assert found is not None, text
    return int(found[1])


def with_defaults(text: str) -> str:
    """As compose fills in what is not set."""
    return re.sub(r"\$\{(\w+)(?::-([^}]*)|:\?[^}]*)?\}", lambda match: match[2] or "given", text)


def command(service: str) -> tuple[str, dict[str, Any]]:
    return parsed(shlex.split(with_defaults(COMPOSE["services"][service]["command"])))


def health_url(test: list[str]) -> tuple[int, str]:
    """Port and path that a check of ours asks; its program must compile."""
    assert test[:2] == ["python", "-c"]
    compile(test[2], "<health check>", "exec")
    found = re.search(r"//127\.0\.0\.1:(\d+)(/\w+)'", test[2])
    assert found is not None
    return int(found[1]), found[2]


def test_every_instruction_exists_and_there_are_two_stages() -> None:
    assert {name for name, _ in instructions()} <= KNOWN
    base, *stages = [rest for name, rest in instructions() if name == "FROM"]
    assert base.endswith(" AS base") and stages == ["base AS build", "base"], "both from one image"
    after = instructions()[[rest for _, rest in instructions()].index(stages[1]) :]
    assert not any(name == "RUN" and "pip" in rest for name, rest in after), "what builds stays behind"


def test_it_is_not_root_and_gets_the_signal() -> None:
    assert last("USER") == "10001:10001"
    names = [name for name, _ in instructions()]
    assert names.index("USER") > max(at for at, name in enumerate(names) if name == "RUN"), "nothing runs as root later"
    assert last("STOPSIGNAL") == "SIGTERM"
    assert json.loads(last("ENTRYPOINT")) == ["tini", "--", "horsies"], "no shell between the signal and the command"
    assert isinstance(json.loads(last("CMD")), list)


def test_its_health_is_that_of_a_worker() -> None:
    options, _, test = last("HEALTHCHECK").partition(" CMD ")
    assert dict(option.removeprefix("--").split("=") for option in options.split()).keys() == {
        "interval",
        "timeout",
        "start-period",
        "retries",
    }
    assert health_url(json.loads(test)) == (int(last("EXPOSE")), "/healthz")
    assert int(last("EXPOSE")) == command("worker")[1]["metrics_port"]


def test_what_it_copies_exists_and_is_not_ignored() -> None:
    sources = [
        word for name, rest in instructions() if name == "COPY" and "--from" not in rest for word in rest.split()[:-1]
    ]
    allowed = (DIRECTORY / "Dockerfile.dockerignore").read_text().splitlines()
    assert len(sources) >= 5
    assert [source for source in sources if not (ROOT / source).exists() or f"!{source}" not in allowed] == []


def test_the_extras_it_installs_exist() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    [wanted] = [found[1] for _, rest in instructions() if (found := re.search(r'"\.\[([\w,]+)\]"', rest))]
    assert set(wanted.split(",")) <= set(extras)
    assert "metrics" in wanted


def test_the_example_in_the_dockerfile_is_understood() -> None:
    [shown] = re.findall(r"^#   CMD (\[.*\])$", (DIRECTORY / "Dockerfile").read_text(), re.MULTILINE)
    assert parsed(json.loads(shown))[1]["metrics_host"] == "0.0.0.0"


def test_compose_has_the_database_and_our_three() -> None:
    assert set(COMPOSE["services"]) == {"postgres", *OURS}
    assert [command(service)[0] for service in OURS] == list(OURS)


@each("service", OURS)
def test_a_service_is_confined_waits_for_the_database_and_is_watched(service: str) -> None:
    found = COMPOSE["services"][service]
    assert found["read_only"] is True and found["cap_drop"] == ["ALL"]
    assert found["depends_on"] == {"postgres": {"condition": "service_healthy"}}
    assert found["tmpfs"] == ["/tmp"]
    _, given = command(service)
    port = given["port"] if service == "metrics" else given["metrics_port"]
    test = ["python", "-c", json.loads(last("HEALTHCHECK").partition(" CMD ")[2])[2]]
    if service != "worker":  # whose check is the image's
        test = found["healthcheck"]["test"][1:]
    assert health_url(test) == (port, "/healthz")


def test_compose_leaves_a_worker_time_to_stop() -> None:
    _, given = command("worker")
    assert seconds(COMPOSE["services"]["worker"]["stop_grace_period"]) >= given["shutdown_grace"].total_seconds() + 10


def test_the_app_of_compose_exists() -> None:
    _, given = command("worker")
    module = given["module"].partition(":")[0]
    directory = with_defaults(COMPOSE["services"]["worker"]["volumes"][0]).partition(":")[0]
    assert (DIRECTORY / directory / f"{module}.py").is_file()
    assert (DIRECTORY / COMPOSE["services"]["worker"]["build"]["context"] / "deploy/docker/Dockerfile").is_file()


def test_images_are_named_by_their_full_version_or_their_digest() -> None:
    """So that what is built today is what was tested, and a newer one is somebody's decision."""
    images = [last_stage.split()[0] for name, last_stage in instructions() if name == "FROM"][:1]
    images += [service["image"] for service in COMPOSE["services"].values() if "build" not in service]
    assert len(images) == 2
    assert [image for image in images if not FULL.fullmatch(image)] == []


def test_only_what_publishes_a_port_can_reach_the_world() -> None:
    assert COMPOSE["networks"]["inside"] == {"internal": True}
    networks = {name: set(service["networks"]) for name, service in COMPOSE["services"].items()}
    assert all("inside" in each for each in networks.values())
    assert {name for name, each in networks.items() if each != {"inside"}} == {
        name for name, service in COMPOSE["services"].items() if "ports" in service
    }


def test_only_this_machine_reaches_what_is_published() -> None:
    published = [port for service in COMPOSE["services"].values() for port in service.get("ports", [])]
    assert published and all(port.startswith("127.0.0.1:") for port in published)


def test_there_is_no_password_in_the_file() -> None:
    given = COMPOSE["services"]["worker"]["environment"]["DATABASE_URL"]
    assert ":${POSTGRES_PASSWORD:?" in given
    assert COMPOSE["services"]["postgres"]["environment"]["POSTGRES_PASSWORD"].startswith("${POSTGRES_PASSWORD:?")
