"""What deploy/ says agrees with the code: commands, settings, ports, topics, users, images, the Collector's table names."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest
import yaml

from ingest import log
from ingest.kafka_place import kafka_place
from ingest.settings import Settings, load
from ingest.store import locate, schema_statements
from ui import cli

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
COMMANDS = {command.words for command in cli.COMMANDS}
OURS = Settings()


def read(name: str) -> Any:
    return yaml.safe_load((DEPLOY / name).read_text())


def filled(value: str) -> str:
    """A compose value with the defaults of its ${NAME:-default} parts."""
    while "${" in value:
        before, _, rest = value.partition("${")
        inner, _, after = rest.partition("}")
        value = before + inner.partition(":-")[2] + after
    return value


def services() -> dict[str, Any]:
    return dict(read("compose.yaml")["services"])


def ours() -> dict[str, Any]:
    return {name: item for name, item in services().items() if str(item.get("image", "")).startswith("stagescope")}


def test_each_of_our_containers_runs_a_command_with_settings_that_the_code_accepts() -> None:
    assert set(ours()) >= {"receive", "consume", "watch", "ui", "scrape"}
    for name, item in ours().items():
        assert item["command"][0] in COMMANDS, name
        settings = load({key: filled(str(value)) for key, value in item["environment"].items()})
        assert locate(settings.store).folder is None
        if settings.log != OURS.log:
            assert kafka_place(settings.log).brokers == ("kafka:9092",)


def test_ports_are_the_codes_defaults_and_bound_to_loopback() -> None:
    published = {
        name: [str(port) for port in item.get("ports", [])] for name, item in services().items() if item.get("ports")
    }
    assert published["receive"] == [f"127.0.0.1:{p}:{p}" for p in (OURS.otlp_grpc_port, OURS.otlp_http_port)]
    assert published["ui"] == [f"127.0.0.1:{OURS.ui_port}:{OURS.ui_port}"]
    assert published["clickhouse"] == [f"127.0.0.1:{OURS.clickhouse_port}:{OURS.clickhouse_port}"]
    assert all(port.startswith("127.0.0.1:") for ports in published.values() for port in ports)


def test_every_image_has_a_version_and_every_dependency_exists() -> None:
    for name, item in services().items():
        assert ":" in item["image"], name
        assert not item["image"].endswith(":latest"), name
        assert set(item.get("depends_on", {})) <= set(services()), name
        assert all(
            part.split(":")[0] in read("compose.yaml")["volumes"] or part.startswith("./")
            for part in item.get("volumes", [])
        )
        for part in item.get("volumes", []):
            if part.startswith("./"):
                assert (DEPLOY / part.split(":")[0]).is_file(), part


def test_gpu_pieces_stand_under_the_gpu_profile() -> None:
    assert {name for name, item in services().items() if item.get("profiles") == ["gpu"]} == {"scrape", "dcgm-exporter"}


def test_image_exposes_our_ports_and_starts_a_command() -> None:
    lines = (DEPLOY / "Dockerfile").read_text().splitlines()
    ports = {int(port) for line in lines if line.startswith("EXPOSE") for port in line.split()[1:]}
    assert ports == {OURS.otlp_grpc_port, OURS.otlp_http_port, OURS.clickhouse_port, OURS.ui_port}
    copied = {part for line in lines if line.startswith("COPY") and "--from" not in line for part in line.split()[1:-1]}
    assert all((DEPLOY.parent / part).exists() for part in copied)
    environment = " ".join(line for line in lines if line.startswith("ENV"))
    load({part.split("=")[0]: part.split("=")[1] for part in environment.split() if part.startswith("STAGESCOPE_")})


@pytest.mark.parametrize("signal", ["traces", "metrics", "logs"])
def test_the_collector_writes_to_the_topics_we_read(signal: str) -> None:
    exporter = read("collector/to-kafka.yaml")["exporters"]["kafka"]
    topic = {"traces": log.TRACES, "metrics": log.METRICS, "logs": log.LOGS}[signal]
    assert exporter[signal] == {"topic": topic, "encoding": "otlp_proto"}


def test_the_collector_writes_to_the_tables_we_make() -> None:
    exporter = read("collector/to-clickhouse.yaml")["exporters"]["clickhouse"]
    wanted = {exporter["traces_table_name"], exporter["logs_table_name"]}
    wanted |= {item["name"] for item in exporter["metrics_tables"].values()}
    made = {
        words[5]
        for words in (statement.split() for statement in schema_statements())
        if words[:2] == ["CREATE", "TABLE"]
    }
    assert wanted <= made
    assert exporter["create_schema"] is False


@pytest.mark.parametrize("name", ["to-kafka.yaml", "to-clickhouse.yaml"])
def test_collector_pipelines_name_parts_that_exist(name: str) -> None:
    document = read(f"collector/{name}")
    for pipeline in document["service"]["pipelines"].values():
        for kind in ("receivers", "exporters"):
            assert pipeline[kind]
            assert set(pipeline[kind]) <= set(document[kind])
        assert set(pipeline.get("processors", [])) <= set(document.get("processors", {}))


def test_clickhouse_users_are_those_of_compose_and_the_analyst_only_reads() -> None:
    tree = ElementTree.parse(DEPLOY / "clickhouse" / "users.xml")
    analyst = tree.find("profiles/analyst")
    assert analyst is not None
    assert (analyst.findtext("final"), analyst.findtext("readonly")) == ("1", "2")
    secrets = {user.tag: user.find("password") for user in tree.findall("users/*") if user.get("remove") is None}
    assert set(secrets) == {"stagescope", "analyst"}
    names = {str(item.get("from_env")) for item in secrets.values() if item is not None}
    assert names <= set(services()["clickhouse"]["environment"])
    stores = {
        filled(str(item["environment"]["STAGESCOPE_STORE"])).split("//")[1].split(":")[0] for item in ours().values()
    }
    assert stores == set(secrets)


def test_kubernetes_runs_the_same_commands_on_the_same_ports() -> None:
    documents = list(yaml.safe_load_all((DEPLOY / "kubernetes" / "stagescope.yaml").read_text()))
    deployments = {
        item["metadata"]["name"]: item["spec"]["template"]["spec"]["containers"][0]
        for item in documents
        if item["kind"] == "Deployment"
    }
    assert {container["args"][0] for container in deployments.values()} == {"receive", "consume", "watch", "ui"}
    assert all(container["args"][0] in COMMANDS for container in deployments.values())
    ports = {port["containerPort"] for container in deployments.values() for port in container.get("ports", [])}
    assert ports == {OURS.otlp_grpc_port, OURS.otlp_http_port, OURS.ui_port}
    secret = next(item for item in documents if item["kind"] == "Secret")
    assert load(secret["stringData"]).log == "kafka://kafka:9092"
    image = ours()["receive"]["image"]
    assert {container["image"] for container in deployments.values()} == {image}


def test_dcgm_counters_are_those_we_read() -> None:
    names = [
        line.split(",")[0]
        for line in (DEPLOY / "dcgm-counters.csv").read_text().splitlines()
        if line[:1] not in ("#", "")
    ]
    assert "DCGM_FI_PROF_SM_ACTIVE" in names
    known = "\n".join(schema_statements())
    unread = [name for name in names if name not in known and name not in ("DCGM_FI_PROF_GR_ENGINE_ACTIVE",)]
    assert unread == []
