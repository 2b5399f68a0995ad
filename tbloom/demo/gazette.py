"""The demo's own site: 300 generated pages of a local newspaper.

Pages link to each other as on a news site: by menus, footers, breadcrumbs, related articles, and lists by section, tag
and month. So nearly all links that a crawler finds are duplicates.
"""

from __future__ import annotations

from html import escape
from pathlib import Path

TITLE = "The Harbour Gazette"
_SUBJECTS = (  # noqa: SIM905 - as a list, 20 lines
    "A quiet morning, Three questions, What the storm left, The long repair, An unexpected "
    "visitor, New lamps, The old clock, A day of rest, Forty years, The missing ledger, First "
    "snow, A song for evening, The painted door, Letters from abroad, A lesson in knots, The "
    "narrow stairs, Tea and rain, The autumn count, An open window, Before the tide"
).split(", ")
_SECTIONS = "harbour market boats kitchen museum school garden library lighthouse works".split()  # noqa: SIM905 - one line
_TAGS = "bread maps salt wood glass birds tools flags wool storms letters clocks".split()  # noqa: SIM905
_MONTHS = [f"{2020 + month // 12}-{month % 12 + 1:02}" for month in range(64)]
#: For each kind of list, the names of its lists, and how many of them an article is in.
_LISTS = {"sections": (_SECTIONS, 1), "tags": (_TAGS, 3), "archive": (_MONTHS, 1)}
_ABOUT = "about contact privacy imprint jobs subscribe advertise delivery access questions".split()  # noqa: SIM905

#: The path and the text of a link.
_Link = tuple[str, str]


def pages() -> dict[str, str]:
    """Return the HTML of each page by its path, the same each time."""
    articles = [
        (f"/articles/{number + 1:03}.html", f"{subject}, part {number // len(_SUBJECTS) + 1}")
        for number, subject in enumerate(_SUBJECTS * 10)
    ]
    members: dict[_Link, list[_Link]] = {}
    found = {"/": _page("Today", [], _teasers(articles[::9]))}
    for number, article in enumerate(articles):
        lists = _lists_of(number)
        for link in lists:
            members.setdefault(link, []).append(article)
        related = [articles[(number + step) % len(articles)] for step in (1, 7, 20, 41, 60)]
        content = f"<p>By our reporter.</p>\n{_items(lists)}<h2>Related</h2>\n{_items(related)}"
        found[article[0]] = _page(article[1], lists[:1], content)
    for kind, (names, _) in _LISTS.items():
        found[f"/{kind}/"] = _page(kind, [], _items([_list(kind, name) for name in names]))
    for link, listed in members.items():
        found[link[0]] = _page(link[1], [], _teasers(listed))
    found |= {f"/{name}.html": _page(name, [], f"<p>All about {name}.</p>") for name in _ABOUT}
    return found


def write(folder: Path) -> None:
    """Write the pages into the folder."""
    for path, text in pages().items():
        file = folder / (f"{path}index.html" if path.endswith("/") else path).lstrip("/")
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, encoding="ascii", errors="xmlcharrefreplace")


def _list(kind: str, name: str) -> _Link:
    return f"/{kind}/{name}.html", name


def _lists_of(number: int) -> list[_Link]:
    """Return the lists that an article is in. Lists of one kind have about the same length."""
    return [
        _list(kind, names[(number * 7 + number // len(names) + step * 11) % len(names)])
        for kind, (names, count) in _LISTS.items()
        for step in range(count)
    ]


def _page(title: str, breadcrumbs: list[_Link], content: str) -> str:
    home = ("/", "Home")
    menu = [home, *((f"/{kind}/", kind) for kind in _LISTS)]
    menu += [_list("sections", section) for section in _SECTIONS]
    footer = [(f"/{name}.html", name) for name in _ABOUT]
    footer += [("#top", "Back to top"), ("https://example.com/", "Our printer")]
    return (
        f'<!doctype html>\n<html lang="en"><head><title>{escape(title)} - {TITLE}</title></head>\n'
        f'<body id="top"><header><p>{TITLE}</p>\n<nav>{_items(menu)}</nav></header>\n'
        f"<main>{_items([home, *breadcrumbs])}<h1>{escape(title)}</h1>\n{content}</main>\n"
        f"<footer>{_items(footer)}</footer></body></html>\n"
    )


def _anchor(link: _Link) -> str:
    return f'<a href="{link[0]}">{escape(link[1])}</a>'


def _items(links: list[_Link]) -> str:
    return "<ul>" + "".join(f"<li>{_anchor(link)}</li>" for link in links) + "</ul>\n"


def _teasers(articles: list[_Link]) -> str:
    """Return a list of articles, each with two links to its page."""
    return "".join(
        f"<h2>{_anchor((path, title))}</h2>\n<p>By our reporter. {_anchor((path, 'Read more'))}</p>\n"
        for path, title in articles
    )
