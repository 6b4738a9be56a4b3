"""The page on commands is written from the commands, and is up to date."""

from scripts import generate_cli_docs


def test_the_page_on_commands_is_not_stale() -> None:
    written = generate_cli_docs.PAGE.read_text(encoding="utf-8")
    assert written == generate_cli_docs.page(), "run scripts/generate_cli_docs.py"


def test_every_command_and_every_option_is_on_the_page() -> None:
    page = generate_cli_docs.page()
    for command in ("work", "status", "doctor", "demo", "db migrate", "jobs add", "jobs requeue"):
        assert f"## `mistnet {command}" in page
    for option in ("--until-idle", "--before-id", "--fix", "--database-url", "--metrics-port"):
        assert f"`{option}" in page
    assert "--child-of" not in page
