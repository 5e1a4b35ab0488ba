"""What client/browser computes is what Python computes."""

import os
import subprocess
from pathlib import Path

from tests.client.browser.node import MODULES, NODE, needs_node
from tests.client.browser.vectors import path_of

pytestmark = needs_node


def test_codecs_and_training_are_those_of_python(tmp_path: Path) -> None:
    assert NODE is not None
    script = Path(__file__).with_name("vectors.test.mjs")
    reported = subprocess.run(
        [NODE, "--test", "--test-reporter=tap", str(script)],
        env={**os.environ, "MODULES": str(MODULES), "VECTORS": str(path_of(tmp_path))},
        capture_output=True,
        text=True,
    )
    assert reported.returncode == 0, reported.stdout
