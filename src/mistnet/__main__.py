"""Makes `python -m mistnet` the same as `mistnet`."""

from mistnet.cli.entry import main

main()
