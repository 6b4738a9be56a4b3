"""`mistnet.open` reads while `mistnet up` writes."""

import re
import signal

import mistnet
from tests.commands import DEADLINE_SECONDS
from tests.e2e.conftest import QUICK, CommandLine, until
from tests.simulated import list_handles


def test_data_is_read_while_up_collects(on_no_file: CommandLine, sim_url: str) -> None:
    on_no_file.settings |= {**QUICK, "MISTNET_X_BASE_URL": sim_url}
    handle, *_ = list_handles(sim_url)
    on_no_file.ok("init", handle)
    up = on_no_file.start("up", "--port", "0")
    assert up.stdout is not None
    assert re.search(r"http://\S+", up.stdout.readline())
    counts: list[int] = []
    with mistnet.open(on_no_file.folder) as data:

        def is_complete() -> bool:
            counts.append(len(list(data.posts())))
            return any(each.backfilled_at for each in data.accounts())

        until(is_complete)
        stored = data.posts().count()
    assert counts == sorted(counts), "no row that was read goes away"
    assert stored >= counts[-1] > 0
    up.send_signal(signal.SIGTERM)
    _, err = up.communicate(timeout=DEADLINE_SECONDS)
    assert (up.returncode, "locked" in err, "Traceback" in err) == (0, False, False), err
