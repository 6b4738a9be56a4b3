"""Write the picture and the table of packages into docs/architecture.md, or with --check say whether they are stale."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Mapping
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
    modules, imports = read_graph()
    section = f"{picture(modules, imports)}\n\n{table(modules, imports)}\n\n"
    return SECTION.sub(lambda found: f"{found[1]}\n{section}{found[2]}", old)


def package_names() -> list[str]:
    """From top to bottom, as the import contract has them; the simulator stands apart."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (contract,) = (each for each in project["tool"]["importlinter"]["contracts"] if each["type"] == "layers")
    names = [name.strip().removeprefix("mistnet.") for line in contract["layers"] for name in line.split("|")]
    return [*names, "sim"]


def read_graph() -> tuple[dict[str, int], dict[str, set[str]]]:
    """How many modules each package has, and which packages it imports."""
    graph = grimp.build_graph("mistnet", exclude_type_checking_imports=True, cache_dir=None)
    names = package_names()
    modules = dict.fromkeys(names, 0)
    imports: dict[str, set[str]] = {name: set() for name in names}
    for module in graph.modules:
        package = module.split(".")[1] if "." in module else ""
        if package in modules:
            modules[package] += 1
            found = {each.split(".")[1] for each in graph.find_modules_directly_imported_by(module) if "." in each}
            imports[package] |= found & modules.keys() - {package}
    return modules, imports


def reachable(package: str, imports: Mapping[str, set[str]]) -> set[str]:
    """All packages that one imports, also through others."""
    return imports[package].union(*(reachable(each, imports) for each in imports[package]))


def picture(modules: Mapping[str, int], imports: Mapping[str, set[str]]) -> str:
    """An arrow for each import of a package that no other import implies: all of them would hide the order."""
    lines = ["```mermaid", "flowchart TB"]
    # Names alone are no ids: `graph` is a word of mermaid.
    lines += [f'    {name}_["{name} ({count})"]' for name, count in modules.items()]
    for name in modules:
        implied = set[str]().union(*(reachable(each, imports) for each in imports[name]))
        lines += [f"    {name}_ --> {each}_" for each in modules if each in imports[name] - implied]
    return "\n".join([*lines, "```"])


def table(modules: Mapping[str, int], imports: Mapping[str, set[str]]) -> str:
    lines = ["| package | what it is | modules | imports |", "|---|---|---|---|"]
    for name, count in modules.items():
        listed = ", ".join(f"`{each}`" for each in modules if each in imports[name]) or "nothing"
        lines.append(f"| `{name}` | {purpose(name)} | {count} | {listed} |")
    return "\n".join(lines)


def purpose(name: str) -> str:
    """The first line of a package's or module's docstring."""
    package = SOURCE / name / "__init__.py"
    file = package if package.exists() else SOURCE / f"{name}.py"
    documented = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    return documented.partition("\n")[0]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
