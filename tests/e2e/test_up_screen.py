"""`up` on a terminal: the screen, its end, and the lines that --log writes instead."""

import re
from urllib.request import Request, urlopen

from tests.commands import DEADLINE_SECONDS
from tests.e2e.conftest import QUICK, CommandLine
from tests.terminals import on_terminal

PATIENCE = 60.0


def test_on_a_terminal_up_shows_address_accounts_money_and_posts(on_no_file: CommandLine, sim_url: str) -> None:
    on_no_file.settings |= {**QUICK, "MISTNET_X_BASE_URL": sim_url}
    on_no_file.ok("init", "Maya_dev0", "nobody_here")
    with on_terminal(on_no_file, "up", "--port", "0", rows=36, columns=120) as terminal:
        seen = terminal.until("complete since 20", "there is no account of that name", seconds=PATIENCE)
        terminal.until("1 account, 1 complete", "nothing needs you", seconds=PATIENCE)
        (link,) = {*re.findall(r"Open (http://127\.0\.0\.1:\d+/login/\S+) in a browser", seen)}
        with urlopen(Request(link, headers={"Accept": "text/html"}), timeout=DEADLINE_SECONDS) as page:
            assert page.status == 200
        assert "of $2.00 today" in terminal.written
        assert "posts arriving" in terminal.written
        assert "job 1 " not in terminal.written, "no line of the log is on the screen"
        terminal.type(b"\x03")
        assert terminal.ended() == 0
    assert "Stopping: what runs may finish" in terminal.written
    assert "jobs settled" in terminal.written
    assert "Traceback" not in terminal.written


def test_up_writes_lines_with_a_date_where_the_log_is_asked_for(on_no_file: CommandLine, sim_url: str) -> None:
    on_no_file.settings |= {**QUICK, "MISTNET_X_BASE_URL": sim_url, "MISTNET_LOG_LEVEL": "DEBUG"}
    on_no_file.ok("track", "nobody_here")
    with on_terminal(on_no_file, "up", "--port", "0", "--log", rows=36, columns=120) as terminal:
        terminal.until("mistnet is at http", "suggestion of @nobody_here succeeded", seconds=PATIENCE)
        terminal.type(b"\x03")
        assert terminal.ended() == 0
    assert re.search(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} \w+", terminal.written, re.MULTILINE)
    assert "posts arriving" not in terminal.written
