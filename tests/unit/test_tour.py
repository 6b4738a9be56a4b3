"""The tour shows the pictures that its script makes, and no other; each in the size of its screen."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[2]


def load_script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_tour", ROOT / "scripts" / "make_tour.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


def test_the_tour_shows_every_picture_of_its_script_in_the_size_of_its_screen() -> None:
    script = load_script()
    shown = re.findall(r"\]\(images/([^)]+)\)", (ROOT / "docs" / "tour.md").read_text())
    assert sorted(shown) == sorted(script.PICTURES)
    for name in shown:
        content = (script.IMAGES / name).read_bytes()
        width, height = (int.from_bytes(content[begin : begin + 4]) for begin in (16, 20))
        assert (width, height) == script.SIZES[name.rpartition("-")[2].removesuffix(".png")]
        assert len(content) < 200_000, name
