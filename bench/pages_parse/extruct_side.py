"""extruct: the structured data of a page, in all syntaxes as by default, and in those that shops use."""

import extruct
from w3lib.encoding import html_to_unicode

from bench.pages_parse.side import main
from bench.pages_parse.stock import Page


def by_default(page: Page) -> object:
    return extruct.extract(html_to_unicode(None, page.body)[1], base_url=page.url, errors="ignore")


def restricted(page: Page) -> object:
    syntaxes = ["json-ld", "microdata", "opengraph"]
    return extruct.extract(html_to_unicode(None, page.body)[1], base_url=page.url, syntaxes=syntaxes, errors="ignore")


if __name__ == "__main__":
    main("extruct", {"all syntaxes (default)": by_default, "json-ld, microdata, opengraph": restricted})
