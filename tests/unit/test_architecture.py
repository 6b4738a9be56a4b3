"""The page on the architecture is true: its packages come from the code, and the modules it names exist."""

import re

from scripts import generate_architecture


def test_the_packages_on_the_page_are_those_of_the_code() -> None:
    written = generate_architecture.PAGE.read_text(encoding="utf-8")
    assert written == generate_architecture.page(written), "run scripts/generate_architecture.py"


def test_every_module_the_page_names_exists() -> None:
    packages = {each.name for each in generate_architecture.SOURCE.iterdir()}
    paths = re.findall(r"`((?:\w+/)+(?:\w+\.py)?)`", generate_architecture.PAGE.read_text(encoding="utf-8"))
    named = [each for each in paths if each.partition("/")[0] in packages]
    assert len(named) > 20
    assert [each for each in named if not (generate_architecture.SOURCE / each).exists()] == []
