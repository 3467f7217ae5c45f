"""The Kubernetes manifests: probes and ports that the commands really serve, time to stop, no privileges, and scaling
by figures that exist."""

from __future__ import annotations

from functools import cache
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import psycopg
import yaml

from horsies.core.monitoring import catalogue
from horsies.core.types.status import TaskStatus
from tests.deploy.command_lines import parsed
from tests.each import each
from tests.factories import given_task

DIRECTORY = Path(__file__).parents[2] / "deploy/kubernetes"
FILES = sorted(DIRECTORY.glob("*.yaml"))
VERSIONS = {
    "Kustomization": "kustomize.config.k8s.io/v1beta1",
    "Namespace": "v1",
    "Secret": "v1",
    "Service": "v1",
    "Deployment": "apps/v1",
    "PodDisruptionBudget": "policy/v1",
    "NetworkPolicy": "networking.k8s.io/v1",
    "HorizontalPodAutoscaler": "autoscaling/v2",
    "TriggerAuthentication": "keda.sh/v1alpha1",
    "ScaledObject": "keda.sh/v1alpha1",
}
KINDS = ("worker", "scheduler", "metrics")


@cache
def documents() -> list[dict[str, Any]]:
    return [document for file in FILES for document in yaml.safe_load_all(file.read_text())]


def only(kind: str, name: str | None = None) -> dict[str, Any]:
    [found] = [
        document
        for document in documents()
        if document["kind"] == kind and name in (None, document["metadata"]["name"])
    ]
    return found


def pod(component: str) -> dict[str, Any]:
    return only("Deployment", f"horsies-{component}")["spec"]["template"]["spec"]  # type: ignore[no-any-return]


def container(component: str) -> dict[str, Any]:
    [found] = pod(component)["containers"]
    return found  # type: ignore[no-any-return]


def command(component: str) -> dict[str, Any]:
    name, given = parsed([str(word) for word in container(component)["args"]])
    assert name == component
    return given


def test_every_document_has_its_version_and_a_name() -> None:
    for document in documents():
        assert document["apiVersion"] == VERSIONS[document["kind"]]
        assert document["kind"] == "Kustomization" or document["metadata"]["name"]


def test_the_list_of_files_is_complete() -> None:
    listed = yaml.safe_load((DIRECTORY / "kustomization.yaml").read_text())["resources"]
    optional = {"autoscaling-hpa.yaml", "autoscaling-keda.yaml", "secret.example.yaml", "kustomization.yaml"}
    optional.add("network-egress.yaml")  # which has to know an address first
    assert sorted([*listed, *optional]) == [file.name for file in FILES]


@each("component", KINDS)
def test_the_selector_finds_the_pods(component: str) -> None:
    deployment = only("Deployment", f"horsies-{component}")["spec"]
    assert deployment["selector"]["matchLabels"] == deployment["template"]["metadata"]["labels"]
    assert deployment["template"]["metadata"]["labels"]["app.kubernetes.io/component"] == component


@each("component", KINDS)
def test_probes_ask_what_the_command_serves(component: str) -> None:
    given, found = command(component), container(component)
    port = given["port"] if component == "metrics" else given["metrics_port"]
    host = given["host"] if component == "metrics" else given["metrics_host"]
    assert host == "0.0.0.0", "the kubelet comes from outside"
    assert found["ports"] == [{"name": "metrics", "containerPort": port}]
    assert found["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "metrics"}
    assert found["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "metrics"}
    assert found.get("startupProbe", found["livenessProbe"])["httpGet"]["path"] == "/healthz"
    reachable = [entry["port"] for entry in only("NetworkPolicy", "horsies")["spec"]["ingress"][0]["ports"]]
    assert port in reachable


def test_the_pods_reach_names_and_the_database_and_nothing_else() -> None:
    policy = only("NetworkPolicy", "horsies-egress")["spec"]
    assert policy["policyTypes"] == ["Egress"], "those who come in are the other policy's"
    labels = policy["podSelector"]["matchLabels"].items()
    for component in KINDS:
        template = only("Deployment", f"horsies-{component}")["spec"]["template"]
        assert labels <= template["metadata"]["labels"].items(), component
    names, postgres = policy["egress"]
    assert {(port["protocol"], port["port"]) for port in names["ports"]} == {("UDP", 53), ("TCP", 53)}
    [resolver] = names["to"]  # one entry: both selectors must fit, and not one of them
    assert set(resolver) == {"namespaceSelector", "podSelector"}
    assert postgres["ports"] == [{"protocol": "TCP", "port": 5432}]
    assert [ip_network(peer["ipBlock"]["cidr"]).num_addresses for peer in postgres["to"]] == [1]


@each("component", KINDS)
def test_a_pod_has_no_privileges(component: str) -> None:
    assert pod(component)["securityContext"]["runAsNonRoot"] is True
    assert pod(component)["automountServiceAccountToken"] is False
    inside = container(component)["securityContext"]
    assert inside["allowPrivilegeEscalation"] is False and inside["readOnlyRootFilesystem"] is True
    assert inside["capabilities"] == {"drop": ["ALL"]}
    assert {mount["mountPath"] for mount in container(component)["volumeMounts"]} == {"/tmp"}
    user = [line for line in (DIRECTORY.parent / "docker/Dockerfile").read_text().splitlines() if "USER" in line]
    assert user == [f"USER {pod(component)['securityContext']['runAsUser']}:10001"]


@each("component", KINDS)
def test_the_database_is_named_by_the_secret(component: str) -> None:
    secret = only("Secret")
    assert container(component)["envFrom"] == [{"secretRef": {"name": secret["metadata"]["name"]}}]
    assert list(secret["stringData"]) == ["DATABASE_URL"]
    assert command(component).get("database_url") is None


def test_a_worker_has_time_to_stop() -> None:
    pause = int(container("worker")["lifecycle"]["preStop"]["exec"]["command"][1])
    grace = command("worker")["shutdown_grace"].total_seconds()
    assert pod("worker")["terminationGracePeriodSeconds"] >= pause + grace + 15


def test_a_drain_leaves_somebody() -> None:
    replicas = {kind: only("Deployment", f"horsies-{kind}")["spec"]["replicas"] for kind in KINDS}
    workers, schedulers = (only("PodDisruptionBudget", f"horsies-{kind}")["spec"] for kind in ("worker", "scheduler"))
    assert workers["maxUnavailable"] < replicas["worker"]
    assert schedulers["minAvailable"] < replicas["scheduler"], "or the node could never be drained"
    for kind, budget in (("worker", workers), ("scheduler", schedulers)):
        assert budget["selector"] == only("Deployment", f"horsies-{kind}")["spec"]["selector"]


def test_the_service_leads_to_the_metrics() -> None:
    service = only("Service", "horsies-metrics")["spec"]
    deployment = only("Deployment", "horsies-metrics")["spec"]
    assert service["selector"] == deployment["selector"]["matchLabels"]
    assert service["ports"][0]["port"] == command("metrics")["port"]


@each("kind", ["HorizontalPodAutoscaler", "ScaledObject"])
def test_what_is_scaled_exists(kind: str) -> None:
    target = only(kind)["spec"]["scaleTargetRef"]
    assert only("Deployment", target["name"])
    least = only(kind)["spec"].get("minReplicas") or only(kind)["spec"]["minReplicaCount"]
    assert least >= 1, "somebody must look after overdue and lost tasks"


def test_the_metrics_of_the_autoscaler_exist() -> None:
    for entry in only("HorizontalPodAutoscaler")["spec"]["metrics"]:
        metric = entry["external"]["metric"]
        assert metric["name"] == catalogue.QUEUE_TASKS.name
        assert set(metric["selector"]["matchLabels"]) == set(catalogue.QUEUE_TASKS.labels)


async def test_the_statement_of_keda_counts_what_is_due_and_what_is_held(
    database_url: str, db: psycopg.AsyncConnection
) -> None:
    [trigger] = only("ScaledObject")["spec"]["triggers"]
    query = trigger["metadata"]["query"]

    async def counted() -> int:
        row = await (await db.execute(query)).fetchone()
        assert row is not None
        return int(row[0])

    assert await counted() == 0
    await given_task(db)
    await given_task(db, status=TaskStatus.RUNNING, claimed_by_worker_id="w1")
    assert await counted() == 2
    later = (await (await db.execute("SELECT now() + interval '1 hour'")).fetchone() or [None])[0]
    await given_task(db, enqueued_at=later)
    await given_task(db, next_retry_at=later)
    await given_task(db, queue_name="other")
    await given_task(db, status=TaskStatus.COMPLETED)
    assert await counted() == 2
    await db.execute("SET enable_seqscan = off")
    plan = [row[0] async for row in await db.execute(f"EXPLAIN {query}")]
    assert not [line for line in plan if "Seq Scan" in line], "a look that costs more with every task"
    secret = only("TriggerAuthentication")["spec"]["secretTargetRef"][0]
    assert (secret["name"], secret["key"]) == (only("Secret")["metadata"]["name"], "DATABASE_URL")
