"""JupyterLab on a free port and a headless Chromium: a test asks for `notebook` and opens one by name.

    def test_the_slider_counts(notebook):
        nb = notebook("08_bandwidth_roofline.ipynb")
        nb.run_all()
        nb.slide("stages", +1)

The server works on a copy of notebooks/ with settings of its own: the repository and the user's JupyterLab stay as
they are.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import NamedTuple

import pytest
from playwright.sync_api import sync_playwright

from tests.browser.jupyterlab import Notebook, open_notebook

ROOT = Path(__file__).resolve().parents[2]
CHROMIUMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# No sandbox: it refuses root and many containers. The rest keeps the browser from calling home.
FLAGS = """--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking
    --disable-component-update --disable-sync""".split()
FAILED = pytest.StashKey[bool]()
SETTINGS = {
    # Cells out of view stay in the page, so that a test can read all of them.
    "@jupyterlab/notebook-extension/tracker": {"windowingMode": "none"},
    "@jupyterlab/apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
}


def pytest_collection_modifyitems(items):
    """One xdist worker takes all browser tests: they share a server and a browser."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.xdist_group("browser"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if report.when == "call":
        item.stash[FAILED] = report.failed
    return report


class Server(NamedTuple):
    url: str
    token: str
    folder: Path


@pytest.fixture(scope="session")
def chromium():
    """A browser; its windows share a cache, so that JupyterLab's scripts are fetched and compiled once."""
    path = next(filter(None, map(shutil.which, CHROMIUMS)), None)
    if path is None:
        pytest.skip("no Chromium or Chrome on the PATH (Debian: apt install chromium)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield browser.new_context(viewport={"width": 1500, "height": 1000})
        browser.close()


@pytest.fixture(scope="session")
def server(chromium, tmp_path_factory):
    home = tmp_path_factory.mktemp("jupyter")
    served = home / "served"
    folder = served / "notebooks"
    shutil.copytree(ROOT / "notebooks", folder, ignore=shutil.ignore_patterns(".ipynb_checkpoints"))
    (served / "skinny_gemm").symlink_to(ROOT / "skinny_gemm")  # what the notebooks link to
    for plugin, settings in SETTINGS.items():
        path = home / "settings" / f"{plugin}.jupyterlab-settings"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(settings))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    token = os.urandom(16).hex()
    command = [
        sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--LabApp.expose_app_in_browser=True",
        "--LabApp.news_url=None", "--ServerApp.ip=127.0.0.1", f"--ServerApp.port={port}", "--ServerApp.port_retries=0",
        f"--ServerApp.root_dir={served}", f"--IdentityProvider.token={token}",
    ]  # fmt: skip
    environment = os.environ | {
        "CUDA_VISIBLE_DEVICES": "",
        "JUPYTER_CONFIG_DIR": str(home / "config"),
        "JUPYTER_RUNTIME_DIR": str(home / "runtime"),
        "JUPYTERLAB_SETTINGS_DIR": str(home / "settings"),
        "JUPYTERLAB_WORKSPACES_DIR": str(home / "workspaces"),
        "SKINNY_GEMM_EXPORTS": str(home / "exports"),
    }
    log = home / "server.log"
    with log.open("w") as out:
        process = subprocess.Popen(command, env=environment, stdout=out, stderr=out, start_new_session=True)
    try:
        url = f"http://127.0.0.1:{port}"
        wait_for(f"{url}/api?token={token}", process, log)
        yield Server(url, token, folder)
    finally:
        os.killpg(process.pid, signal.SIGTERM)  # the kernels shut down with it
        process.wait(timeout=30)


def wait_for(url: str, process: subprocess.Popen, log: Path, timeout_s: float = 60) -> None:
    deadline = time.monotonic() + timeout_s
    while process.poll() is None and time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except OSError:
            time.sleep(0.1)
    raise RuntimeError(f"JupyterLab did not start:\n{log.read_text()[-4000:]}")


@pytest.fixture
def notebook(chromium, server, request):
    """`notebook(name)` opens notebooks/`name` in a window of its own; a failing test leaves a screenshot of each."""
    opened: list[Notebook] = []

    def open_one(name: str) -> Notebook:
        opened.append(open_notebook(chromium.new_page(), server.url, server.token, name, server.folder))
        return opened[-1]

    yield open_one
    for number, nb in enumerate(opened):
        if request.node.stash.get(FAILED, False):
            nb.screenshot(f"failed-{request.node.name}-{number}")
        nb.close()
