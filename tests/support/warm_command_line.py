"""What most commands of reprokit read and compile: the catalogue, templates and rules.

The server of the command line imports this module, so that its children have it.
"""

from __future__ import annotations

from reprokit.host.catalogue import catalogue_files
from reprokit.host.report import template_files
from reprokit.host.system import private_names
from tests.support.environments import RECORDED, ROOT

TEMPLATES = ROOT / "templates"

catalogue_files.own_catalogue()
template_files.html_templates().get_template("report.html.j2")
for path in TEMPLATES.rglob("*.md.j2"):
    is_public = path.parent.name == "issue"
    environment = (
        template_files.public_templates() if is_public else template_files.markdown_templates()
    )
    environment.get_template(path.relative_to(TEMPLATES).as_posix())
private_names.get_redactor().redact_text((RECORDED / "inventory.json").read_text())
