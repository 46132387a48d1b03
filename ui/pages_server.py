"""Serves the pages with Streamlit in this process, reading through a ClickHouse HTTP interface that only reads.

Must stay true: the pages never get the owner's password.
"""

from __future__ import annotations

import socket
from importlib import import_module
from pathlib import Path

from ingest import endpoint
from ingest.errors import BadSetting, StagescopeError
from ingest.settings import Settings
from ingest.store import DATABASE, Store, locate, running_endpoint
from ui.command import without_user

# Imported before the first visitor comes, who would wait for them otherwise.
HEAVY = "altair analytics.dimensions analytics.failures analytics.overview analytics.roadmap analytics.run analytics.traces".split()


def serve(settings: Settings) -> None:
    """Serve until the process is told to stop. Raises BadSetting when the port is taken."""
    must_be_free(settings.host, settings.ui_port, "STAGESCOPE_UI_PORT")
    location = locate(settings.store)
    if location.folder is None:
        _streamlit(settings, settings.store)
        return
    running = running_endpoint(location.folder)
    if running:
        _streamlit(settings, f"{without_user(running)}/{DATABASE}")
        return
    if not location.folder.is_dir():
        raise StagescopeError(
            f"there is no store in {location.folder} yet: fill it with `stagescope ingest` or `stagescope up`"
        )
    with Store.open(settings.store) as store, endpoint.serve(store, settings.host, 0) as served:
        _streamlit(settings, f"{served.url}/{DATABASE}")


def must_be_free(host: str, port: int, name: str) -> None:
    """Raises BadSetting naming the setting when nobody can listen on `port`."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as err:
            raise BadSetting(name, port, f"a free port on {host} ({err.strerror})") from err


def _streamlit(settings: Settings, url: str) -> None:
    from streamlit import config
    from streamlit.web import bootstrap

    for name in HEAVY:
        import_module(name)

    script = str(Path(__file__).with_name("app.py"))
    flags = {
        "server_address": settings.host,
        "server_port": settings.ui_port,
        "server_headless": True,
        "server_fileWatcherType": "none",
        "browser_gatherUsageStats": False,
        "global_developmentMode": False,
        "logger_level": "warning",
    }
    config._main_script_path = script
    bootstrap.load_config_options(flags)
    bootstrap.run(script, False, ["--store", url], flags)
