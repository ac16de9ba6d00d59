"""Docker's engine, which runs in the lab's containers too. What runs in Docker is tested on machines, in tests/lab."""

from __future__ import annotations

import json

from testinfra.host import Host

testinfra_hosts = ["ansible://sparks?sudo=true"]


def test_the_engine_answers_with_the_cgroup_driver_that_survives_a_reload(host: Host) -> None:
    assert host.service("docker").is_running and host.service("docker").is_enabled
    said = json.loads(host.check_output("docker info --format '{{json .}}'"))
    assert said["CgroupDriver"] == "cgroupfs"
    assert said["LoggingDriver"] == "local"


def test_its_configuration_is_valid(host: Host) -> None:
    assert host.run("dockerd --validate --config-file /etc/docker/daemon.json").rc == 0


def test_the_engine_outlives_a_reload_of_systemd(host: Host) -> None:
    started = host.check_output("systemctl show -p InvocationID --value docker")
    host.check_output("systemctl daemon-reload")
    assert host.check_output("systemctl show -p InvocationID --value docker") == started
    assert host.run("docker ps").rc == 0
