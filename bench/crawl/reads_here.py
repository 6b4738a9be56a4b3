"""The `mistnet` command, except that its worker reads pages in its own process. For comparison alone: it has no limits.

python -m bench.crawl.reads_here work --until-idle
"""

from mistnet import app
from mistnet.__main__ import main
from mistnet.sources.reading import PageReader, ReadsHere


def _reads_here(**_limits: object) -> PageReader:
    return ReadsHere()


if __name__ == "__main__":
    vars(app)["ReadsApart"] = _reads_here  # no setting does this, and none should
    main()
