"""What is shipped for running mistnet elsewhere can be read, is closed to strangers, and names what exists."""

import configparser
import json
import os
import re
import shutil
import stat
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from mistnet.__main__ import run
from mistnet.queue.metrics import EngineMetrics, SourceMetrics
from mistnet.settings import Settings, load_settings

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
UNIT = DEPLOY / "systemd" / "mistnet-worker.service"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
PINNED = re.compile(r"[\w./-]+:v?\d+\.\d+(\.\d+)?[\w.-]*(@sha256:[0-9a-f]{64})?")
OWN = "mistnet:local"
NAMED = re.compile(r"\bmistnet_[a-z_]+")
KNOWN_KEYS = {
    *("image", "build", "env_file", "environment", "restart", "read_only", "tmpfs", "cap_drop", "security_opt"),
    *("stop_grace_period", "logging", "volumes", "ports", "shm_size", "healthcheck", "hostname", "command"),
    *("depends_on", "user"),
}
SECRET_WORDS = ("password", "passwd", "token", "secret", "pass")


def pins(name: Path) -> dict[str, tuple[str, frozenset[str]]]:
    """Each package of a lock file with its version and hashes."""
    found = re.findall(r"^([\w.-]+)==(\S+)(.*(?:\n    --hash=.*)+)", name.read_text(encoding="utf-8"), re.MULTILINE)
    return {name: (version, frozenset(re.findall(r"sha256:\w+", rest))) for name, version, rest in found}


def metric_names() -> set[str]:
    registry = EngineMetrics().registry
    SourceMetrics(registry)
    names: set[str] = set()
    for family in registry.collect():
        ends = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count")}.get(family.type, ("",))
        names |= {family.name + end for end in ends}
    return names


def test_the_alerting_rules_are_loaded_and_name_metrics_that_exist() -> None:
    rules = yaml.safe_load((DEPLOY / "prometheus-rules.yml").read_text(encoding="utf-8"))["groups"][0]["rules"]
    named = {name for rule in rules for name in NAMED.findall(rule["expr"])}
    assert len(named) >= 10
    assert named - metric_names() == set()
    assert all(
        rule["labels"]["severity"] in {"warning", "critical"} and rule["annotations"]["summary"] for rule in rules
    )
    loaded = yaml.safe_load((DEPLOY / "prometheus.yml").read_text(encoding="utf-8"))["rule_files"]
    assert [f"./prometheus-rules.yml:{path}:ro" for path in loaded] == SERVICES["prometheus"]["volumes"][1:2]


def test_all_that_runs_is_there_and_looks_after_itself() -> None:
    assert set(SERVICES) == {
        *("postgres", "rabbitmq", "migrate", "api", "worker", "crawler", "prometheus", "grafana"),
    }
    for name, service in SERVICES.items():
        assert name == "migrate" or "healthcheck" in service, name
        assert name == "migrate" or service["restart"] == "unless-stopped", name
        assert "privileged" not in service
        assert service.get("network_mode") != "host"


@pytest.mark.parametrize("name", SERVICES)
def test_every_container_has_no_rights_and_writes_to_its_volumes_alone(name: str) -> None:
    service = SERVICES[name]
    assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])
    assert "/tmp" in service["tmpfs"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert "cap_add" not in service
    # These images start as root to give their volume to a user of their own, which takes capabilities.
    assert service.get("user") == {"postgres": "postgres", "rabbitmq": "rabbitmq"}.get(name)


@pytest.mark.parametrize("name", SERVICES)
def test_every_image_is_pinned(name: str) -> None:
    image = SERVICES[name]["image"]
    assert image == OWN or PINNED.fullmatch(image), image
    assert "latest" not in image
    if image == OWN:
        assert SERVICES[name]["build"]["dockerfile"] == "deploy/Dockerfile"


def test_every_image_has_its_digest_or_says_why_not() -> None:
    lines = re.findall(r"^ +image: (.+)$", (DEPLOY / "compose.yaml").read_text(encoding="utf-8"), re.MULTILINE)
    assert len(lines) == 5
    bare = [line for line in lines if not re.fullmatch(r"\S+@sha256:[0-9a-f]{64}", line) and line != OWN]
    assert [line for line in bare if not re.fullmatch(r"\S+ # no digest: .{20,}", line)] == []


def test_digests_are_filled_in_where_they_lack(tmp_path: Path) -> None:
    for name in ("compose.yaml", "Dockerfile", "pin-images.sh"):
        shutil.copy(DEPLOY / name, tmp_path)
    before = (tmp_path / "compose.yaml").read_text(encoding="utf-8")
    digest = f"sha256:{'ab' * 32}"
    docker = tmp_path / "bin" / "docker"
    docker.parent.mkdir()
    docker.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\necho {digest}\n')
    docker.chmod(0o755)
    environment = {**os.environ, "PATH": f"{docker.parent}:{os.environ['PATH']}"}
    command = ["sh", str(tmp_path / "pin-images.sh")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    pinned = re.sub(r"(image: \S+) # no digest: .*", rf"\1@{digest}", before)
    assert (tmp_path / "compose.yaml").read_text(encoding="utf-8") == pinned
    asked = (tmp_path / "asked").read_text() if "# no digest" in before else ""
    assert len(asked.splitlines()) == before.count("# no digest")
    docker.write_text("#!/bin/sh\necho nothing\n")
    (tmp_path / "compose.yaml").write_text(before, encoding="utf-8")
    refused = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert refused.returncode == (1 if asked else 0)
    assert (tmp_path / "compose.yaml").read_text(encoding="utf-8") == before


@pytest.mark.parametrize("name", SERVICES)
def test_nothing_listens_beyond_this_machine(name: str) -> None:
    for port in SERVICES[name].get("ports", ()):
        assert port.startswith(("127.0.0.1:", "${MISTNET_PRIVATE_ADDRESS:-127.0.0.1}:")), port
        assert port.count(":") - port.count(":-") == 2, port


@pytest.mark.parametrize("name", SERVICES)
def test_no_password_is_written_down_and_each_service_has_its_own_file_of_secrets(name: str) -> None:
    service = SERVICES[name]
    given = service.get("environment", {})
    assert [key for key in given if any(word in key.lower() for word in SECRET_WORDS)] == []
    for file in service.get("env_file", ()):
        assert file.startswith("secrets/")
        assert not (DEPLOY / file).exists() or "deploy/secrets/" in (ROOT / ".gitignore").read_text(encoding="utf-8")
    if name != "prometheus":
        assert service["env_file"]


def test_secrets_are_made_once_for_their_owner_alone_and_fit_the_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "secrets"
    made = subprocess.run(["sh", DEPLOY / "make-secrets.sh", folder], capture_output=True, text=True, check=True)
    files = {each.name: dict(_lines(each)) for each in folder.iterdir()}
    assert {f"{Path(file).name}" for service in SERVICES.values() for file in service.get("env_file", ())} == set(files)
    assert {stat.S_IMODE((folder / name).stat().st_mode) for name in files} == {0o600}
    secrets = [files["postgres.env"]["POSTGRES_PASSWORD"], files["rabbitmq.env"]["RABBITMQ_DEFAULT_PASS"]]
    secrets += [files["grafana.env"]["GF_SECURITY_ADMIN_PASSWORD"], files["mistnet.env"]["MISTNET_ADMIN_TOKEN"]]
    assert len(set(secrets)) == 4
    assert all(re.fullmatch(r"[0-9a-f]{48}", each) for each in secrets)
    assert not any(each in made.stdout + made.stderr for each in secrets)
    monkeypatch.chdir(tmp_path)
    for name, value in files["mistnet.env"].items():
        monkeypatch.setenv(name, value)
    settings = load_settings()
    assert secrets[0] in settings.database_url.get_secret_value()
    assert settings.broker_url is not None
    assert secrets[1] in settings.broker_url.get_secret_value()
    assert settings.x_day_credits == 200_000
    assert settings.amqp_lanes == settings.crawl_lanes == ["shopee", "taobao", "ebay", "web"]
    again = subprocess.run(["sh", DEPLOY / "make-secrets.sh", folder], capture_output=True, text=True, check=False)
    assert again.returncode == 1
    assert files == {each.name: dict(_lines(each)) for each in folder.iterdir()}


def _lines(file: Path) -> list[tuple[str, str]]:
    written = [line for line in file.read_text().splitlines() if line and not line.startswith("#")]
    return [(line.partition("=")[0], line.partition("=")[2]) for line in written]


def test_the_compose_file_says_nothing_that_docker_does_not_know(tmp_path: Path) -> None:
    assert {key for key in COMPOSE if not key.startswith("x-")} == {"name", "services", "volumes"}
    assert {key for service in SERVICES.values() for key in service} <= KNOWN_KEYS
    for name, service in SERVICES.items():
        assert set(service.get("depends_on", {})) <= set(SERVICES), name
        named = [each.partition(":")[0] for each in service.get("volumes", ()) if not each.startswith("./")]
        assert set(named) <= set(COMPOSE["volumes"]), name
        for each in service.get("volumes", ()):
            assert not each.startswith("./") or (DEPLOY / each.partition(":")[0]).exists(), each
    docker = shutil.which("docker")
    if docker and not subprocess.run([docker, "compose", "version"], capture_output=True, check=False).returncode:
        copy = tmp_path / "deploy"
        shutil.copytree(DEPLOY, copy, ignore=shutil.ignore_patterns("secrets"))
        subprocess.run(["sh", copy / "make-secrets.sh"], capture_output=True, check=True)
        command = [docker, "compose", "--file", str(copy / "compose.yaml"), "config", "--quiet"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")


def test_the_image_has_the_packages_of_the_lock_and_no_others() -> None:
    whole, run = pins(ROOT / "requirements.lock"), pins(DEPLOY / "requirements.lock")
    assert len(run) > 40
    assert {name for name, pin in run.items() if whole.get(name) != pin} == set()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = [project["optional-dependencies"][extra] for extra in ("amqp", "apprise", "postgresql")]
    wanted = [*project["dependencies"], *(each for extra in extras for each in extra)]
    names = {re.split(r"[\[<>=;]", each)[0].strip() for each in wanted}
    assert names - set(run) == set()
    assert not {"pytest", "mypy", "playwright", "hatchling"} & set(run)


def test_the_image_is_built_by_hash_and_runs_without_rights() -> None:
    lines = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    bases = re.findall(r"^FROM (\S+)", lines, re.MULTILINE)
    assert len(bases) == 2
    assert all("@sha256:" in base for base in bases)
    assert lines.count("--require-hashes") == 2
    assert "USER 10001:10001" in lines
    for source in re.findall(r"^COPY (?!--from)(.+) \S+$", lines, re.MULTILINE):
        assert all((ROOT / each).exists() for each in source.split()), source
    kept = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert kept[0] == "*"
    assert "!deploy/requirements.lock" in kept


def test_the_health_of_workers_is_told_by_a_metric_that_exists() -> None:
    for name in ("worker", "crawler"):
        (asked,) = NAMED.findall(SERVICES[name]["healthcheck"]["test"][-1])
        assert asked in metric_names()


def test_prometheus_asks_services_that_are_there_on_ports_they_serve() -> None:
    told = yaml.safe_load((DEPLOY / "prometheus.yml").read_text(encoding="utf-8"))
    jobs = {job["job_name"]: job for job in told["scrape_configs"]}
    (workers,) = jobs["mistnet"]["dns_sd_configs"]
    assert set(workers["names"]) == {"api", "worker", "crawler"}, "each process has metrics of its own"
    for name in workers["names"]:
        command = SERVICES[name]["command"]
        assert command[command.index("--metrics-port") + 1] == str(workers["port"])
        assert command[command.index("--metrics-host") + 1] == "0.0.0.0"
        published = [each.rpartition(":")[2] for each in SERVICES[name].get("ports", [])]
        assert str(workers["port"]) not in published
    (target,) = jobs["rabbitmq"]["static_configs"][0]["targets"]
    assert target.partition(":")[0] in SERVICES


def test_the_grafana_dashboard_is_whole_and_names_only_metrics_that_exist() -> None:
    board = json.loads((DEPLOY / "grafana" / "dashboards" / "mistnet.json").read_text(encoding="utf-8"))
    panels = [panel for panel in board["panels"] if panel["type"] != "row"]
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    asked = [target["expr"] for panel in panels for target in panel["targets"]]
    asked += [each["query"]["query"] for each in board["templating"]["list"]]
    named = {name for expression in asked for name in NAMED.findall(expression)}
    assert named - metric_names() == set()
    assert {"mistnet_lane_jobs_total", "mistnet_lane_finish_seconds_bucket", "mistnet_dead_letters"} <= named
    for panel in panels:
        assert panel["targets"], panel["title"]
        assert panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24
    (source,) = yaml.safe_load((DEPLOY / "grafana/provisioning/datasources/prometheus.yaml").read_text())["datasources"]
    assert {panel["datasource"]["uid"] for panel in panels} == {source["uid"]}
    (provider,) = yaml.safe_load((DEPLOY / "grafana/provisioning/dashboards/mistnet.yaml").read_text())["providers"]
    assert any(
        each.partition(":")[2].startswith(provider["options"]["path"]) for each in SERVICES["grafana"]["volumes"]
    )


def parsed(unit: Path) -> configparser.ConfigParser:
    found = configparser.ConfigParser(strict=False, interpolation=None)
    found.optionxform = str  # type: ignore[method-assign,assignment]
    found.read_string(unit.read_text(encoding="utf-8"))
    return found


def test_there_is_a_unit_for_each_service() -> None:
    started = {unit.stem: parsed(unit)["Service"]["ExecStart"].partition("/bin/mistnet ")[2] for unit in UNITS}
    assert started == {"mistnet": "up", "mistnet-serve": "serve", "mistnet-worker": "work --via amqp"}


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_every_unit_is_hardened_and_waits_for_its_server(unit: Path) -> None:
    service = parsed(unit)["Service"]
    assert (service["Restart"], service["User"]) == ("on-failure", "mistnet")
    # A server that is away for a day must find its workers there when it comes back.
    assert parsed(unit)["Unit"]["StartLimitIntervalSec"] == "0"
    assert int(service["RestartSec"]) < int(service["RestartMaxDelaySec"]) <= 600
    assert int(service["RestartSteps"]) > 1
    # A missing key or a wrong setting is not mended by another start; a worker at home waits for its server's.
    assert service.get("RestartPreventExitStatus") == (None if unit.stem == "mistnet-worker" else "2")
    assert int(service["TimeoutStopSec"]) > Settings.model_fields["grace_seconds"].default
    for name in ("NoNewPrivileges", "ProtectHome", "PrivateTmp", "MemoryDenyWriteExecute"):
        assert service[name] == "yes"
    example = DEPLOY / "systemd" / f"{Path(service['EnvironmentFile']).name}.example"
    assert example.exists()


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_the_commands_of_every_unit_exist(unit: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = re.findall(r"^ExecStart(?:Pre)?=/opt/mistnet/bin/mistnet (.+)$", unit.read_text(), re.MULTILINE)
    assert lines
    for line in lines:
        assert run([*line.split(), "--help"]) == 0, capsys.readouterr().err


def test_the_home_worker_takes_no_connection() -> None:
    service = parsed(UNIT)["Service"]
    assert (service["SocketBindDeny"], service["DynamicUser"]) == ("any", "yes")


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_systemd_itself_finds_nothing_wrong_with_the_unit(unit: Path, tmp_path: Path) -> None:
    lines = [line for line in unit.read_text(encoding="utf-8").splitlines() if line and line[0] not in "#["]
    assert [line for line in lines if not re.fullmatch(r"[A-Z][A-Za-z]+=\S?.*", line)] == []
    analyze = shutil.which("systemd-analyze")
    if not analyze:
        return
    copy = tmp_path / unit.name
    copy.write_text(unit.read_text(encoding="utf-8").replace("/opt/mistnet/bin/mistnet", "/bin/true"))
    told = subprocess.run([analyze, "verify", copy], capture_output=True, text=True, check=False)
    unknown = [line for line in told.stderr.splitlines() if not _is_newer(line)]
    assert (told.returncode, unknown) == (0, [])
    command = [analyze, "security", "--offline=true", "--threshold=20", str(copy)]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0


def _is_newer(complaint: str) -> bool:
    """Before version 254 systemd ignores how pauses grow, says so, and keeps to the first pause."""
    return (
        re.search(r"Unknown key.* '(RestartSteps|RestartMaxDelaySec)' in section .Service., ignoring", complaint)
        is not None
    )


@pytest.mark.parametrize("name", ["worker", "mistnet"])
def test_the_settings_of_the_units_are_settings(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    example = DEPLOY / "systemd" / f"{name}.env.example"
    monkeypatch.chdir(tmp_path)
    for variable, value in _lines(example):
        monkeypatch.setenv(variable, value)
    settings = load_settings()
    assert settings.amqp_lanes == settings.crawl_lanes
    assert (settings.x_day_credits == 200_000) == (name == "mistnet")
    commented = re.findall(r"^#(MISTNET_\w+)=", example.read_text(), re.MULTILINE)
    assert {each.removeprefix("MISTNET_").lower() for each in commented} <= set(Settings.model_fields)
