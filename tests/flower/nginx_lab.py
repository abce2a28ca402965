"""A federation behind nginx, with the configuration that ``fedtaco flower new`` writes: nodes connect to nginx only."""

from __future__ import annotations

import os
import shutil

from lab import Lab

from fedtaco.flower.loopback import free_port, is_open

SHORT_SESSIONS = """
import flwr.supercore.constant
flwr.supercore.constant.OBJECT_PUSH_SESSION_TTL_SECONDS = 5
"""
"""Imported by every process: the SuperLink waits 5 seconds for the rest of an upload that has stopped, not 180."""
MAIN = """
daemon off;
master_process off;
pid {folder}/pid;
error_log {folder}/error.log;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    include {folder}/superlink.conf;
}}
"""


class NginxLab(Lab):
    """A Lab whose ``port`` is that of nginx; the operator's ``flwr`` connects to ``control_port``."""

    def __init__(self, folder, site, **environment):
        (folder / "python").mkdir(parents=True)
        (folder / "python" / "sitecustomize.py").write_text(SHORT_SESSIONS)
        path = os.pathsep.join(filter(None, [str(folder / "python"), os.environ.get("PYTHONPATH")]))
        super().__init__(folder, PYTHONPATH=path, **environment)
        self.site, self.control_port, self.nginx = site, self.port, folder / "nginx"

    def start_superlink(self):
        super().start_superlink()
        self.nginx.mkdir()
        port, site = free_port(), self.site
        for old, new in (
            ("listen 443 ssl;", f"listen 127.0.0.1:{port} ssl;"),
            ("/etc/fedtaco/", f"{self.folder}/"),
            ("127.0.0.1:8000", f"127.0.0.1:{self.control_port}"),
        ):
            assert old in site, f"the configuration of nginx does not contain {old}"
            site = site.replace(old, new)
        (self.nginx / "superlink.conf").write_text(site)
        (self.nginx / "main.conf").write_text(MAIN.format(folder=self.nginx))
        command = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
        assert command, "These tests need nginx: apt-get install nginx"
        self.processes.start("nginx", command, "-c", str(self.nginx / "main.conf"))
        self._wait_until(lambda: is_open(port), "nginx to listen")
        self.port = port

    def nginx_errors(self):
        """Return the error log of nginx."""
        return (self.nginx / "error.log").read_text()
