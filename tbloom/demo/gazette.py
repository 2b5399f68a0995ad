"""The demo's own site: 300 generated pages of a local newspaper.

It has the links of a real news site: a menu and a footer on each page, sections with paginated lists,
articles with breadcrumbs and related articles, tags, authors, an archive by month. Many pages link to
each page, so nearly all links that a crawler finds are duplicates.
"""

from __future__ import annotations

from html import escape

TITLE = "The Harbour Gazette"
_SECTIONS = {
    "harbour": "at the harbour",
    "market": "at the market",
    "boats": "on the boats",
    "kitchen": "in the kitchen",
    "museum": "at the museum",
    "school": "at the school",
    "gardens": "in the gardens",
    "library": "in the library",
    "lighthouse": "at the lighthouse",
    "workshops": "in the workshops",
}
_SUBJECTS = (  # noqa: SIM905 - as a list, 20 lines
    "A quiet morning, Three questions, What the storm left, The long repair, An unexpected "
    "visitor, New lamps, The old clock, A day of rest, Forty years, The missing ledger, First "
    "snow, A song for evening, The painted door, Letters from abroad, A lesson in knots, The "
    "narrow stairs, Tea and rain, The autumn count, An open window, Before the tide"
).split(", ")
_TAGS = (  # noqa: SIM905 - as a list, 30 lines
    "weather rope paint history music bread winter summer tides children repairs maps salt wood "
    "glass lanterns ferries birds stories prices recipes holidays tools flags wool storms visitors "
    "letters clocks gardens"
).split()
_AUTHORS = (  # noqa: SIM905 - as above
    "Ada Marsh, Bram Kool, Celia Ost, Dov Lind, Edda Grau, Finn Holm, Greta Noor, Hugo Vale, "
    "Ines Moor, Jory Tamm, Kaja Berg, Lars Quay"
).split(", ")
_MONTHS = [f"{year}-{month:02}" for year in (2023, 2024) for month in range(1, 13)]
_ABOUT = (  # noqa: SIM905 - as above
    "about contact privacy imprint jobs subscribe advertise delivery accessibility questions"
).split()
_LIST_LENGTH = 10
_SENTENCES = (
    "{} people had gathered {} before the first ferry came in.",
    "Nobody {1} could say when it had begun, though {0} of them tried.",
    "The matter was settled {1} after {0} cups of strong tea.",
    "Some {} witnesses {} tell it differently, and each is sure.",
    "It took {} days, and those who work {} still speak of it.",
    "In the end {} letters arrived, and all was well again {}.",
)

_Link = tuple[str, str]


def pages() -> dict[str, str]:
    """The HTML of each page by its path; the same 300 pages each time."""
    articles = [
        _article(number, section, subject)
        for section in _SECTIONS
        for number, subject in enumerate(_SUBJECTS)
    ]
    by_path = {article[0]: article for article in articles}
    made = {path: _article_page(by_path, path) for path in by_path}
    made["/"] = _page("Today", [], _list(articles[::9]))
    for section in _SECTIONS:
        made |= _section_pages(section, [a for a in articles if a[0].startswith(f"/{section}/")])
    made |= _group_pages("tags", _TAGS, articles, per_article=3)
    made |= _group_pages("authors", _AUTHORS, articles, per_article=1)
    made |= _group_pages("archive", _MONTHS, articles, per_article=1)
    for name in _ABOUT:
        text = f"<p>All that there is to say about {name}, for readers of the gazette.</p>"
        made[f"/{name}.html"] = _page(name.capitalize(), [("/", "Home")], text)
    return made


def _slug(text: str) -> str:
    return text.lower().replace(" ", "-")


def _article(number: int, section: str, subject: str) -> _Link:
    return f"/{section}/{number + 1:02}-{_slug(subject)}.html", f"{subject} {_SECTIONS[section]}"


def _page(title: str, breadcrumbs: list[_Link], content: str) -> str:
    menu = [("/", "Home")]
    menu += [(f"/{section}/", section.capitalize()) for section in _SECTIONS]
    menu += [(f"/{group}/", group.capitalize()) for group in ("tags", "authors", "archive")]
    menu.append(("/subscribe.html", "Subscribe"))
    footer = [(f"/{name}.html", name.capitalize()) for name in _ABOUT]
    footer += [("#top", "Back to top"), ("https://example.com/", "Our printer")]
    trail = " &rsaquo; ".join(_anchor(link) for link in breadcrumbs)
    return (
        "<!doctype html>\n"
        f'<html lang="en"><head><meta charset="utf-8">'
        f"<title>{escape(title)} - {TITLE}</title></head>\n"
        f'<body id="top"><header><p>{TITLE}</p>\n<nav>{_items(menu)}</nav></header>\n'
        f"<main><p>{trail}</p>\n<h1>{escape(title)}</h1>\n{content}</main>\n"
        f"<footer>{_items(footer)}</footer></body></html>\n"
    )


def _anchor(link: _Link) -> str:
    return f'<a href="{link[0]}">{escape(link[1])}</a>'


def _items(links: list[_Link]) -> str:
    return "<ul>" + "".join(f"<li>{_anchor(link)}</li>" for link in links) + "</ul>\n"


def _list(articles: list[_Link]) -> str:
    """A list of articles; the headline and "Read more" are two links to the same page."""
    return "".join(
        f"<h2>{_anchor((path, title))}</h2>\n<p>{_text(title)} {_anchor((path, 'Read more'))}</p>\n"
        for path, title in articles
    )


def _text(title: str, paragraph: int = 0, sentences: int = 1) -> str:
    """A few sentences, which depend on the title only."""
    seed = sum(map(ord, title)) + paragraph * sentences
    where = " ".join(title.split()[-3:])
    return " ".join(
        _SENTENCES[(seed + i) % len(_SENTENCES)].format(2 + (seed + i) * 7 % 40, where)
        for i in range(sentences)
    )


def _article_page(articles: dict[str, _Link], path: str) -> str:
    order = list(articles)
    place, section = order.index(path), path.split("/")[1]
    title = articles[path][1]
    tags = [_TAGS[i] for i in _groups_of(place, len(_TAGS), 3)]
    [author] = [_AUTHORS[i] for i in _groups_of(place, len(_AUTHORS), 1)]
    [month] = [_MONTHS[i] for i in _groups_of(place, len(_MONTHS), 1)]
    about = [(f"/tags/{tag}.html", f"#{tag}") for tag in tags]
    about += [(f"/authors/{_slug(author)}.html", author), (f"/archive/{month}.html", month)]
    related = [articles[order[(place + step) % len(order)]] for step in (1, 7, 20, 41, 60)]
    content = "".join(f"<p>{_text(title, i, 4)}</p>\n" for i in range(3))
    content += f"{_items(about)}<h2>Related</h2>\n{_items(related)}"
    return _page(title, [("/", "Home"), (f"/{section}/", section.capitalize())], content)


def _groups_of(place: int, groups: int, count: int) -> list[int]:
    """The indexes of an article's tags, authors or months; all are used equally often."""
    return [(place * 7 + place // groups + step * 11) % groups for step in range(count)]


def _section_pages(section: str, articles: list[_Link]) -> dict[str, str]:
    """The pages of a section's list, which link to each other."""
    starts = range(0, len(articles), _LIST_LENGTH)
    paths = [
        f"/{section}/" + (f"page-{n}.html" if n > 1 else "") for n in range(1, len(starts) + 1)
    ]
    pager = _items([(path, f"Page {n}") for n, path in enumerate(paths, 1)])
    trail = [("/", "Home"), (paths[0], section.capitalize())]
    return {
        path: _page(
            f"{section.capitalize()}, page {n}",
            trail,
            _list(articles[start : start + _LIST_LENGTH]) + pager,
        )
        for n, (path, start) in enumerate(zip(paths, starts, strict=True), 1)
    }


def _group_pages(
    group: str, names: list[str], articles: list[_Link], per_article: int
) -> dict[str, str]:
    """A page for each tag, author or month, and a page that lists them."""
    members: dict[int, list[_Link]] = {}
    for place, article in enumerate(articles):
        for i in _groups_of(place, len(names), per_article):
            members.setdefault(i, []).append(article)
    links = [(f"/{group}/{_slug(name)}.html", name.capitalize()) for name in names]
    home: list[_Link] = [("/", "Home")]
    made = {f"/{group}/": _page(group.capitalize(), home, _items(links))}
    trail = [*home, (f"/{group}/", group.capitalize())]
    for i, (path, name) in enumerate(links):
        made[path] = _page(name, trail, _list(members.get(i, [])))
    return made
