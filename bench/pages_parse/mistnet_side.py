"""mistnet: a page to product, price, stock and number, each with its evidence."""

from bench.pages_parse.side import main
from bench.pages_parse.stock import Page
from mistnet.pricing import read_page


def facts(page: Page) -> object:
    return read_page(page.body, url=page.url, content_type="text/html")


if __name__ == "__main__":
    main("mistnet", {"facts with evidence": facts})
