"""HTML pages, each from a template beside the commands."""

from __future__ import annotations

from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from tbloom.cli.kit import formats


def page(template: str, **values: Any) -> bytes:
    """The page, in UTF-8. Values are escaped: names of filters are not trusted."""
    environment = Environment(
        loader=PackageLoader("tbloom.cli", "commands"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    shown = {"size": formats.size, "rate": formats.rate, "moment": formats.moment}
    environment.filters |= {"number": "{:,}".format, **shown}
    html = environment.get_template(template).render(**values)
    return html.encode(errors="replace")  # a URL may have bytes that are no UTF-8
