"""The systemd units: keys that exist, command lines that the command understands, an end that leaves time for tasks."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from datetime import timedelta
from ipaddress import ip_network
from pathlib import Path

import pytest

from tests.deploy.command_lines import parsed
from tests.each import each

DIRECTORY = Path(__file__).parents[2] / "deploy/systemd"
EGRESS = DIRECTORY / "egress.conf"
UNITS = sorted(DIRECTORY.glob("*.service"))
COMMAND = "/opt/horsies/venv/bin/horsies"
ENVIRONMENT = {
    "HORSIES_APP": "shop:app",
    "WORKER_OPTIONS": "--processes 4 --log-format json --queues a,b",
    "SCHEDULER_OPTIONS": "--log-format json --metrics-host 10.0.0.5",
    "METRICS_OPTIONS": "--host 10.0.0.5",
}

KNOWN = {
    "Unit": {"Description", "Wants", "After"},
    "Service": {
        *("Type", "User", "Group", "WorkingDirectory", "Environment", "EnvironmentFile", "ExecStart", "KillMode"),
        *("KillSignal", "TimeoutStopSec", "Restart", "RestartSec", "RuntimeDirectory", "RuntimeDirectoryMode"),
        *("RuntimeDirectoryPreserve", "NoNewPrivileges", "ProtectSystem", "ProtectHome", "PrivateTmp"),
        *("PrivateDevices", "ProtectClock", "ProtectControlGroups", "ProtectHostname", "ProtectKernelLogs"),
        *("ProtectKernelModules", "ProtectKernelTunables", "ProtectProc", "RestrictAddressFamilies", "UMask"),
        *("RestrictNamespaces", "RestrictRealtime", "RestrictSUIDSGID", "LockPersonality", "CapabilityBoundingSet"),
        *("SystemCallArchitectures", "SystemCallFilter", "LimitNOFILE", "OOMPolicy"),
    },
    "Install": {"WantedBy"},
}
HARDENED = {
    "NoNewPrivileges": "yes",
    "ProtectSystem": "strict",
    "ProtectHome": "yes",
    "PrivateTmp": "yes",
    "CapabilityBoundingSet": "",
    "RestrictNamespaces": "yes",
    "SystemCallFilter": "@system-service",
}


def settings(unit: Path) -> dict[str, list[tuple[str, str]]]:
    """The sections with their lines, as (key, value)."""
    sections: dict[str, list[tuple[str, str]]] = {}
    for line in unit.read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        if line.startswith("["):
            sections[line.strip("[]")] = lines = []
        else:
            key, sign, value = line.partition("=")
            assert sign, f"{unit.name}: {line}"
            lines.append((key, value))
    return sections


def service(unit: Path) -> dict[str, str]:
    return dict(settings(unit)["Service"])


def command_line(unit: Path, instance: str = "9464") -> list[str]:
    """The words that systemd would pass: `${X}` is one word, `$X` as many as it holds."""
    program, *words = shlex.split(service(unit)["ExecStart"].replace("%i", instance))
    assert program == COMMAND
    split = []
    for word in words:
        if found := re.fullmatch(r"\$(\w+)", word):
            split += shlex.split(ENVIRONMENT[found[1]])
        else:
            split.append(re.sub(r"\$\{(\w+)\}", lambda match: ENVIRONMENT[match[1]], word))
    return split


def test_the_units_are_there() -> None:
    assert [unit.name for unit in UNITS] == [
        "horsies-metrics.service",
        "horsies-scheduler.service",
        "horsies-worker@.service",
    ]


@each("unit", UNITS, ids=lambda unit: unit.stem)
def test_every_key_exists(unit: Path) -> None:
    found = settings(unit)
    assert list(found) == ["Unit", "Service", "Install"]
    assert {section: {key for key, _ in lines} - KNOWN[section] for section, lines in found.items()} == {
        section: set() for section in found
    }


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd here")
def test_systemd_itself_accepts_them(tmp_path: Path) -> None:
    copies = []
    for unit in UNITS:  # the command of the unit is not installed here
        copy = tmp_path / unit.name
        copy.write_text(unit.read_text().replace(COMMAND, "/bin/true"))
        copies.append(str(copy))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *copies], capture_output=True, text=True, timeout=60, check=False
    )
    ours = [line for line in done.stderr.splitlines() if "horsies" in line or str(tmp_path) in line]
    assert (done.returncode, ours) == (0, [])


@each("unit", UNITS, ids=lambda unit: unit.stem)
def test_the_command_understands_the_unit(unit: Path) -> None:
    name, given = parsed(command_line(unit))
    assert name == unit.stem.removeprefix("horsies-").removesuffix("@")
    if name == "worker":
        assert given["processes"] == 4 and given["metrics_port"] == 9464 and given["module"] == "shop:app"


def test_the_worker_has_time_to_stop() -> None:
    unit = DIRECTORY / "horsies-worker@.service"
    _, given = parsed(command_line(unit))
    limit = timedelta(seconds=int(service(unit)["TimeoutStopSec"]))
    assert given["shutdown_grace"] is not None
    assert limit >= given["shutdown_grace"] + timedelta(seconds=15)


@each("unit", UNITS, ids=lambda unit: unit.stem)
def test_only_the_supervisor_is_told_to_stop_and_it_comes_back(unit: Path) -> None:
    found = service(unit)
    assert (found["KillMode"], found["KillSignal"], found["Restart"]) == ("mixed", "SIGTERM", "always")


def test_the_start_journals_outlive_the_worker() -> None:
    lines = settings(DIRECTORY / "horsies-worker@.service")["Service"]
    assert ("RuntimeDirectory", "horsies") in lines and ("RuntimeDirectoryPreserve", "yes") in lines
    assert ("RuntimeDirectoryMode", "0700") in lines, "a directory that others can write to proves nothing"
    assert ("Environment", "HORSIES_RUNTIME_DIR=/run/horsies") in lines


@each("unit", UNITS, ids=lambda unit: unit.stem)
def test_they_are_nobody_special(unit: Path) -> None:
    found = service(unit)
    assert found["User"] == "horsies"
    assert {key: found.get(key) for key in HARDENED} == HARDENED
    assert "ProcSubset" not in found, "workers look after each other in /proc"


def test_the_rule_for_addresses_denies_all_but_a_few() -> None:
    [(section, lines)] = settings(EGRESS).items()
    assert section == "Service" and lines[0] == ("IPAddressDeny", "any")
    allowed = [value for key, value in lines[1:] if key == "IPAddressAllow"]
    assert len(allowed) == len(lines) - 1 and allowed[0] == "localhost"
    assert all(ip_network(address).num_addresses == 1 for address in allowed[1:])


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd here")
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_systemd_accepts_the_rule_for_addresses_beside_each_unit(unit: Path, tmp_path: Path) -> None:
    copy = tmp_path / unit.name
    rule = EGRESS.read_text().partition("[Service]")[2]
    copy.write_text(unit.read_text().replace(COMMAND, "/bin/true").replace("[Service]", "[Service]" + rule))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(copy)], capture_output=True, text=True, timeout=60, check=False
    )
    ours = [line for line in done.stderr.splitlines() if "horsies" in line or str(tmp_path) in line]
    assert (done.returncode, ours) == (0, [])


def test_the_lines_that_put_the_rule_in_place_name_every_unit() -> None:
    [loop] = re.findall(r"for unit in (.*); do", EGRESS.read_text())
    assert sorted(f"{name}.service" for name in loop.split()) == [unit.name for unit in UNITS]


@each("unit", UNITS, ids=lambda unit: unit.stem)
def test_the_address_of_the_database_is_not_on_the_command_line(unit: Path) -> None:
    found = settings(unit)["Service"]
    assert ("EnvironmentFile", "/etc/horsies/horsies.env") in found
    assert "database" not in dict(found)["ExecStart"].lower()


def test_the_file_with_the_environment_has_what_the_units_ask_for() -> None:
    lines = (DIRECTORY / "horsies.env.example").read_text().splitlines()
    named = dict(shlex.split(line)[0].split("=", 1) for line in lines if line and not line.startswith("#"))
    assert all(re.fullmatch(r'\w+="[^"]*"', line) for line in lines if line and not line.startswith("#")), (
        "so that systemd and a shell read the same"
    )
    asked = {name for unit in UNITS for name in re.findall(r"\$\{?(\w+)", service(unit)["ExecStart"])}
    assert asked | {"DATABASE_URL"} == set(named)
    parsed(["worker", named["HORSIES_APP"], *shlex.split(named["WORKER_OPTIONS"])])
    parsed(["scheduler", named["HORSIES_APP"], *shlex.split(named["SCHEDULER_OPTIONS"])])
    parsed(["metrics", *shlex.split(named["METRICS_OPTIONS"])])
