"""The alerts for Prometheus: of metrics that there are, and raised by what they are for."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from edgeflock.server.hosting.standby import Standby
from tests.hosting import hosting
from tests.integration.operator import operating

ALERTS = Path(__file__).parents[2] / "docs" / "alerts.yml"
PROMTOOL = shutil.which("promtool")

needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed (Prometheus)")


async def test_every_metric_of_the_alerts_is_served(tmp_path: Path) -> None:
    async with hosting(tmp_path) as hosted, operating(hosted.port, "") as viewer:
        _, text = await viewer.get("/metrics")
    served = set(re.findall(r"^# TYPE (edgeflock_\w+)", text, re.MULTILINE))
    served |= {f"{name}_total" for name in served}
    standby = Standby()
    standby.version = 1
    served |= set(re.findall(r"^# TYPE (edgeflock_\w+)", standby.metrics(), re.MULTILINE))
    asked = set(
        re.findall(
            r"\bedgeflock_\w+", "".join(re.findall(r"expr:.*?(?=for:|labels:)", ALERTS.read_text(), re.S))
        )
    )
    assert "edgeflock_diverged" in asked
    assert asked <= served
    # Without a 0 before it the first refusal is no increase.
    assert 'edgeflock_refusals_total{code="non-finite"} 0.0' in text


@needs_promtool
@pytest.mark.parametrize("check", [["check", "rules", str(ALERTS)], ["test", "rules", "alerts_test.yml"]])
def test_what_prometheus_says_of_them(check: list[str]) -> None:
    assert PROMTOOL is not None
    done = subprocess.run(
        [PROMTOOL, *check], cwd=Path(__file__).parent, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
