"""Plugins that cannot be used are refused in one sentence that says which and why."""

from pathlib import Path

import pytest

from mistnet.queue.errors import BadPlugin
from mistnet.queue.plugins import load_plugin
from tests.apis import app_on

HEAD = "from mistnet.app import Plugin\nfrom tests.support import kind\n"


def written(folder: Path, name: str, code: str, monkeypatch: pytest.MonkeyPatch) -> str:
    (folder / f"{name}.py").write_text(HEAD + code)
    monkeypatch.syspath_prepend(folder)
    return f"{name}:plugin"


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("nowhere_to_be_found:plugin", "No module named 'nowhere_to_be_found'"),
        ("tests.plugins.toy:missing", "has no attribute 'missing'"),
        ("tests.plugins.toy", "write it as module:function"),
        ("tests.plugins.toy:LANE", "LANE is not a function"),
        (":plugin", "importing it failed with ValueError"),
    ],
)
def test_a_plugin_that_is_not_there_is_named(name: str, problem: str) -> None:
    with pytest.raises(BadPlugin, match=problem) as refused:
        load_plugin(name)
    assert str(refused.value).startswith(f"plugin {name!r} cannot be used: ")


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("raise RuntimeError('not today')", "importing it failed with RuntimeError: not today"),
        ("def plugin(:", "importing it failed with SyntaxError"),
        (
            "def plugin():\n    raise LookupError('no such thing')",
            "calling it failed with LookupError: no such thing",
        ),
        ("def plugin(app):\n    return Plugin()", "calling it failed with TypeError"),
        ("def plugin():\n    return [kind('own')]", "it returned list, not a Plugin"),
        ("def plugin():\n    return Plugin(kinds=['own'])", "it brings 'own' as a kind"),
        ("def plugin():\n    return Plugin(writers=[print])", "it brings <built-in function print> as a writer"),
    ],
)
def test_a_plugin_that_does_not_work_says_why(
    code: str, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = written(tmp_path, f"broken_{tmp_path.name}", code, monkeypatch)
    with pytest.raises(BadPlugin) as refused:
        load_plugin(name)
    assert problem in str(refused.value)


@pytest.mark.parametrize("names", [("own", "own"), ("crawl",)])
async def test_a_plugin_cannot_bring_a_kind_that_is_there_already(
    names: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = f"def plugin():\n    return Plugin(kinds=[kind(each) for each in {names!r}])"
    name = written(tmp_path, f"twice_{len(names)}", code, monkeypatch)
    with pytest.raises(BadPlugin, match=rf"there is a kind called '{names[0]}' already; give its own another name"):
        app_on(f"sqlite:///{tmp_path}/a.db", plugins=[name])
