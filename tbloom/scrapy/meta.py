"""The keys of a request's meta that belong to tbloom, and what they ask of the filter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tbloom.errors import ConfigError
from tbloom.items import check_keep, check_ttl, check_within
from tbloom.scrapy.settings import STORE, Setting, naming_settings
from tbloom.scrapy.stores import CrawlExact

if TYPE_CHECKING:
    from scrapy import Request
    from scrapy.settings import BaseSettings

    from tbloom import LocalBloom
    from tbloom.scrapy.stores import CrawlBloom

#: Number of newest slices in which the request counts as seen.
WITHIN = "tbloom_within"
#: For how many slices the request, or the page that answers it, counts as seen; None: for the whole window.
KEEP = "tbloom_keep"
#: How long the request counts as seen in an exact store (seconds).
TTL = "tbloom_ttl"
#: The token of a request that is queued as a page (``claims/page.py``).
CLAIM = "tbloom_claim"

_ARGUMENTS = {WITHIN, KEEP, TTL}


def arguments_of(
    request: Request,
    seen: CrawlBloom | CrawlExact | LocalBloom,
    settings: BaseSettings,
    *,
    claims: bool,
) -> tuple[tuple[str, Any], ...]:
    """The arguments of ``add`` or ``claim`` that are in the request's meta, as pairs. Raises ConfigError that names the key."""
    meta = request.meta
    if not _ARGUMENTS & meta.keys():
        return ()
    names = {"ttl": TTL} if isinstance(seen, CrawlExact) else {"within": WITHIN, "keep": KEEP}
    for key in (_ARGUMENTS - {*names.values()}) & meta.keys():
        expected = f"to be left out with TBLOOM_STORE = {STORE.value(settings)!r}"
        raise ConfigError(f"meta[{key!r}] of {request}", meta[key], expected)
    if claims:  # the end of the page says how long it is kept
        del names["keep"]
    given = {name: meta[key] for name, key in names.items() if key in meta}
    with naming_settings({n: Setting(f"meta[{key!r}] of {request}") for n, key in names.items()}):
        if isinstance(seen, CrawlExact):
            check_ttl(given["ttl"])
        else:
            slices = seen.config.slices
            check_keep(given.get("keep"), given.get("within"), slices)
            check_within(given.get("within"), slices)
    return (*given.items(),)
