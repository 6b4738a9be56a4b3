"""lxml: nothing but the parse, with no value read from it."""

import lxml.html

from bench.pages_parse.side import main
from bench.pages_parse.stock import Page


def parse(page: Page) -> object:
    return lxml.html.fromstring(page.body)


if __name__ == "__main__":
    main("lxml", {"parse alone": parse})
