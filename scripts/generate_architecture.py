"""Write the picture and the table of packages into docs/architecture.md, or with --check say whether they are stale."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from pathlib import Path
from typing import Final

import grimp

ROOT: Final = Path(__file__).resolve().parents[1]
PAGE: Final = ROOT / "docs" / "architecture.md"
SOURCE: Final = ROOT / "src" / "mistnet"
SECTION: Final = re.compile(r"(<!-- packages: [^\n]*-->\n).*?(<!-- end of packages -->)", re.DOTALL)


def main(arguments: list[str]) -> int:
    old = PAGE.read_text(encoding="utf-8")
    new = page(old)
    if arguments == ["--check"]:
        if new != old:
            print(f"{PAGE} is stale; run scripts/generate_architecture.py", file=sys.stderr)
        return int(new != old)
    PAGE.write_text(new, encoding="utf-8")
    return 0


def page(old: str) -> str:
    """The whole page with the section of packages as the code has it now."""
    section = f"{picture()}\n\n{table()}\n\n"
    return SECTION.sub(lambda found: f"{found[1]}\n{section}{found[2]}", old)


def layers() -> list[list[str]]:
    """From top to bottom, as the import contract has them; packages of one layer do not import each other."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (contract,) = (each for each in project["tool"]["importlinter"]["contracts"] if each["type"] == "layers")
    return [[name.strip().removeprefix("mistnet.") for name in line.split("|")] for line in contract["layers"]]


def picture() -> str:
    rows = [f'    layer{number}["{" | ".join(names)}"]' for number, names in enumerate(layers())]
    arrows = " --> ".join(f"layer{number}" for number in range(len(rows)))
    return "\n".join(["```mermaid", "flowchart TB", *rows, f"    {arrows}", "```"])


def table() -> str:
    graph = grimp.build_graph("mistnet", exclude_type_checking_imports=True, cache_dir=None)
    lines = ["| package | what it is | modules | imports |", "|---|---|---|---|"]
    names = [*(name for layer in layers() for name in layer), "sim"]
    for name in names:
        modules = {module for module in graph.modules if module.split(".")[1:2] == [name]}
        imported = {
            found.split(".")[1]
            for module in modules
            for found in graph.find_modules_directly_imported_by(module)
            if found.count(".") >= 1
        }
        listed = ", ".join(f"`{each}`" for each in names if each in imported - {name}) or "nothing"
        lines.append(f"| `{name}` | {purpose(name)} | {len(modules)} | {listed} |")
    return "\n".join(lines)


def purpose(name: str) -> str:
    """The first line of a package's or module's docstring."""
    package = SOURCE / name / "__init__.py"
    file = package if package.exists() else SOURCE / f"{name}.py"
    documented = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    return documented.partition("\n")[0]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
